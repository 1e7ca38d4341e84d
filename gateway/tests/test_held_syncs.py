"""Syncs that take as long as they like, and power cuts at any time: nothing acked may be lost.

Hypothesis draws the steps (held_story.py). What is acked while syncs are held, delivered, filed or merged
must not build on anything that is not on disk.
"""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kumquat.core.logs.tests.disk import MOODS
from kumquat.gateway.tests.held_story import HeldStory
from kumquat.gateway.tests.lives import lives, use_small_merges
from kumquat.gateway.tests.one_thread import run, use_one_thread

if TYPE_CHECKING:
    from kumquat.gateway.tests.held_story import Step

WORDS = (
    *("send", "turn", "commit", "park soon", "park mid", "park far", "cancel", "move"),
    *("hold", "hold", "release", "second", "second", "minutes", "hour", "kill", "stop"),
)
CUTS = st.tuples(st.just("cut"), st.integers(0, 999), st.sampled_from(MOODS))
STEPS = st.lists(st.sampled_from(WORDS) | CUTS, max_size=40)

FILED: list[Step] = [*["park mid"] * 8, "stop"]
"""In a schedule file, due just before the hour ends."""
HOUR_PASSES: list[Step] = ["hold", "minutes", "park soon", "second", "second", "second"]
"""They are delivered, and no sync ends. The hour is over: a merge has no use for them."""

COMMITTED: list[Step] = ["second", "hold", "turn", "commit", "second"]


@given(steps=STEPS)
@example(steps=[*["send"] * 4, *COMMITTED, "release", "second", ("cut", 0, "nothing"), "turn"])
@example(steps=[*["send"] * 4, *COMMITTED, ("cut", 0, "nothing"), "turn"])
@example(steps=[*FILED, *["minutes"] * 5, *HOUR_PASSES, ("cut", 0, "nothing")])
@settings(max_examples=settings().max_examples // 4)
def test_what_is_acked_while_syncs_are_held_outlives_a_power_cut(steps: list[Step]) -> None:
    tell(steps)


@given(steps=STEPS)
@settings(max_examples=2_000)
def test_the_same_at_length(steps: list[Step], pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--exhaustive"):
        pytest.skip("takes half an hour: --exhaustive")
    tell(steps)


def tell(steps: list[Step]) -> None:
    async def story() -> None:
        async with lives(folder) as world, trio.open_nursery() as nursery:
            await HeldStory(world, nursery).tell_steps(steps)

    logging.disable(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as name:
        folder = Path(name)
        use_one_thread(patch)
        use_small_merges(patch)
        try:
            run(story)
        finally:
            logging.disable(logging.NOTSET)
