"""Members of share groups: what they are told when, epochs, what types of groups do to each other, and
where a group begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.ranges import Range
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.membership.roster import Step
from kumquat.gateway.groups.tests.clients import Classic, Modern
from kumquat.gateway.groups.tests.simulation import GROUP, LIMITS, Simulation
from kumquat.gateway.groups.tests.test_consumer import refused, topics
from kumquat.gateway.wire import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    ShareGroupHeartbeatRequest,
)
from kumquat.gateway.wire.codes import ErrorCode

SHORT_MS, USUAL_MS, SESSION_MS = 500, 5_000, 45_000


class Sharer:
    """Speaks ShareGroupHeartbeat word by word."""

    def __init__(self, world: Simulation, member_id: str = "m") -> None:
        self.world, self.member_id, self.epoch = world, member_id, 0
        self.caller = Caller("c", "/h", {}, "apache-kafka-java")

    def say(self, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch
        )
        for name, value in fields.items():
            setattr(request, name, value)
        answer = self.world.coordinator.share_heartbeat(request, self.caller, self.world.now)
        self.epoch = answer.member_epoch
        return answer

    def join(self, *names: str) -> Any:
        return self.say(member_epoch=0, subscribed_topic_names=list(names))

    def leave(self) -> Any:
        return self.say(member_epoch=-1)

    def lease(self, topic: str, count: int) -> None:
        """As a ShareFetch does."""
        subject_id = self.world.subjects.by_name[topic].id
        group = self.world.groups.by_name[GROUP]
        progress = group.progress[subject_id]
        log = progress.pull_logs[group.members[self.member_id].holds[subject_id]]
        given = [Range(progress.cursor, count, 1)]
        self.world.append([engine.pull_action(group.id, subject_id, log, given)])


def sharers(world: Simulation, count: int, *names: str) -> list[Sharer]:
    members = [Sharer(world, f"m{number}") for number in range(count)]
    for member in members:
        assert topics(world, member.join(*names)) == sorted(names)
    return members


def progress(world: Simulation, topic: str = "t") -> Any:
    return world.groups.by_name[GROUP].progress[world.subjects.by_name[topic].id]


# --- what a member is told -------------------------------------------------------------------------


def test_every_member_reads_every_subject_in_the_answer_to_its_join() -> None:
    world = Simulation("t", "u", checked=True)
    members = sharers(world, 3, "t", "u")
    group = world.groups.by_name[GROUP]
    for topic in ("t", "u"):
        subject_id = world.subjects.by_name[topic].id
        assert world.coordinator.step(group, subject_id) is Step.SHARING
        assert world.coordinator.sharers(group, subject_id) == 3
        assert len({member.holds[subject_id] for member in group.members.values()}) == 3
    assert [member.say().assignment for member in members] == [None] * 3
    assert len({member.epoch for member in members}) == 3
    assert all(member.epoch > 0 for member in members)


@pytest.mark.parametrize("mode", ["auto", "shared", "exclusive"])
def test_a_share_group_shares_in_every_mode(mode: str) -> None:
    world = Simulation("t", mode=mode, checked=True)
    alone = Sharer(world)
    assert topics(world, alone.join("t")) == ["t"]
    world.pass_time(10)
    alone.say()
    world.set_mode("exclusive")
    world.pass_time(30)
    assert alone.say().assignment is None
    assert world.groups.by_name[GROUP].members["m"].holds[1] != 0


def test_an_assignment_is_told_again_only_when_it_changed_or_the_member_says_all() -> None:
    world = Simulation("t", checked=True)
    member = Sharer(world)
    member.join("t")
    epoch = member.epoch
    assert (member.say().assignment, member.epoch) == (None, epoch)
    assert topics(world, member.say(subscribed_topic_names=["t"])) == ["t"]
    assert member.epoch == epoch, "nothing has changed"


def test_a_subject_that_is_created_later_comes_with_the_next_heartbeat_in_a_new_epoch() -> None:
    world = Simulation("t", checked=True)
    member = Sharer(world)
    answer = member.join("t", "u")
    assert topics(world, answer) == ["t"]
    assert answer.heartbeat_interval_ms == SHORT_MS, "something is about to change"
    assert member.say().heartbeat_interval_ms == SHORT_MS
    epoch = member.epoch
    world.create("u")
    answer = member.say()
    assert topics(world, answer) == ["t", "u"]
    assert member.epoch > epoch
    assert answer.heartbeat_interval_ms == USUAL_MS
    assert member.say().assignment is None


def test_a_subject_that_is_deleted_goes_with_the_next_heartbeat_in_a_new_epoch() -> None:
    world = Simulation("t", "u", checked=True)
    member = Sharer(world)
    member.join("t", "u")
    member.say()
    epoch = member.epoch
    world.delete("t")
    answer = member.say()
    assert topics(world, answer) == ["u"]
    assert member.epoch > epoch
    world.create("t")
    assert topics(world, member.say()) == ["t", "u"]


def test_a_new_subscription_is_answered_at_once() -> None:
    world = Simulation("t", "u", checked=True)
    member = Sharer(world)
    member.join("t")
    epoch = member.epoch
    assert topics(world, member.say(subscribed_topic_names=["u"])) == ["u"]
    assert member.epoch > epoch
    assert topics(world, member.say(subscribed_topic_names=[])) == []
    assert world.groups.by_name[GROUP].members["m"].holds == {}


def test_what_is_leased_of_a_subject_that_is_no_longer_read_can_still_be_acknowledged() -> None:
    world = Simulation("t", "u", checked=True)
    member = Sharer(world)
    member.join("t")
    world.produce("t", 5)
    member.lease("t", 3)
    assert topics(world, member.say(subscribed_topic_names=["u"])) == ["u"]
    group, subject_id = world.groups.by_name[GROUP], world.subjects.by_name["t"].id
    slot = group.members["m"].holds[subject_id]
    assert progress(world).pull_logs[slot].leases
    assert member.say().assignment is None, "it is told of what it reads alone"
    world.restart()
    assert topics(world, member.say()) == ["u"]
    group = world.groups.by_name[GROUP]
    world.append([actions.Share(group.id, subject_id, 3)])  # all of it is settled
    member.say()
    assert subject_id not in group.members["m"].holds
    assert not progress(world).pull_logs


# --- epochs ----------------------------------------------------------------------------------------


def test_the_current_and_the_previous_epoch_go_on_and_any_other_is_fenced() -> None:
    world = Simulation("t", checked=True)
    member = Sharer(world)
    member.join("t", "u")
    before = member.epoch
    world.create("u")
    member.say()
    member.epoch = before  # the answer was lost
    assert topics(world, member.say()) == ["t", "u"]
    assert member.epoch > before
    assert refused(member.say, member_epoch=member.epoch + 1) == ErrorCode.FENCED_MEMBER_EPOCH
    world.delete("u")
    member.say()
    assert refused(member.say, member_epoch=before) == ErrorCode.FENCED_MEMBER_EPOCH


def test_who_joins_again_with_its_id_keeps_what_it_has_leased() -> None:
    world = Simulation("t", checked=True)
    member = Sharer(world)
    member.join("t")
    world.produce("t", 5)
    member.lease("t", 2)
    epoch = member.epoch
    assert topics(world, member.join("t")) == ["t"]
    assert member.epoch > epoch
    group = world.groups.by_name[GROUP]
    assert [log.unacked for log in progress(world).pull_logs.values()] == [2]
    assert len(group.members) == 1


def test_unknown_members_and_groups_are_refused() -> None:
    world = Simulation("t", checked=True)
    member = Sharer(world)
    assert refused(member.say, member_epoch=1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(member.leave) == ErrorCode.GROUP_ID_NOT_FOUND
    assert GROUP not in world.groups.by_name
    member.join("t")
    stranger = Sharer(world, "n")
    assert refused(stranger.say, member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(stranger.leave) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "said",
    [
        {"member_id": ""},
        {"member_id": "x" * 37},
        {"group_id": ""},
        {"rack_id": ""},
        {"member_epoch": -2},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ],
    ids=str,
)
def test_a_join_that_says_too_little_is_an_invalid_request(said: dict[str, Any]) -> None:
    world = Simulation("t", checked=True)
    join = {"member_epoch": 0, "subscribed_topic_names": ["t"]}
    assert refused(Sharer(world).say, **(join | said)) == ErrorCode.INVALID_REQUEST
    assert not world.groups.by_name


def test_a_full_group_takes_no_more_but_keeps_those_who_come_again() -> None:
    world = Simulation("t", limits=replace(LIMITS, max_size=2), checked=True)
    first, _ = sharers(world, 2, "t")
    assert refused(Sharer(world, "x").join, "t") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert topics(world, first.join("t")) == ["t"]


# --- leaving, dying, restarts ----------------------------------------------------------------------


def test_who_leaves_gives_back_at_once_what_it_has_leased() -> None:
    world = Simulation("t", checked=True)
    leaver, stayer = sharers(world, 2, "t")
    world.produce("t", 5)
    leaver.lease("t", 3)
    answer = leaver.leave()
    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("m0", -1, None)
    (again,) = progress(world).redelivery
    assert (again.first, again.size, again.attempt) == (0, 3, 2), "it may have handled them"
    assert stayer.say().assignment is None


def test_a_silent_member_goes_with_its_session_and_the_config_of_the_session_counts_at_once() -> (
    None
):
    world = Simulation("t", checked=True)
    silent, speaker = sharers(world, 2, "t")
    for _ in range(SESSION_MS // USUAL_MS - 1):
        world.pass_time(USUAL_MS / 1000)
        speaker.say()
    assert set(world.groups.by_name[GROUP].members) == {"m0", "m1"}
    world.pass_time(USUAL_MS / 1000)
    assert set(world.groups.by_name[GROUP].members) == {"m1"}
    assert refused(silent.say) == ErrorCode.UNKNOWN_MEMBER_ID
    world.configs["share.session.timeout.ms"] = "50000"
    speaker.say()
    world.pass_time(49)
    assert set(world.groups.by_name[GROUP].members) == {"m1"}
    world.pass_time(2)
    assert not world.groups.by_name[GROUP].members


def test_what_a_silent_member_had_leased_waits_for_a_back_off() -> None:
    world = Simulation("t", checked=True)
    silent, speaker = sharers(world, 2, "t")
    world.produce("t", 5)
    silent.lease("t", 3)
    for _ in range(SESSION_MS // USUAL_MS):
        world.pass_time(USUAL_MS / 1000)
        speaker.say()
    assert set(world.groups.by_name[GROUP].members) == {"m1"}
    assert progress(world).redelivery.total == 0
    (wait,) = progress(world).waiting
    assert (wait.first, wait.size, wait.attempt) == (0, 3, 2)
    assert wait.due == world.now_ms() + world.retry_policy(world.groups.by_name[GROUP]).backoff(1)


def test_a_message_that_was_delivered_too_often_is_doomed_when_its_member_goes() -> None:
    world = Simulation("t", checked=True)
    (member,) = sharers(world, 1, "t")
    world.produce("t", 1)
    limit = world.retry_policy(world.groups.by_name[GROUP]).limit
    for _ in range(limit):
        group, subject_id = world.groups.by_name[GROUP], world.subjects.by_name["t"].id
        log = progress(world).pull_logs[group.members["m0"].holds[subject_id]]
        given = list(progress(world).redelivery) or [Range(0, 1, 1)]
        world.append([engine.pull_action(group.id, subject_id, log, given)])
        member.leave()
        member.join("t")
    (doomed,) = progress(world).doomed.values()
    assert (doomed.first, doomed.attempts, doomed.reason) == (0, limit, actions.ATTEMPTS)
    assert progress(world).redelivery.total == 0


def test_the_heartbeat_interval_is_that_of_the_groups_config() -> None:
    world = Simulation("t", checked=True)
    world.configs["share.heartbeat.interval.ms"] = "7000"
    member = Sharer(world)
    assert member.join("t").heartbeat_interval_ms == 7_000
    assert member.say().heartbeat_interval_ms == 7_000


def test_members_go_on_over_a_restart_without_rejoining() -> None:
    world = Simulation("t", checked=True)
    members = sharers(world, 3, "t")
    world.produce("t", 9)
    members[0].lease("t", 4)
    epochs = [member.epoch for member in members]
    world.restart()
    for member in members:
        assert topics(world, member.say()) == ["t"], "what it was told is not known any more"
        assert member.say().assignment is None
    assert [member.epoch for member in members] == epochs
    assert progress(world).unacked == 4


def test_an_empty_share_group_stays_one_over_restarts_and_for_ever() -> None:
    world = Simulation("t", checked=True)
    member = Sharer(world)
    member.join("t")
    world.produce("t", 5)
    member.lease("t", 2)
    member.leave()
    for _ in range(2):
        world.pass_time(100 * 86_400)
        assert world.coordinator.expire(list(world.groups.by_id), world.now) == 0
        assert refused(joining, world) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        world.restart()
    assert progress(world).shared
    assert topics(world, member.join("t")) == ["t"]
    assert progress(world).unacked == 2, "it goes on where it was"


# --- types of groups -------------------------------------------------------------------------------


def joining(world: Simulation) -> Any:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\0\0\0\0")],
    )
    caller = Caller("c", "/h", {}, "apache-kafka-java")
    return world.coordinator.join(request, caller, world.now, needs_id=True, can_skip=True)


def committing(world: Simulation, member_id: str = "", generation: int = -1) -> Any:
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 1)])],
    )
    return world.coordinator.commit(request, Caller("c", "/h", {}), world.now)


@pytest.mark.parametrize("empty", [False, True])
def test_other_protocols_find_no_group_of_theirs_in_a_share_group(empty: bool) -> None:
    world = Simulation("t", checked=True)
    world.produce("t", 5)
    member = Sharer(world)
    member.join("t")
    epoch = member.epoch
    if empty:
        member.leave()
    coordinator, caller, now = world.coordinator, Caller("c", "/h", {}), world.now
    beat = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", rebalance_timeout_ms=1, subscribed_topic_names=["t"]
    )
    assert refused(joining, world) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    found = refused(coordinator.consumer_heartbeat, beat, caller, now)
    assert found == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(committing, world) == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(committing, world, "m", epoch) == ErrorCode.GROUP_ID_NOT_FOUND
    classic = HeartbeatRequest(group_id=GROUP, generation_id=epoch, member_id="m")
    assert refused(coordinator.heartbeat, classic, caller, now) == ErrorCode.UNKNOWN_MEMBER_ID
    gone = refused(coordinator.leave, GROUP, "m", None, caller, now)
    assert gone == ErrorCode.UNKNOWN_MEMBER_ID
    (position,) = coordinator.fetch(GROUP, None, -1, [("t", [0])], caller)
    assert (position.offset, position.error_code) == (-1, ErrorCode.NONE)
    assert coordinator.fetch(GROUP, None, -1, None, caller) == []


@pytest.mark.parametrize("kind", [Classic, Modern])
def test_a_share_heartbeat_finds_no_share_group_in_one_of_consumers(kind: Any) -> None:
    world = Simulation("t", checked=True)
    consumer = kind(world, "c", ["t"])
    for _ in range(3):
        consumer.step()
    assert refused(Sharer(world).join, "t") == ErrorCode.GROUP_ID_NOT_FOUND
    consumer.read(1)
    consumer.commit()
    consumer.leave()
    assert refused(Sharer(world).join, "t") == ErrorCode.GROUP_ID_NOT_FOUND, "it has positions"


def test_a_share_heartbeat_finds_no_share_group_where_only_offsets_were_committed() -> None:
    world = Simulation("t", checked=True)
    committing(world)
    assert refused(Sharer(world).join, "t") == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_name_of_a_group_without_members_and_positions_is_free_for_a_share_group() -> None:
    world = Simulation("t", checked=True)
    consumer = Modern(world, "c", ["u"])
    consumer.step()
    consumer.leave()
    assert topics(world, Sharer(world).join("t")) == ["t"]


def test_a_steal_leaves_share_members_alone() -> None:
    world = Simulation("t", checked=True)
    (member,) = sharers(world, 1, "t")
    world.produce("t", 5)
    member.lease("t", 5)
    world.coordinator.request_rebalance(world.groups.by_name[GROUP], "m0", world.now)
    assert member.say().assignment is None
    assert progress(world).redelivery.total == 0


# --- where a group begins --------------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "cursor"), [("latest", 7), ("earliest", 0)])
def test_a_group_begins_by_its_reset_once_and_then_where_it_is(reset: str, cursor: int) -> None:
    world = Simulation("t", checked=True)
    world.configs["share.auto.offset.reset"] = reset
    world.produce("t", 7)
    member = Sharer(world)
    member.join("t")
    assert progress(world).cursor == cursor
    world.produce("t", 3)
    member.lease("t", 2)
    member.leave()
    world.configs["share.auto.offset.reset"] = "latest"
    member.join("t")
    assert progress(world).cursor == cursor + 2
    assert progress(world).redelivery.total == 2
