"""A member that goes with thousands of single messages gives them back in parts, and the outcome is the
same as if it had gone in one step."""

from __future__ import annotations

import pytest

from kumquat.core.delivery import actions
from kumquat.gateway.groups.membership import members
from kumquat.gateway.groups.membership.members import LEASES_AT_ONCE
from kumquat.gateway.groups.tests.checked import stored
from kumquat.gateway.groups.tests.clients import Classic, Client, Modern
from kumquat.gateway.groups.tests.simulation import GROUP, SESSION_MS, Simulation
from kumquat.gateway.groups.tests.test_classic import live

KINDS = pytest.mark.parametrize("kind", [Classic, Modern])
HELD = 3 * LEASES_AT_ONCE + 7


def fragmented(kind: type[Client], *, commits: bool) -> tuple[Simulation, Client]:
    """A member that holds every second message of two topics; one topic more than the other."""
    world = Simulation("t", "u", mode="shared")
    client = kind(world, "0", ["t", "u"])
    live(world, client, seconds=3)
    world.produce("t", 4 * HELD)
    world.produce("u", 40)
    group = world.groups.by_name[GROUP]
    for name, count in (("t", HELD), ("u", 10)):
        subject_id = world.subjects.by_name[name].id
        (log,) = group.progress[subject_id].pull_logs.values()
        ranges = [[2 * n, 1, 1 + n % 3] for n in range(count)]
        world.append([actions.Pull(group.id, subject_id, log.slot, log.next, ranges)])
    if commits:
        presence = world.coordinator.decisions._members.rosters[group.id].presences[
            client.member_id
        ]
        presence.commits.update(
            dict.fromkeys(group.members[client.member_id].holds, world.now_ms())
        )
    world.now += 0.05
    return world, client


def leave(world: Simulation, client: Client) -> int:
    """As the shell does it, slowly; in how many parts."""
    parts = 0
    while world.coordinator.relieve(GROUP, client.member_id, None, False, world.now):
        parts += 1
        world.now += 0.2
    client.leave()
    return parts


def expire(world: Simulation) -> int:
    world.now += SESSION_MS / 1000 + 1
    frames = world.frames
    while world.groups.by_name[GROUP].members:
        world.coordinator.tick(world.now)
    return world.frames - frames


def outcome(world: Simulation) -> list[tuple[list[object], list[object]]]:
    """What is to be delivered again, and as which attempt; when is left to the clock."""
    group = world.groups.by_name[GROUP]
    assert not group.members
    return [
        (
            [tuple(each[:3]) for each in progress.redelivery],
            [tuple(wait[:3]) for wait in progress.waiting],
        )
        for progress in group.progress.values()
    ]


def largest(world: Simulation) -> int:
    return max(len(each.ranges) for each in world.log if isinstance(each, actions.Retry))


@KINDS
@pytest.mark.parametrize("commits", [False, True])
def test_a_leave_in_parts_comes_to_what_a_leave_in_one_step_does(
    kind: type[Client], commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, client = fragmented(kind, commits=commits)
    assert leave(world, client) == 3
    assert largest(world) <= LEASES_AT_ONCE
    monkeypatch.setattr(members, "LEASES_AT_ONCE", 10 * HELD)
    whole, alike = fragmented(kind, commits=commits)
    assert leave(whole, alike) == 0
    assert outcome(world) == outcome(whole)


@KINDS
def test_a_session_that_ends_does_so_in_parts(
    kind: type[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = fragmented(kind, commits=False)
    assert expire(world) >= 4
    assert largest(world) <= LEASES_AT_ONCE
    monkeypatch.setattr(members, "LEASES_AT_ONCE", 10 * HELD)
    whole, _ = fragmented(kind, commits=False)
    expire(whole)
    assert outcome(world) == outcome(whole)


@KINDS
def test_who_is_heard_between_two_parts_stays_with_what_it_still_holds(kind: type[Client]) -> None:
    world, client = fragmented(kind, commits=False)
    world.now += SESSION_MS / 1000 + 1
    group, subject_id = world.groups.by_name[GROUP], world.subjects.by_name["t"].id
    while group.progress[subject_id].leased == HELD:
        world.coordinator.tick(world.now)
    client.next_beat = 0.0
    client.step()
    while world.coordinator.deadlines.next <= world.now:
        world.coordinator.tick(world.now)
    assert client.member_id in group.members
    assert group.progress[subject_id].leased == HELD - LEASES_AT_ONCE
    assert group.progress[subject_id].waiting.total == LEASES_AT_ONCE
    world.check()


@KINDS
def test_a_restart_between_two_parts_loses_no_message(kind: type[Client]) -> None:
    world, client = fragmented(kind, commits=False)
    assert world.coordinator.relieve(GROUP, client.member_id, None, False, world.now)
    subject_id = world.subjects.by_name["t"].id
    unacked = world.groups.by_name[GROUP].progress[subject_id].unacked
    world.restart()
    assert client.member_id in world.groups.by_name[GROUP].members
    assert world.groups.by_name[GROUP].progress[subject_id].unacked == unacked
    world.pass_time(SESSION_MS / 1000 + 1)
    assert not world.groups.by_name[GROUP].members
    assert world.groups.by_name[GROUP].progress[subject_id].retries == unacked
    world.check()


@KINDS
def test_a_leave_that_will_be_refused_takes_nothing_from_anybody(kind: type[Client]) -> None:
    world, client = fragmented(kind, commits=False)
    before = stored(world.groups)
    for group, member, instance, share in (
        ("other", client.member_id, None, False),
        (GROUP, "nobody", None, False),
        (GROUP, client.member_id, "nobody", False),
        (GROUP, "", "nobody", False),
        (GROUP, client.member_id, None, True),
    ):
        assert not world.coordinator.relieve(group, member, instance, share, world.now)
    assert stored(world.groups) == before
