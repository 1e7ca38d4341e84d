"""Retries that wait while a group goes back to plain offsets: nothing comes early, again, or never."""

from __future__ import annotations

import pytest

from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.waiting import Wait
from kumquat.gateway.groups.failures import Failure
from kumquat.gateway.groups.tests.clients import Classic, Client, Modern
from kumquat.gateway.groups.tests.simulation import GROUP, Simulation
from kumquat.gateway.groups.tests.test_classic import holds, live

LATER = 150.0
RETRIED = 3


def retrying(kind: str = "range", checked: bool = True) -> tuple[Simulation, Client]:
    """A lone member has read and committed ten messages, and asked for one of them again, later."""
    world = Simulation("t", checked=checked)
    world.produce("t", 10)
    member = client(world, "member", kind)
    live(world, member, seconds=2, reads=RETRIED)
    failure = Failure(GROUP, "t", RETRIED, after_ms=int(LATER * 1000))
    world.coordinator.fail(failure, world.now)
    world.handled["t"][RETRIED] = 0
    read_on(world, member)
    assert holds(world, member) == "pull"
    (wait,) = progress_of(world).waiting
    assert wait[:3] == (RETRIED, 1, 2)
    assert progress_of(world).leased == 0
    return world, member


def client(world: Simulation, name: str, kind: str) -> Client:
    if kind == "consumer":
        return Modern(world, name, ["t"])
    if kind == "stranger":
        return Classic(world, name, ["t"], software="other")
    return Classic(world, name, ["t"], protocol=kind, keeps=kind == "range")


def read_on(world: Simulation, *clients: Client, seconds: float = 40.0) -> None:
    """Everybody reads and commits."""
    for _ in range(int(seconds)):
        live(world, *clients, seconds=1, reads=5)
        for each in clients:
            each.commit()
        world.check()


def progress_of(world: Simulation) -> Progress:
    return world.groups.by_name[GROUP].progress[1]


def waits(world: Simulation) -> list[Wait]:
    return list(progress_of(world).waiting)


def restart(world: Simulation, *clients: Client) -> None:
    world.restart()
    for each in clients:
        each.broker_restarted()


def handled(world: Simulation) -> dict[int, int]:
    return {n: times for n, times in sorted(world.handled["t"].items()) if times}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_member_that_cannot_share_gets_nothing_again_and_no_retry_early(restarts: bool) -> None:
    world, member = retrying()
    before = waits(world)
    member.leave()
    stranger = client(world, "stranger", "stranger")
    if restarts:
        live(world, stranger, seconds=1)
        restart(world, stranger)
    world.produce("t", 5)
    read_on(world, stranger)
    assert holds(world, stranger) == "plain"
    assert handled(world) == dict.fromkeys(set(range(15)) - {RETRIED}, 1)
    assert waits(world) == before, "the attempt and the time stay"
    read_on(world, stranger, seconds=LATER)
    assert handled(world) == dict.fromkeys(set(range(15)) - {RETRIED}, 1)
    sharer = client(world, "sharer", "range")
    read_on(world, stranger, sharer)
    assert handled(world) == dict.fromkeys(range(15), 1), "then one comes that can take it"
    assert not progress_of(world).retries


@pytest.mark.parametrize("kind", ["range", "cooperative-sticky", "consumer"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_that_becomes_exclusive_reads_on_and_gets_its_retry_in_time(
    kind: str, restarts: bool
) -> None:
    world, member = retrying(kind)
    before = waits(world)
    world.set_mode("exclusive")
    world.produce("t", 5)
    read_on(world, member)
    if restarts:
        restart(world, member)
    assert holds(world, member) == "plain"
    assert handled(world) == dict.fromkeys(set(range(15)) - {RETRIED}, 1)
    assert waits(world) == before
    due = before[0].due / 1000
    read_on(world, member, seconds=due - world.now - 1)
    assert holds(world, member) == "plain"
    assert not world.handled["t"][RETRIED], "it is early"
    read_on(world, member)
    assert handled(world) == dict.fromkeys(range(15), 1)
    assert holds(world, member) == "plain"
    assert not progress_of(world).retries
    world.produce("t", 5)
    read_on(world, member)
    assert handled(world) == dict.fromkeys(range(20), 1)


def test_an_exclusive_group_that_is_set_back_shares_its_retry_at_its_time() -> None:
    world, member = retrying()
    before = waits(world)
    world.set_mode("exclusive")
    read_on(world, member)
    world.set_mode("auto")
    world.produce("t", 5)
    read_on(world, member)
    assert holds(world, member) == "pull"
    assert waits(world) == before
    read_on(world, member, seconds=LATER)
    assert handled(world) == dict.fromkeys(range(15), 1)


def test_an_owner_that_does_not_ack_a_retry_gets_fresh_messages_all_the_same() -> None:
    world, member = retrying()
    world.set_mode("exclusive")
    read_on(world, member)
    due = waits(world)[0].due / 1000
    read_on(world, member, seconds=due - world.now - 1)
    world.produce("t", 5)
    committed, member.commits = progress_of(world).position, False
    live(world, member, seconds=60, reads=5)
    assert world.handled["t"][RETRIED]
    assert set(range(10, 15)) <= handled(world).keys()
    assert progress_of(world).retries + progress_of(world).leased == 1
    assert committed == 10
    member.commits = True
    read_on(world, member, seconds=120)
    assert not progress_of(world).retries + progress_of(world).leased
    assert progress_of(world).lowest_unacked() == 15


def test_a_group_of_both_gives_a_due_retry_to_the_member_that_can_share() -> None:
    world, member = retrying()
    stranger = client(world, "stranger", "stranger")
    world.produce("t", 5)
    read_on(world, member, stranger, seconds=60)
    assert sorted([holds(world, member), holds(world, stranger)]) == ["none", "plain"]
    assert handled(world) == dict.fromkeys(set(range(15)) - {RETRIED}, 1)
    due = waits(world)[0].due / 1000
    read_on(world, member, stranger, seconds=due - world.now - 1)
    assert not world.handled["t"][RETRIED], "it is early"
    read_on(world, member, stranger, seconds=60)
    assert handled(world) == dict.fromkeys(range(15), 1)
    assert sorted([holds(world, member), holds(world, stranger)]) == ["none", "plain"]
