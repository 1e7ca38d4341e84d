"""Java's KafkaShareConsumer and the share groups of its Admin: all classes with Share in their name in
java/compat."""

from __future__ import annotations

import pytest

from compat_tests.java_stories import outcomes as run
from compat_tests.java_stories import stories

STORIES = [
    pytest.param(story, marks=[pytest.mark.long] if story.startswith("Long") else [])
    for story in stories()
    if "Share" in story.partition(".")[0]
]


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest,
    bootstrap: str,
    is_kafka: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    return run(request, __file__, bootstrap, is_kafka, tmp_path_factory.mktemp("java"))


@pytest.mark.differs("where it does, the story in ShareStories.java says why")
@pytest.mark.parametrize("story", STORIES)
def test_java_share_consumer(outcomes: dict[str, str], story: str, is_kafka: bool) -> None:
    trace = outcomes[story]
    assert not trace, trace
