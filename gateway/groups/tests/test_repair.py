"""A group whose stored state does not fit together, after damage to the log, is served all the same."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from kumquat.core.delivery import actions
from kumquat.gateway.groups.tests.clients import Classic
from kumquat.gateway.groups.tests.simulation import GROUP, Simulation
from kumquat.gateway.groups.tests.test_classic import holds, live


def damaged(world: Simulation, *lost: type[actions.Action]) -> None:
    """Start again with all actions of these kinds lost."""
    world.log = [action for action in world.log if type(action) not in lost]
    world.restart()
    world.check()


@pytest.fixture
def world() -> Simulation:
    world = Simulation("t", "u", mode="shared")
    world.produce("t", 20)
    return world


def everything_is_handled(world: Simulation, *clients: Classic) -> None:
    for client in clients:
        client.broker_restarted()
    live(world, *clients, seconds=30, reads=3)
    assert not [n for n in range(20) if not world.handled["t"][n]]
    world.check()


def test_a_lost_pull_log_is_given_again(
    world: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    client = Classic(world, "c", ["t"])
    live(world, client, seconds=2, reads=3)
    damaged(world, actions.Slot, actions.Pull, actions.Ack)
    assert "does not fit together" in caplog.text
    everything_is_handled(world, client)
    assert holds(world, client) == "pull"


def test_a_pull_log_that_nobody_holds_is_released(world: Simulation) -> None:
    client = Classic(world, "c", ["t"])
    live(world, client, seconds=2, reads=3)
    damaged(world, actions.Member)
    progress = world.groups.by_name[GROUP].progress[1]
    assert not progress.pull_logs
    assert len(progress.redelivery)
    everything_is_handled(world, Classic(world, "d", ["t"]))


def test_plain_offsets_of_a_shared_subject_are_taken_away(world: Simulation) -> None:
    client, other = Classic(world, "c", ["t"]), Classic(world, "d", ["t"])
    live(world, client, other, seconds=2, reads=1)
    group = world.groups.by_name[GROUP]
    member = group.members[client.member_id]
    stored = asdict(replace(member, holds={1: 0}))
    world.log += [
        actions.Release(group.id, 1, member.holds[1]),
        actions.Member(group.id, stored),
    ]
    damaged(world)
    client.positions["t"] = None
    everything_is_handled(world, client, other)


def test_a_subject_that_was_deleted_while_nobody_looked_is_forgotten(world: Simulation) -> None:
    client = Classic(world, "c", ["t", "u"])
    live(world, client, seconds=2, reads=1)
    world.subjects.remove(world.subjects.by_name["u"])
    damaged(world)
    group = world.groups.by_name[GROUP]
    assert set(group.progress) == {1}
    assert set(group.members[client.member_id].holds) == {1}
