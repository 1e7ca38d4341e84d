"""An operator who looks at many groups, or at one with many subjects, holds up everybody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from kumquat.core.delivery import actions
from kumquat.gateway.admin.routes import answer
from kumquat.gateway.tests.harness import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = 20_000
SUBJECTS = 3_000


async def turns_of_others(broker: Any, path: str, **values: object) -> tuple[int, dict[str, Any]]:
    """How often another task had its turn while this was answered, and the answer."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        answered = await answer(broker, "GET", path, values)
        nursery.cancel_scope.cancel()
    return turns, dict(answered.payload)


@pytest.mark.long
def test_others_have_no_turn_while_many_groups_are_listed(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        subject_id = served.broker.log.subjects.by_name["t"].id
        change = served.broker.coordinator.change
        for number in range(1, GROUPS + 1):
            made = actions.Group(number, f"g{number:06}")
            served.broker.sharing.append([made, actions.Commit(number, subject_id, 0, -1, "")])
            if number % 1000 == 0:
                await change([])
        turns, answer = await turns_of_others(served.broker, "/groups", limit=1000)
        assert (len(answer["groups"]), answer["next"]) == (1000, "g001000")
        assert turns >= 5
        turns, answer = await turns_of_others(served.broker, "/groups", after=f"g{GROUPS - 1:06}")
        assert [group["group"] for group in answer["groups"]] == [f"g{GROUPS:06}"]

    serve(check, tmp_path)


@pytest.mark.long
def test_others_have_no_turn_while_a_large_group_is_described(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.broker.coordinator.change([actions.Group(1, "g")])
        for number in range(SUBJECTS):
            await served.create(f"t{number:06}")
        ids = [subject.id for subject in served.broker.log.subjects.by_id.values()]
        await served.broker.coordinator.change(
            [actions.Commit(1, subject_id, 0, -1, "") for subject_id in ids]
        )
        turns, answer = await turns_of_others(
            served.broker, "/groups/describe", group="g", limit=1000
        )
        assert (len(answer["subjects"]), answer["next"]) == (1000, "t000999")
        assert answer["subject_count"] == SUBJECTS
        assert turns >= 3
        turns, answer = await turns_of_others(served.broker, "/groups")
        assert answer["groups"][0]["exclusive"] == SUBJECTS
        assert turns >= 3

    serve(check, tmp_path)
