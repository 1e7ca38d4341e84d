"""Classic members of served groups: how a subject passes from one to another, and what is refused."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from kumquat.core.errors import StorageError
from kumquat.gateway.groups.membership.roster import Step
from kumquat.gateway.groups.tests.clients import Classic, Client, Modern
from kumquat.gateway.groups.tests.simulation import (
    GROUP,
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    Simulation,
)
from kumquat.gateway.groups.tests.test_refusals import assigned, beat, join_static
from kumquat.gateway.wire import (
    HeartbeatRequest,
)
from kumquat.gateway.wire.codes import ErrorCode


def live(world: Simulation, *clients: Client, seconds: float = 8.0, reads: int = 0) -> None:
    """Let these do what they do."""
    for _ in range(int(seconds * 2)):
        for client in clients:
            client.step()
            if reads:
                client.read(reads)
        world.pass_time(0.5)


def holds(world: Simulation, client: Client, topic: str = "t") -> str:
    member = world.groups.by_name[GROUP].members[client.member_id]
    slot = member.holds.get(world.subjects.by_name[topic].id)
    return "none" if slot is None else "pull" if slot else "plain"


def step_of(world: Simulation, topic: str = "t") -> Step | None:
    return world.coordinator.step(world.groups.by_name[GROUP], world.subjects.by_name[topic].id)


def owner_and_joiner(protocol: str = "range", **how: Any) -> tuple[Simulation, Classic, Classic]:
    """One has read and committed; another is about to come."""
    world = Simulation("t", checked=True)
    world.produce("t", 100)
    owner = Classic(world, "owner", ["t"], protocol=protocol, **how)
    live(world, owner, seconds=2, reads=1)
    owner.commit()
    assert holds(world, owner) == "plain"
    return world, owner, Classic(world, "joiner", ["t"])


def test_nothing_is_shared_before_the_owner_has_let_go() -> None:
    world, owner, joiner = owner_and_joiner()
    live(world, joiner, seconds=2)
    assert joiner.state == "joining", "it is held"
    assert step_of(world) is Step.OPENING
    owner.read(3)
    at = owner.positions["t"]
    owner.next_beat = 0.0
    owner.step()  # the heartbeat says so; it commits and joins
    progress = next(iter(world.groups.by_name[GROUP].progress.values()))
    assert (progress.shared, progress.cursor) == (True, at)
    joiner.step()
    joiner.step()
    assert holds(world, joiner) == "pull"


def test_an_eager_owner_must_see_an_assignment_without_the_subject() -> None:
    world, owner, joiner = owner_and_joiner(keeps=True)
    live(world, owner, joiner, seconds=1)
    owner.next_beat = 0.0
    owner.step()
    owner.step()
    assert owner.state == "in"
    assert not owner.positions
    assert holds(world, owner) == "none"
    live(world, owner, joiner, seconds=4)
    assert (holds(world, owner), holds(world, joiner)) == ("pull", "pull")


def test_an_assignment_that_was_lost_on_the_way_was_not_seen() -> None:
    world, owner, joiner = owner_and_joiner(keeps=True)
    live(world, joiner, seconds=1)
    owner.next_beat = 0.0
    owner.step()
    assert owner.kept == {"t": owner.kept["t"]}
    owner.loses = True
    owner.step()  # the SyncGroup whose answer is lost
    owner.step()  # it joins again
    owner.step()
    assert holds(world, owner) == "none", "it still remembers where it was"
    live(world, owner, joiner, seconds=8, reads=1)
    assert holds(world, owner) == "pull"


def test_a_client_that_forgets_positions_goes_on_at_once() -> None:
    world, owner, joiner = owner_and_joiner(software="librdkafka")
    live(world, joiner, seconds=1)
    owner.next_beat = 0.0
    owner.step()
    owner.step()
    assert holds(world, owner) == "pull"
    owner.read(1)


def test_a_cooperative_owner_commits_in_the_new_generation_before_it_lets_go() -> None:
    world, owner, joiner = owner_and_joiner(protocol="cooperative-sticky")
    live(world, joiner, seconds=1)
    owner.read(5)
    at = owner.positions["t"]
    generation = owner.generation
    owner.next_beat = 0.0
    owner.step()  # heartbeat, JoinGroup
    owner.step()  # SyncGroup without it; it commits what it read
    assert owner.generation > generation
    assert holds(world, owner) == "plain"
    assert step_of(world) is Step.OPENING
    owner.step()  # the JoinGroup that confirms
    progress = next(iter(world.groups.by_name[GROUP].progress.values()))
    assert (progress.shared, progress.cursor) == (True, at)
    owner.step()
    assert holds(world, owner) == "pull"


def test_a_cooperative_member_that_still_claims_the_subject_has_not_let_go() -> None:
    world, owner, joiner = owner_and_joiner(protocol="cooperative-sticky")
    live(world, joiner, seconds=1)
    owner.next_beat = 0.0
    owner.step()
    owner.loses = True
    owner.step()  # the SyncGroup without it is lost
    owner.step()  # so it joins again, and owns what it owned
    assert holds(world, owner) == "plain"
    live(world, owner, joiner, seconds=6, reads=1)
    assert (holds(world, owner), holds(world, joiner)) == ("pull", "pull")


def test_a_joiner_is_not_held_for_ever() -> None:
    world, owner, joiner = owner_and_joiner()
    joiner.rebalance_ms = 5_000
    live(world, joiner, seconds=1)
    for _ in range(5):
        assert joiner.state == "joining"
        world.pass_time(1.0)
        world.coordinator.heartbeat(
            HeartbeatRequest(
                group_id=GROUP, generation_id=owner.generation, member_id=owner.member_id
            ),
            owner.caller,
            world.now,
        )
    joiner.step()
    joiner.step()
    assert joiner.state == "in"
    assert holds(world, joiner) == "none"


def test_an_owner_that_does_not_rejoin_in_time_is_gone() -> None:
    world, owner, joiner = owner_and_joiner()
    live(world, joiner, seconds=1)
    request = HeartbeatRequest(
        group_id=GROUP, generation_id=owner.generation, member_id=owner.member_id
    )
    for _ in range(REBALANCE_MS // 1000 + 1):
        answer = owner.call(request, "heartbeat")
        world.pass_time(1.0)
        live(world, joiner, seconds=0.5)
    answer = owner.call(request, "heartbeat")
    assert answer is ErrorCode.UNKNOWN_MEMBER_ID
    live(world, joiner, seconds=4)
    assert holds(world, joiner) == "plain", "it is alone"


def test_a_join_and_a_leave_disturb_nobody_who_shares() -> None:
    world = Simulation("t", mode="shared")
    members = [Classic(world, str(n), ["t"]) for n in range(3)]
    live(world, *members, reads=1)
    before = [member.generation for member in members]
    late = Modern(world, "late", ["t"])
    live(world, *members, late, reads=1)
    late.leave()
    gone = Classic(world, "gone", ["t"])
    live(world, *members, gone, reads=1)
    live(world, *members, seconds=30, reads=1)
    assert [member.generation for member in members] == before
    assert gone.member_id not in world.groups.by_name[GROUP].members


def test_what_a_silent_member_had_goes_to_others_with_its_attempt_counted() -> None:
    world = Simulation("t", mode="shared")
    world.produce("t", 10)
    silent, other = Classic(world, "silent", ["t"]), Classic(world, "other", ["t"])
    live(world, silent, other, seconds=2)
    silent.read(5)
    live(world, other, seconds=SESSION_MS / 1000 + 1)
    progress = next(iter(world.groups.by_name[GROUP].progress.values()))
    assert [(wait.first, wait.size, wait.attempt) for wait in progress.waiting] == [(0, 5, 2)]
    world.pass_time(1.0)
    other.read(5)
    assert world.handled["t"][0] == 2


def test_a_silent_static_member_keeps_its_place_until_it_comes_back() -> None:
    world = Simulation("t", "u", mode="exclusive")
    first = join_static(world, instance="one", topics=["t", "u"])
    assert assigned(world, first) == ["t", "u"]
    again = join_static(world, instance="one", topics=["t", "u"])
    assert again.member_id != first.member_id
    assert assigned(world, again) == ["t", "u"]
    assert beat(world, first, instance="one") == ErrorCode.FENCED_INSTANCE_ID
    assert beat(world, again, instance="one") == 0
    assert beat(world, again, instance="nobody") == ErrorCode.UNKNOWN_MEMBER_ID


def test_owned_subjects_are_spread_over_the_members() -> None:
    topics = [f"t{n}" for n in range(6)]
    world = Simulation(*topics, mode="exclusive")
    first, second = Classic(world, "1", topics), Classic(world, "2", topics, protocol="sticky")
    third = Modern(world, "3", topics)
    live(world, first, reads=1)
    assert len(first.positions) == 6
    live(world, first, second, seconds=15, reads=1)
    live(world, first, second, third, seconds=30, reads=1)
    assert sorted(len(client.positions) for client in (first, second, third)) == [2, 2, 2]
    assert len({t for c in (first, second, third) for t in c.positions}) == 6
    second.leave()
    live(world, first, third, seconds=15, reads=1)
    assert sorted(len(client.positions) for client in (first, third)) == [3, 3]


def test_a_group_that_never_commits_stays_with_its_owner_and_is_asked_once() -> None:
    world = Simulation("t", checked=True)
    owner, other = Classic(world, "owner", ["t"], keeps=True), Classic(world, "other", ["t"])
    owner.commit = lambda: None  # type: ignore[method-assign]
    live(world, owner, seconds=2, reads=1)
    live(world, owner, other, seconds=10, reads=1)
    generation = owner.generation
    live(world, owner, other, seconds=60, reads=1)
    assert (holds(world, owner), holds(world, other)) == ("plain", "none")
    assert owner.generation == generation
    other.leave()
    third = Modern(world, "third", ["t"])
    live(world, owner, third, seconds=10, reads=1)
    assert holds(world, owner) == "plain"


def test_an_owner_that_has_not_committed_yet_is_asked_to_when_the_second_comes() -> None:
    world = Simulation("t", checked=True)
    world.produce("t", 50)
    owner, other = Classic(world, "owner", ["t"]), Classic(world, "other", ["t"])
    live(world, owner, seconds=2, reads=1)
    live(world, owner, other, seconds=8, reads=1)
    assert (holds(world, owner), holds(world, other)) == ("pull", "pull")
    assert max(world.handled["t"].values()) == 1


@pytest.mark.parametrize("how", ["left", "died"])
def test_a_joiner_is_not_held_for_an_owner_that_is_gone(how: str) -> None:
    """In a group that has no commits the owner is asked to rejoin, and the joiner waits for it."""
    world = Simulation("t", checked=True)
    world.produce("t", 10)
    owner, joiner = Classic(world, "owner", ["t"]), Classic(world, "joiner", ["t"])
    owner.commit = lambda: None  # type: ignore[method-assign]
    live(world, owner, seconds=2, reads=1)
    live(world, joiner, seconds=1)
    assert joiner.state == "joining"
    if how == "left":
        owner.leave()
    else:
        world.pass_time(SESSION_MS / 1000)
    assert owner.member_id not in world.groups.by_name[GROUP].members
    joiner.step()
    joiner.step()
    assert holds(world, joiner) == "plain"


def test_one_that_is_left_reads_in_order_again_when_all_is_acked() -> None:
    world, owner, joiner = owner_and_joiner()
    live(world, owner, joiner, reads=1)
    joiner.leave()
    live(world, owner, seconds=19, reads=1)
    assert holds(world, owner) == "pull"
    for _ in range(20):
        owner.commit()
        live(world, owner, seconds=1, reads=1)
    assert holds(world, owner) == "plain"
    assert not world.groups.by_name[GROUP].progress[1].shared


def test_one_that_does_not_ack_goes_on_sharing() -> None:
    world, owner, joiner = owner_and_joiner()
    live(world, owner, joiner, reads=1)
    joiner.leave()
    live(world, owner, seconds=22, reads=1)
    assert step_of(world) is Step.DRAINING
    live(world, owner, seconds=15, reads=1)
    assert step_of(world) is Step.SHARING
    assert holds(world, owner) == "pull"


def test_an_empty_group_with_unacked_messages_stays_shared() -> None:
    world = Simulation("t", mode="auto")
    world.produce("t", 10)
    first, second = Classic(world, "1", ["t"]), Classic(world, "2", ["t"])
    live(world, first, seconds=1, reads=1)
    first.commit()
    live(world, first, second, seconds=8, reads=1)
    live(world, seconds=SESSION_MS / 1000 + 100)
    group = world.groups.by_name[GROUP]
    assert not group.members
    assert group.progress[1].shared
    last = Classic(world, "last", ["t"])
    live(world, last, seconds=2)
    last.read(1)
    assert (last.positions["t"] or 0) >> 48, "its very first position is a pull offset"
    live(world, last, seconds=5, reads=5)
    missing = [n for n in range(10) if not world.handled["t"][n]]
    assert not missing


def test_an_empty_group_with_all_acked_begins_in_order() -> None:
    world, owner, joiner = owner_and_joiner()
    live(world, owner, joiner, reads=1)
    owner.leave()
    joiner.leave()
    live(world, seconds=21)
    assert not world.groups.by_name[GROUP].progress[1].shared


def test_a_pull_log_that_is_never_asked_for_is_given_again() -> None:
    world = Simulation("t", mode="shared")
    member = Classic(world, "m", ["t"])
    live(world, member, seconds=2)
    subject_id = world.subjects.by_name["t"].id

    def slot() -> int | None:
        return world.groups.by_name[GROUP].members[member.member_id].holds.get(subject_id)

    first = slot()
    assert first
    live(world, member, seconds=18)  # it never reads
    asked = slot()
    assert asked != first
    assert asked
    member.read(1)
    live(world, member, seconds=60)
    assert slot() == asked


def test_a_subject_that_is_made_or_deleted_is_told() -> None:
    world = Simulation("t", mode="exclusive")
    member, modern = Classic(world, "m", ["t", "later"]), Modern(world, "n", ["later"])
    live(world, member, modern)
    assert set(member.positions) == {"t"}
    world.create("later")
    live(world, member, modern)
    assert (set(member.positions) | set(modern.positions)) == {"t", "later"}
    world.delete("t")
    live(world, member, modern)
    assert "t" not in member.positions
    assert set(member.positions) | set(modern.positions) == {"later"}
    world.check()


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_topics_that_changed_while_the_disk_was_full_reach_their_groups_later(
    protocol: str,
) -> None:
    world = Simulation("t", "u", mode="shared")
    member = Classic(world, "m", ["t", "u", "later"], protocol=protocol)
    live(world, member, reads=1)
    deleted = world.subjects.by_name["t"].id
    world.disk_is_full = True
    with pytest.raises(StorageError):
        world.delete("t")
    with pytest.raises(StorageError):
        world.create("later")
    world.pass_time(3)
    world.disk_is_full = False
    world.pass_time(3)
    assert deleted not in world.groups.by_name[GROUP].progress
    live(world, member, seconds=12, reads=1)
    assert set(member.positions) == {"u", "later"}
    world.check()


def test_a_joiner_is_not_held_for_a_subject_that_is_deleted() -> None:
    world = Simulation("t", "u", mode="exclusive", checked=True)
    owner, joiner = Classic(world, "owner", ["t", "u"]), Classic(world, "joiner", ["t", "u"])
    live(world, owner, seconds=2)
    live(world, joiner, seconds=1)
    assert joiner.state == "joining"
    (moving,) = [topic for topic in ("t", "u") if step_of(world, topic) is Step.MOVING]
    world.delete(moving)
    assert joiner.ticket is not None
    assert joiner.ticket.answer is not None


def test_a_group_that_is_left_stays_and_is_empty() -> None:
    world = Simulation("t", checked=True)
    member = Classic(world, "m", ["t"])
    live(world, member, seconds=1)
    member.commit = lambda: None  # type: ignore[method-assign]
    member.leave()
    (group,) = world.groups.by_id.values()
    assert not group.members
    assert not group.progress


def test_a_thousand_members_may_come_at_once() -> None:
    world = Simulation("t", mode="shared", limits=replace(LIMITS, max_size=10_000))
    crowd = [Classic(world, str(n), ["t"]) for n in range(1000)]
    began = time.process_time()
    for _ in range(3):
        for member in crowd:
            member.step()
    assert time.process_time() - began < 3.0
    assert world.coordinator.sharers(world.groups.by_name[GROUP], 1) == 1000
