"""What is left of a group when its members are gone, and what counts as a commit: as Apache Kafka answers.

A group without members is listed as Empty, with the type and the protocol type that it had, and can be
deleted. One that only ever committed has no protocol type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest

from compat_tests.members.fixture import Members
from compat_tests.support import eventually
from compat_tests.wire.connection import Wire, batch, describe_topic, produce, produced
from compat_tests.wire.members import (
    ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID,
    RawMember,
    commit,
    commit_code,
    fetched_offset,
    offsets,
)

if TYPE_CHECKING:
    from compat_tests.wire.connection import Message

INVALID_TOPIC = 17


@pytest.fixture(autouse=True)
def _coordinator(wire: Wire, group: str) -> None:
    """Asked for by every client: with the first request Kafka makes its offsets topic."""

    def found() -> bool:
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=[group])
        return bool(wire.call(request, 4).coordinators[0].error_code == 0)

    eventually(found, "a coordinator")


def listed(wire: Wire, group: str) -> tuple[str, str, str] | None:
    """Protocol type, state and type, as ListGroups says."""
    found = wire.call(ListGroupsRequest(states_filter=[], types_filter=[]), 5).groups
    each: Message
    for each in found:
        if each.group_id == group:
            return each.protocol_type, each.group_state, each.group_type
    return None


def described(wire: Wire, group: str) -> tuple[str, str]:
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    answer = wire.call(request, 5).groups[0]
    return answer.protocol_type, answer.group_state


def delete(wire: Wire, group: str) -> int:
    return int(wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code)


def commits(wire: Wire, group: str, topic: str, offset: int, member_id: str = "") -> int:
    """Asked again while a Kafka that has just started makes its offsets topic."""
    codes: list[int] = []

    def settled() -> bool:
        request = commit(group, topic, offset, member_id=member_id)
        codes[:] = [commit_code(wire.call(request, 8))]
        return codes[0] not in (14, 15, 16)

    eventually(settled, "a coordinator")
    return codes[0]


def position(wire: Wire, group: str, topic: str) -> int:
    return fetched_offset(wire.call(offsets(group, topic), 8), 8)[2]


def sync_alone(member: RawMember) -> None:
    member.join()
    member.sync({member.member_id: b"\0\0\0\0\0\0\xff\xff\xff\xff"})


def test_a_group_that_only_committed_has_no_protocol_type(
    wire: Wire, topic: str, group: str
) -> None:
    assert commits(wire, group, topic, 3) == 0
    assert listed(wire, group) == ("", "Empty", "classic")
    assert described(wire, group) == ("", "Empty")
    assert delete(wire, group) == 0
    assert listed(wire, group) is None


def test_a_group_without_commits_outlives_its_last_member(
    wire: Wire, topic: str, group: str
) -> None:
    member = RawMember(wire, group, topic)
    sync_alone(member)
    assert listed(wire, group) == ("consumer", "Stable", "classic")
    assert member.leave() == 0
    assert listed(wire, group) == ("consumer", "Empty", "classic")
    assert described(wire, group) == ("consumer", "Empty")
    assert delete(wire, group) == 0
    assert listed(wire, group) is None


def test_an_empty_group_of_connect_stays_one(wire: Wire, group: str) -> None:
    member = RawMember(wire, group, protocols={"default": b"1"}, protocol_type="connect")
    member.join()
    member.sync({member.member_id: b"2"})
    assert member.leave() == 0
    assert listed(wire, group) == ("connect", "Empty", "classic")
    assert delete(wire, group) == 0


def test_an_empty_consumer_group_stays_one(
    wire: Wire, topic: str, group: str, members: Members
) -> None:
    member = members("confluent-consumer", group, topic)
    member.run()
    member.wait(lambda: topic in member.assigned, "the topic")
    member.close()
    eventually(lambda: listed(wire, group) == ("consumer", "Empty", "consumer"), "it is empty")
    assert delete(wire, group) == 0
    assert listed(wire, group) is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_offsets_topic_is_found_by_a_pattern(bootstrap: str, group: str, protocol: str) -> None:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    reader.subscribe(["^__consumer_offset.*"])

    def assigned() -> bool:
        reader.poll(0.2)
        return {part.topic for part in reader.assignment()} == {"__consumer_offsets"}

    eventually(assigned, "the topic")
    reader.close()


def test_the_offsets_topic_is_internal(wire: Wire) -> None:
    topic = describe_topic(wire, "__consumer_offsets")
    assert (topic.error_code, topic.is_internal) == (0, True)
    answer = produced(wire.call(produce("__consumer_offsets", batch(b"x")), 9))
    assert answer.error_code == INVALID_TOPIC


def test_a_negative_offset_is_stored(wire: Wire, topic: str, group: str) -> None:
    for offset in (5, -2, -1):
        assert commits(wire, group, topic, offset) == 0
        assert position(wire, group, topic) == offset


def test_a_member_id_does_not_matter_where_there_are_no_members(
    wire: Wire, topic: str, group: str
) -> None:
    assert commits(wire, group, topic, 5, "nobody") == 0
    assert position(wire, group, topic) == 5
    member = RawMember(wire, group, topic)
    sync_alone(member)
    assert commits(wire, group, topic, 6, "nobody") == UNKNOWN_MEMBER_ID
    assert commits(wire, group, topic, 6) == UNKNOWN_MEMBER_ID
    assert member.commit(topic, 6, generation=-1) == ILLEGAL_GENERATION
    assert position(wire, group, topic) == 5
    assert member.leave() == 0
    assert commits(wire, group, topic, 6, member.member_id) == 0
