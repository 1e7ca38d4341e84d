"""The Java client (kafka-clients 4.3.1): the stories are in java/compat, one method each.

Those of share groups are in shares/test_shares_java.py.
"""

from __future__ import annotations

import pytest

from compat_tests.java_stories import outcomes as run
from compat_tests.java_stories import stories

STORIES = [story for story in stories() if "Share" not in story.partition(".")[0]]


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest,
    bootstrap: str,
    is_kafka: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    return run(request, __file__, bootstrap, is_kafka, tmp_path_factory.mktemp("java"))


@pytest.mark.differs("where it does, the story in AdminStories.java says why")
@pytest.mark.parametrize("story", STORIES)
def test_java_client(outcomes: dict[str, str], story: str, is_kafka: bool) -> None:
    trace = outcomes[story]
    assert not trace, trace
