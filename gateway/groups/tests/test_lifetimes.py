"""Time: offsets and groups that nobody needs go; dead members go, however often the broker restarts."""

from __future__ import annotations

import pytest

from kumquat.gateway.groups.tests.clients import Classic, Client, Modern
from kumquat.gateway.groups.tests.simulation import GROUP, SESSION_MS, Simulation
from kumquat.gateway.groups.tests.test_classic import holds, live
from kumquat.gateway.groups.tests.test_offsets import ask, commit, sharing, stranger
from kumquat.gateway.wire import HeartbeatRequest, JoinGroupRequest, JoinGroupRequestProtocol

DAY = 86_400.0


def expire(world: Simulation) -> int:
    return world.coordinator.expire(list(world.groups.by_id), world.now)


# --- offsets -------------------------------------------------------------------------------------


def test_offsets_of_a_reader_without_a_group_expire_a_week_after_its_last_commit() -> None:
    world = Simulation("t", "u")
    commit(world, 5)
    world.pass_time(6 * DAY)
    commit(world, 5, topic="u")
    assert expire(world) == 0
    world.pass_time(DAY)
    assert expire(world) == 1
    assert ask(world, stranger()).offset == -1
    world.restart()
    world.pass_time(6 * DAY)
    assert expire(world) == 1
    assert not world.groups.by_name


def test_a_reader_that_commits_the_same_position_again_keeps_it() -> None:
    world = Simulation("t")
    commit(world, 5)
    for _ in range(20):
        world.pass_time(DAY)
        commit(world, 5)
        written = len(world.log)
        commit(world, 5)
        assert len(world.log) == written
        assert expire(world) == 0
    assert ask(world, stranger()).offset == 5


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kind", [Classic, Modern])
def test_a_group_keeps_its_offsets_for_a_week_after_its_last_member_left(
    kind: type[Client], restarts: bool
) -> None:
    world = Simulation("t")
    world.produce("t", 10)
    client = kind(world, "0", ["t"])
    live(world, client, seconds=2)
    client.read(5)
    client.commit()
    world.now += 30 * DAY
    client.next_beat = 0.0
    client.step()
    assert expire(world) == 0, "it is read"
    client.leave()
    world.pass_time(6.9 * DAY)
    if restarts:
        world.restart()
    assert expire(world) == 0
    world.pass_time(0.2 * DAY)
    assert expire(world) == 1
    assert not world.groups.by_name


def test_what_a_group_shared_and_left_expires_with_it() -> None:
    world, (client, other) = sharing(Classic, Modern)
    client.read(10)
    other.leave()
    client.leave()
    world.pass_time(8 * DAY)
    assert expire(world) == 1
    again = Classic(world, "again", ["t"])
    live(world, again, seconds=2)
    again.read(100)
    assert world.handled["t"][99] == 1
    world.check()


def test_a_subject_that_no_member_reads_any_more_expires() -> None:
    world = Simulation("t", "u")
    client = Classic(world, "0", ["t", "u"])
    live(world, client, seconds=2)
    commit(world, 1, client.member_id, client.generation, topic="u")
    commit(world, 1, client.member_id, client.generation)
    client.subscribe(["t"])
    live(world, client, seconds=10)
    for _ in range(8):
        world.now += DAY
        client.next_beat = 0.0
        client.step()
    assert expire(world) == 1
    group = world.groups.by_name[GROUP]
    assert list(group.progress) == [world.subjects.by_name["t"].id]


def test_a_group_without_members_and_offsets_goes_after_a_while() -> None:
    world = Simulation("t")
    client = Classic(world, "0", ["t"])
    live(world, client, seconds=2)
    client.leave()
    assert GROUP in world.groups.by_name
    assert expire(world) == 0
    world.pass_time(601)
    assert expire(world) == 1
    assert not world.groups.by_name


# --- sessions ------------------------------------------------------------------------------------


def lead(world: Simulation) -> tuple[str, int]:
    """A member of a group in which a client assigns; its id and generation."""
    from kumquat.gateway.groups.membership.members import Caller
    from kumquat.gateway.groups.membership.roster import Ticket
    from kumquat.gateway.wire import SyncGroupRequest

    caller = Caller("c", "/h", {})
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=1000,
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol("default", b"")],
    )
    ticket = world.coordinator.join(request, caller, world.now, needs_id=False, can_skip=False)
    assert isinstance(ticket, Ticket)
    joined = ticket.answer
    world.coordinator.sync(
        SyncGroupRequest(
            group_id=GROUP, generation_id=joined.generation_id, member_id=joined.leader
        ),
        caller,
        world.now,
    )
    return joined.leader, joined.generation_id


@pytest.mark.parametrize("every", [3.0, 4.5, 9.0])
@pytest.mark.parametrize("kind", [Classic, Modern])
def test_a_dead_member_goes_although_the_broker_restarts_ever_again(
    kind: type[Client], every: float
) -> None:
    world, (dead, healthy) = sharing(kind, kind)
    dead.read(10)
    for _ in range(int(2 * SESSION_MS / 1000 / every) + 2):
        world.restart()
        healthy.broker_restarted()
        live(world, healthy, seconds=every, reads=1)
    members = world.groups.by_name[GROUP].members
    assert dead.member_id not in members
    assert holds(world, healthy) == "pull"
    live(world, healthy, seconds=5, reads=20)
    assert set(range(10)) <= set(world.handled["t"]), "what it had leased went to the other"
    assert not world.groups.silent


def test_a_dead_member_of_connect_goes_although_the_broker_restarts_ever_again() -> None:
    world = Simulation()
    lead(world)
    for _ in range(8):
        world.restart()
        world.pass_time(3)
    assert not world.groups.by_name[GROUP].members


@pytest.mark.parametrize("kind", [Classic, Modern])
def test_a_member_that_is_heard_now_and_then_outlives_any_number_of_restarts(
    kind: type[Client],
) -> None:
    world, (client,) = sharing(kind)
    for _ in range(30):
        world.restart()
        client.broker_restarted()
        world.pass_time(1.7)
        client.next_beat = 0.0
        client.step()
        world.pass_time(0.2)
    assert client.member_id in world.groups.by_name[GROUP].members
    assert not world.groups.silent


def test_an_outage_does_not_count_as_silence() -> None:
    world, (client,) = sharing(Classic)
    for _ in range(5):
        world.now += DAY
        world.restart()
        client.broker_restarted()
        world.pass_time(SESSION_MS / 1000 - 1.5)
        client.next_beat = 0.0
        client.step()
        assert isinstance(client, Classic)
        assert client.state == "in"
    answer = world.coordinator.heartbeat(
        HeartbeatRequest(
            group_id=GROUP, generation_id=client.generation, member_id=client.member_id
        ),
        client.caller,
        world.now,
    )
    assert answer.error_code == 0


def test_a_broker_that_stood_still_does_not_blame_its_members() -> None:
    world, (client,) = sharing(Classic)
    world.restart()
    world.now += 8.0
    world.coordinator.tick(world.now)
    assert list(world.groups.silent.values()) == [2000]
    assert client.member_id in world.groups.by_name[GROUP].members
