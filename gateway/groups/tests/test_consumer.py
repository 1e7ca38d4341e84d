"""KIP-848 members: how a subject passes from one to another, epochs, patterns, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kumquat.core.errors import KumquatError
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.tests.clients import Classic, Modern
from kumquat.gateway.groups.tests.simulation import GROUP, LIMITS, SESSION_MS, Simulation
from kumquat.gateway.groups.tests.test_classic import holds, live
from kumquat.gateway.wire import ConsumerGroupHeartbeatRequest, OwnedTopicPartitions
from kumquat.gateway.wire.codes import ErrorCode

SHORT_MS, USUAL_MS = 500, 5_000


class Speaker:
    """Speaks ConsumerGroupHeartbeat word by word."""

    def __init__(self, world: Simulation, member_id: str = "m") -> None:
        self.world, self.member_id, self.epoch = world, member_id, 0
        self.caller = Caller("c", "/h", {}, "apache-kafka-java")

    def say(self, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch
        )
        for name, value in fields.items():
            setattr(request, name, value)
        answer = self.world.coordinator.consumer_heartbeat(request, self.caller, self.world.now)
        self.epoch = answer.member_epoch
        return answer

    def join(self, *topics: str, **fields: Any) -> Any:
        said = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
        }
        return self.say(**(said | fields))

    def owning(self, *topics: str) -> Any:
        by_name = self.world.subjects.by_name
        return self.say(
            topic_partitions=[OwnedTopicPartitions(by_name[t].topic_id, [0]) for t in topics]
        )


def topics(world: Simulation, answer: Any) -> list[str] | None:
    if answer.assignment is None:
        return None
    names = {subject.topic_id: subject.name for subject in world.subjects}
    return sorted(names[part.topic_id] for part in answer.assignment.topic_partitions)


def refused(speak: Any, *args: Any, **fields: Any) -> int:
    with pytest.raises(KumquatError) as error:
        speak(*args, **fields)
    return error.value.error_code


def committed(world: Simulation) -> Speaker:
    """A member that owns t, with a position that another client has committed."""
    reader = Classic(world, "before", ["t"])
    live(world, reader, seconds=2, reads=1)
    reader.leave()
    owner = Speaker(world, "owner")
    assert topics(world, owner.join("t")) == ["t"]
    owner.owning("t")
    return owner


def test_an_owner_is_told_to_let_go_in_the_same_epoch_and_given_it_back_in_a_new_one() -> None:
    world = Simulation("t", checked=True)
    world.produce("t", 5)
    owner, joiner = committed(world), Speaker(world, "joiner")
    answer = joiner.join("t")
    assert topics(world, answer) == []
    assert answer.heartbeat_interval_ms == SHORT_MS
    epoch = owner.epoch
    answer = owner.say()
    assert (topics(world, answer), owner.epoch) == ([], epoch)
    assert topics(world, joiner.say()) is None, "not before the owner has let go"
    answer = owner.owning()
    assert topics(world, answer) == ["t"]
    assert owner.epoch > epoch
    answer = joiner.say()
    assert topics(world, answer) == ["t"]
    assert answer.heartbeat_interval_ms == USUAL_MS
    slots = [member.holds[1] for member in world.groups.by_name[GROUP].members.values()]
    assert len(set(slots)) == 2
    assert all(slots)


def test_an_assignment_is_told_once_and_again_when_the_member_says_all_about_itself() -> None:
    world = Simulation("t", checked=True)
    member = Speaker(world)
    assert topics(world, member.join("t")) == ["t"]
    assert topics(world, member.owning("t")) is None
    assert topics(world, member.say()) is None
    assert topics(world, member.say(subscribed_topic_names=["t"])) == ["t"]


def test_a_member_that_never_took_up_what_it_must_let_go_of_has_nothing_to_report() -> None:
    world = Simulation("t", checked=True)
    owner = committed(world)
    owner.owning()  # it has not taken it up yet
    joiner = Speaker(world, "joiner")
    joiner.join("t")
    assert topics(world, owner.say()) == []
    given = []
    for _ in range(12):
        world.pass_time(0.5)
        given.append(topics(world, owner.say()))
    assert ["t"] in given


def test_the_epoch_before_is_taken_for_a_lost_answer_and_any_other_is_fenced() -> None:
    world = Simulation("t", "u", checked=True, mode="exclusive")
    member = Speaker(world)
    member.join("t")
    before = member.epoch
    member.say(subscribed_topic_names=["t", "u"], topic_partitions=[])
    after = member.epoch
    assert after > before
    member.epoch = before
    answer = member.say()
    assert (topics(world, answer), answer.member_epoch) == (["t", "u"], after)
    member.epoch = after + 7
    assert refused(member.say) == ErrorCode.FENCED_MEMBER_EPOCH
    member.member_id = "nobody"
    assert refused(member.say) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_joins_again_begins_from_nothing() -> None:
    world = Simulation("t", checked=True, mode="shared")
    world.produce("t", 10)
    member = Modern(world, "m", ["t"])
    live(world, member, seconds=2, reads=2)
    first = world.groups.by_name[GROUP].members[member.member_id].holds[1]
    speaker = Speaker(world, member.member_id)
    speaker.join("t")
    progress = world.groups.by_name[GROUP].progress[1]
    assert world.groups.by_name[GROUP].members[member.member_id].holds[1] != first
    assert len(progress.redelivery)


def test_a_member_may_change_what_it_reads() -> None:
    world = Simulation("t", "u", "v", checked=True, mode="exclusive")
    member = Speaker(world)
    member.join("t", "u")
    member.owning("t", "u")
    answer = member.say(subscribed_topic_names=["u", "v"])
    assert topics(world, answer) == ["u", "v"]
    assert holds_of(world, "m") == {"t", "u", "v"}, "until it says that it has let go"
    member.owning("u", "v")
    assert holds_of(world, "m") == {"u", "v"}


def holds_of(world: Simulation, member_id: str) -> set[str]:
    members = world.groups.by_name[GROUP].members
    return {world.subjects.by_id[subject_id].name for subject_id in members[member_id].holds}


def test_a_pattern_finds_subjects_now_and_later() -> None:
    world = Simulation("orders.eu", "orders.us", "other", mode="exclusive")
    member = Speaker(world)
    answer = member.join(subscribed_topic_regex=r"orders\..*", subscribed_topic_names=None)
    assert topics(world, answer) == ["orders.eu", "orders.us"]
    world.create("orders.asia")
    assert topics(world, member.say()) == ["orders.asia", "orders.eu", "orders.us"]
    world.delete("orders.eu")
    assert topics(world, member.say()) == ["orders.asia", "orders.us"]
    world.restart()
    world.create("orders.mars")
    assert "orders.mars" in (topics(world, member.say()) or [])


def test_a_static_member_that_goes_for_a_while_keeps_its_place() -> None:
    world = Simulation("t", checked=True, mode="exclusive")
    member, other = Speaker(world, "first"), Speaker(world, "other")
    member.join("t", instance_id="one")
    other.join("t")
    again = Speaker(world, "second")
    assert refused(again.join, "t", instance_id="one") == ErrorCode.UNRELEASED_INSTANCE_ID
    epoch = member.epoch
    member.say(member_epoch=-2, instance_id="one")
    assert topics(world, other.say()) is None
    assert topics(world, again.join("t", instance_id="one")) == ["t"]
    member.epoch = epoch
    assert refused(member.say, instance_id="one") == ErrorCode.FENCED_INSTANCE_ID
    assert refused(member.say) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_is_gone() -> None:
    world = Simulation("t", checked=True, mode="exclusive")
    member, other = Speaker(world, "first"), Modern(world, "other", ["t"])
    member.join("t", instance_id="one")
    live(world, other, seconds=1)
    member.say(member_epoch=-2, instance_id="one")
    live(world, other, seconds=SESSION_MS / 1000 + 6)
    assert holds(world, other) == "plain"


def test_a_member_that_leaves_makes_room_at_once() -> None:
    world = Simulation("t", checked=True, mode="exclusive")
    member, other = Speaker(world, "first"), Speaker(world, "other")
    member.join("t")
    other.join("t")
    assert member.say(member_epoch=-1).member_epoch == -1
    assert topics(world, other.say()) == ["t"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "member_epoch": 1}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": [OwnedTopicPartitions(b"x" * 16, [0])]}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({}, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_a_bad_heartbeat_is_refused_and_leaves_no_trace(fields: dict[str, Any], code: int) -> None:
    world = Simulation("t", checked=True, limits=replace(LIMITS, max_size=1))
    Speaker(world, "first").join("t")
    before = len(world.log)
    assert refused(Speaker(world).join, "t", **fields) == code
    assert len(world.log) == before
    empty = Simulation("t", checked=True, limits=replace(LIMITS, max_size=0))
    refused(Speaker(empty).join, "t", **fields)
    assert not empty.groups.by_id


def test_the_broker_gives_an_id_to_who_has_none() -> None:
    world = Simulation("t", checked=True)
    assert Speaker(world, "").join("t").member_id


def test_members_go_on_after_a_restart_without_being_told_anything_new() -> None:
    world = Simulation("t", checked=True, mode="shared")
    world.produce("t", 10)
    members = [Modern(world, "a", ["t"]), Modern(world, "b", ["t"], explicit=True)]
    live(world, *members, seconds=6, reads=1)
    before = [(m.epoch, m.member_id) for m in members]
    world.restart()
    for member in members:
        member.broker_restarted()
    live(world, *members, seconds=12, reads=1)
    assert [(m.epoch, m.member_id) for m in members] == before
    assert max(world.handled["t"].values()) == 1


def test_a_member_that_sends_heartbeats_outlives_a_full_disk() -> None:
    """Each of them would give it a new subject, which cannot be written."""
    world = Simulation("t")
    member = Speaker(world)
    member.join("t", "u")
    world.create("u")
    world.disk_is_full = True
    for _ in range(2 * SESSION_MS // 1000):
        assert refused(member.owning, "t") == ErrorCode.KAFKA_STORAGE_ERROR
        world.pass_time(1.0)
    world.disk_is_full = False
    world.pass_time(2.0)
    assert topics(world, member.owning("t")) == ["t", "u"]
