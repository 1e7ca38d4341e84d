"""Sessions that end together end one by one. Between two of them others come, go and are heard, and each
finds the group as Kafka would have it: who is heard before its session was ended has kept it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.gateway.groups.tests.clients import Classic, Client, Modern
from kumquat.gateway.groups.tests.simulation import GROUP, SESSION_MS, Simulation
from kumquat.gateway.groups.tests.test_classic import live
from kumquat.gateway.groups.tests.test_service import join
from kumquat.gateway.net import turns
from kumquat.gateway.tests.harness import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.core.delivery.state import Progress

KINDS = pytest.mark.parametrize("kind", [Classic, Modern])
MEMBERS = 6


def silent(kind: type[Client], *, checked: bool = True) -> tuple[Simulation, list[Client]]:
    """A group that shares, all members of which have just outlived their sessions after a restart. None
    of these ends is seen to yet."""
    world = Simulation("t", mode="shared", checked=checked)
    world.produce("t", 100)
    clients: list[Client] = [kind(world, str(number), ["t"]) for number in range(MEMBERS)]
    live(world, *clients, seconds=20)
    for client in clients:
        client.read(5)
    world.restart()
    for client in clients:
        client.broker_restarted()
    world.now += SESSION_MS / 1000 + 1
    return world, clients


def members(world: Simulation) -> set[str]:
    world.check()
    return set(world.groups.by_name[GROUP].members)


def progress(world: Simulation) -> Progress:
    return world.groups.by_name[GROUP].progress[world.subjects.by_name["t"].id]


def end_one(world: Simulation) -> str:
    """Have one session end; whose it was."""
    before = members(world)
    while members(world) == before:
        assert world.coordinator.deadlines.next <= world.now
        world.coordinator.tick(world.now)
    (gone,) = before - members(world)
    return gone


def end_all(world: Simulation) -> None:
    while world.coordinator.deadlines.next <= world.now:
        world.coordinator.tick(world.now)


@KINDS
def test_a_step_ends_one_session_with_one_write(kind: type[Client]) -> None:
    world, clients = silent(kind)
    gone = set()
    for left in reversed(range(MEMBERS)):
        frames = world.frames
        before = members(world)
        while members(world) == before:
            frames = world.frames
            world.coordinator.tick(world.now)
        assert world.frames == frames + 1
        assert len(members(world)) == left
        gone |= before - members(world)
    assert gone == {client.member_id for client in clients}
    assert (progress(world).retries, progress(world).leased) == (5 * MEMBERS, 0)


@KINDS
def test_who_is_heard_between_two_ends_keeps_its_session(kind: type[Client]) -> None:
    world, clients = silent(kind)
    gone = end_one(world)
    heard = next(client for client in clients if client.member_id != gone)
    heard.next_beat = 0.0
    heard.step()
    end_all(world)
    assert members(world) == {heard.member_id}


@KINDS
def test_a_commit_between_two_ends_counts(kind: type[Client]) -> None:
    world, clients = silent(kind)
    gone = end_one(world)
    committing = next(client for client in clients if client.member_id != gone)
    before = progress(world).unacked
    committing.commit()
    assert progress(world).unacked == before - 5
    end_all(world)
    # As in Kafka, a commit is a sign of life of classic members alone.
    assert (committing.member_id in members(world)) == (kind is Classic)


@KINDS
def test_who_joins_between_two_ends_stays_and_gets_what_the_others_held(kind: type[Client]) -> None:
    world, _ = silent(kind)
    end_one(world)
    late = kind(world, "late", ["t"])
    live(world, late, seconds=30)
    assert members(world) == {late.member_id}
    for _ in range(300):
        late.read(5)
        late.commit()
        world.pass_time(0.1)
        late.step()
    assert set(world.handled["t"]) == set(range(100))


@KINDS
def test_who_leaves_between_two_ends_is_gone_once(kind: type[Client]) -> None:
    world, clients = silent(kind)
    gone = end_one(world)
    leaving = next(client for client in clients if client.member_id != gone)
    leaving_id = leaving.member_id
    leaving.leave()
    assert leaving_id not in members(world)
    end_all(world)
    assert not members(world)
    assert progress(world).leased == 0


@KINDS
def test_a_restart_between_two_ends_forgets_none_and_ends_the_others_later(
    kind: type[Client],
) -> None:
    world, clients = silent(kind)
    gone = end_one(world)
    world.restart()
    assert members(world) == {client.member_id for client in clients} - {gone}
    world.pass_time(SESSION_MS / 1000 + 1)
    assert not members(world)
    assert progress(world).retries == 5 * MEMBERS


@KINDS
def test_a_full_disk_between_two_ends_delays_the_others_and_no_more(kind: type[Client]) -> None:
    world, clients = silent(kind, checked=False)
    gone = end_one(world)
    stay = {client.member_id for client in clients} - {gone}
    world.disk_is_full = True
    end_all(world)
    assert members(world) == stay
    world.disk_is_full = False
    world.pass_time(2.0)
    assert not members(world)


class Steps(trio.abc.Instrument):
    """How many sessions each step of a task has ended."""

    def __init__(self, served: Served) -> None:
        self._groups = served.broker.coordinator.groups
        self._before = 0
        self.ended: list[int] = []

    def _members(self) -> int:
        return sum(len(group.members) for group in self._groups.by_id.values())

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = self._members()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._before > self._members():
            self.ended.append(self._before - self._members())


def test_a_running_broker_gives_way_between_sessions_that_end_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", -1.0)

    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            for number in range(20):
                await join(client, group=f"g{number}")
            steps = Steps(served)
            trio.lowlevel.add_instrument(steps)
            for _ in range(10):
                served.clock.jump(1.5)
                await served.settled()
            trio.lowlevel.remove_instrument(steps)
            assert steps.ended == [1] * 20

    serve(check, tmp_path)
