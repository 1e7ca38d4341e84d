"""Raw frames: every version of the group requests, and the codes for what must be refused.

As Apache Kafka answers them. What only a group that shares answers: test_groups_wire_sharing.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer.group import HeartbeatRequest, LeaveGroupRequest
from kafka.protocol.metadata import ApiVersionsRequest

from compat_tests.groups.stories import fill
from compat_tests.wire.connection import Wire
from compat_tests.wire.members import (
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    UNKNOWN_MEMBER_ID,
    RawMember,
    commit,
    commit_code,
    fetched_offset,
    join,
    offsets,
    subscription,
    topics_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SERVED = {
    8: (2, 9), 9: (1, 9), 11: (2, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5),
    42: (0, 2), 47: (0, 0), 68: (0, 1), 69: (0, 1),
}  # fmt: skip
"""API key: the versions that clients in the field use."""
INVALID_GROUP_ID = 24
INVALID_SESSION_TIMEOUT = 26
INCONSISTENT_PROTOCOL = 23
METADATA_TOO_LARGE = 12
UNKNOWN_TOPIC = 3


@pytest.fixture
def member(wire: Wire, group: str, topic: str) -> RawMember:
    """Joined, alone, with the topic."""
    made = RawMember(wire, group, topic)
    made.join()
    sync_as_leader_or_not(made, topic)
    return made


def sync_as_leader_or_not(member: RawMember, topic: str) -> None:
    """On Kafka the first member leads and assigns; on Kumquat the broker does, and it must not matter."""
    assignment = b"\x00\x00" + b"\x00\x00\x00\x01" + len(topic).to_bytes(2, "big") + topic.encode()
    assignment += b"\x00\x00\x00\x01" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x00"
    assert topics_of(member.sync({member.member_id: assignment})) == [topic]


def test_api_versions_offers_the_group_requests(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    offered = {
        each.api_key: (each.min_version, each.max_version)
        for each in wire.call(request, 3).api_keys
    }
    missing = {
        key: offered.get(key)
        for key, (low, high) in SERVED.items()
        if key not in offered or offered[key][0] > low or offered[key][1] < high
    }
    assert not missing


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_of_offset_commit(
    bootstrap: str, wire: Wire, group: str, topic: str, version: int
) -> None:
    fill(bootstrap, topic, 10)
    request = commit(group, topic, 7, text="mine")
    assert commit_code(wire.call(request, version)) == 0
    assert fetched_offset(wire.call(offsets(group, topic), 7), 7) == (0, 0, 7, "mine")


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_of_offset_fetch(
    bootstrap: str, wire: Wire, group: str, topic: str, version: int
) -> None:
    assert fetched_offset(wire.call(offsets(group, topic), version), version) == (0, 0, -1, "")
    fill(bootstrap, topic, 10)
    wire.call(commit(group, topic, 7, text="mine"), 8)
    assert fetched_offset(wire.call(offsets(group, topic), version), version) == (0, 0, 7, "mine")
    if version >= 2:
        assert fetched_offset(wire.call(offsets(group, None), version), version)[2] == 7


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_of_join_group(wire: Wire, group: str, topic: str, version: int) -> None:
    request = join(group, protocols={"range": subscription(topic)})
    answer = wire.call(request, version)
    if version >= 4:
        assert answer.error_code == MEMBER_ID_REQUIRED
        request = join(group, member_id=answer.member_id, protocols={"range": subscription(topic)})
        answer = wire.call(request, version)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.protocol_name == "range"
    if version >= 7:
        assert answer.protocol_type == "consumer"


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat(member: RawMember, wire: Wire, version: int) -> None:
    request = HeartbeatRequest(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=None,
    )
    assert wire.call(request, version).error_code == 0


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leave_group(member: RawMember, wire: Wire, version: int) -> None:
    identity = LeaveGroupRequest.MemberIdentity(
        member_id=member.member_id, group_instance_id=None, reason=None
    )
    request = LeaveGroupRequest(
        group_id=member.group, member_id=member.member_id, members=[identity]
    )
    assert wire.call(request, version).error_code == 0
    assert member.heartbeat() == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_list_and_describe(member: RawMember, wire: Wire, version: int) -> None:
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    assert member.group in {each.group_id for each in wire.call(request, version).groups}
    asked = DescribeGroupsRequest(groups=[member.group], include_authorized_operations=False)
    (found,) = wire.call(asked, version).groups
    assert (found.error_code, found.group_state, found.protocol_type) == (0, "Stable", "consumer")
    assert [each.member_id for each in found.members] == [member.member_id]
    assert topics_of(bytes(found.members[0].member_assignment)) != []


@pytest.mark.parametrize("version", range(3))
def test_every_version_of_delete_groups(wire: Wire, group: str, topic: str, version: int) -> None:
    wire.call(commit(group, topic, 0), 8)
    answer = wire.call(DeleteGroupsRequest(groups_names=[group]), version)
    assert [each.error_code for each in answer.results] == [0]
    assert fetched_offset(wire.call(offsets(group, topic), 7), 7)[2] == -1


def test_commits_that_kafka_refuses(member: RawMember, wire: Wire, topic: str) -> None:
    assert member.commit(topic, 1) == 0
    assert member.commit(topic, 2, generation=member.generation - 1) == ILLEGAL_GENERATION
    nobody = commit(member.group, topic, 3, member_id="nobody", generation=member.generation)
    assert commit_code(wire.call(nobody, 8)) == UNKNOWN_MEMBER_ID
    assert commit_code(wire.call(commit(member.group, topic, 4), 8)) == UNKNOWN_MEMBER_ID
    assert member.commit("no-such-topic-here", 5) == UNKNOWN_TOPIC
    long = commit(
        member.group,
        topic,
        6,
        member_id=member.member_id,
        generation=member.generation,
        text="x" * 5000,
    )
    assert commit_code(wire.call(long, 8)) == METADATA_TOO_LARGE
    assert fetched_offset(wire.call(offsets(member.group, topic), 7), 7)[2] == 1


def test_joins_that_kafka_refuses(wire: Wire, names: Callable[[], str], topic: str) -> None:
    protocols = {"range": subscription(topic)}
    assert wire.call(join("", protocols=protocols), 5).error_code == INVALID_GROUP_ID
    for milliseconds in (1, 1_000_000_000):
        request = join(names(), protocols=protocols, session_ms=milliseconds)
        assert wire.call(request, 5).error_code == INVALID_SESSION_TIMEOUT
    assert wire.call(join(names(), protocols={}), 5).error_code == INCONSISTENT_PROTOCOL
    request = join(names(), protocols=protocols, member_id="never-given")
    assert wire.call(request, 5).error_code == UNKNOWN_MEMBER_ID


def test_heartbeats_that_kafka_refuses(member: RawMember) -> None:
    assert member.heartbeat(generation=member.generation + 1) == ILLEGAL_GENERATION
    member.member_id = "nobody"
    assert member.heartbeat() == UNKNOWN_MEMBER_ID
    member.group = ""
    assert member.heartbeat() == INVALID_GROUP_ID


def test_a_group_with_a_strange_name_is_as_good_as_any(
    bootstrap: str, wire: Wire, topic: str, names: Callable[[], str]
) -> None:
    fill(bootstrap, topic, 3)
    for name in (f"ü {names()} /\\ 🍊", names() * 100):
        assert commit_code(wire.call(commit(name, topic, 2), 8)) == 0
        assert fetched_offset(wire.call(offsets(name, topic), 7), 7)[2] == 2
