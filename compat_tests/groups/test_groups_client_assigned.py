"""Groups in which a client assigns: Connect, Schema Registry, Streams, custom assignors.

The broker passes opaque bytes between the members and the one that leads, with the full barrier.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from kafka.protocol.admin.groups import DescribeGroupsRequest, ListGroupsRequest

from compat_tests.groups.stories import everything, fill, lag
from compat_tests.members.remote import wait
from compat_tests.support import eventually
from compat_tests.wire.connection import Message, Wire
from compat_tests.wire.members import (
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    RawMember,
    commit,
    commit_code,
    join,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat_tests.members.fixture import Members

PROTOCOLS = {"sessioned": b"\x00\x02worker", "compatible": b"\x00\x01worker"}
INCONSISTENT_PROTOCOL = 23


@pytest.fixture
def connect(bootstrap: str, group: str) -> Iterator[Callable[..., RawMember]]:
    """Makes members of a group of protocol type `connect`, each with a connection of its own."""
    with ExitStack() as stack:

        def make(protocols: dict[str, bytes] = PROTOCOLS) -> RawMember:
            wire = stack.enter_context(Wire(bootstrap))
            return RawMember(wire, group, protocols=protocols, protocol_type="connect")

        yield make


def described(wire: Wire, group: str) -> Message:
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    return wire.call(request, 4).groups[0]


def second_joins(first: RawMember, second: RawMember) -> tuple[Message, Message]:
    """Both are in one generation afterwards; gives the answers to their JoinGroup."""
    second.start_join()
    eventually(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS, "the first is told")
    first.start_join()
    return first.finish_join(), second.finish_join()


def test_a_leader_assigns_opaque_bytes(connect: Callable[[], RawMember], wire: Wire) -> None:
    first, second = connect(), connect()
    answer = first.join()
    assert answer.leader == first.member_id
    assert [each.member_id for each in answer.members] == [first.member_id]
    assert first.sync({first.member_id: b"all of it"}) == b"all of it"
    led, followed = second_joins(first, second)
    assert led.generation_id == followed.generation_id == answer.generation_id + 1
    assert led.protocol_name == followed.protocol_name == "sessioned"
    assert led.leader == followed.leader == first.member_id
    assert followed.members == []
    metadata = {each.member_id: bytes(each.metadata) for each in led.members}
    assert metadata == dict.fromkeys([first.member_id, second.member_id], PROTOCOLS["sessioned"])
    second.wire.send(second.syncing(), 5)  # waits for the leader's
    shares = {first.member_id: b"\x00one", second.member_id: b"\xfftwo"}
    assert first.sync(shares) == b"\x00one"
    assert bytes(second.wire.receive().assignment) == b"\xfftwo"
    assert first.heartbeat() == second.heartbeat() == 0
    found = described(wire, first.group)
    assert (found.group_state, found.protocol_type) == ("Stable", "connect")
    assert found.protocol_data == "sessioned"
    seen = {each.member_id: bytes(each.member_assignment) for each in found.members}
    assert seen == shares


def test_the_group_goes_on_when_its_leader_leaves(connect: Callable[[], RawMember]) -> None:
    first, second = connect(), connect()
    first.join()
    first.sync({first.member_id: b"1"})
    second_joins(first, second)
    second.wire.send(second.syncing(), 5)
    first.sync({first.member_id: b"1", second.member_id: b"2"})
    second.wire.receive()
    assert first.leave() == 0
    eventually(lambda: second.heartbeat() == REBALANCE_IN_PROGRESS, "the other is told")
    answer = second.join()
    assert answer.leader == second.member_id
    assert second.sync({second.member_id: b"12"}) == b"12"
    assert first.heartbeat() == UNKNOWN_MEMBER_ID


def test_the_protocol_is_one_that_all_members_have(connect: Callable[..., RawMember]) -> None:
    first, second, third = connect(), connect({"compatible": b"x"}), connect({"other": b"y"})
    assert first.join().protocol_name == "sessioned"
    first.sync({first.member_id: b"1"})
    led, followed = second_joins(first, second)
    assert led.protocol_name == followed.protocol_name == "compatible"
    answer = third.wire.call(third.joining(), 3)
    assert answer.error_code == INCONSISTENT_PROTOCOL


def test_a_consumer_is_not_let_into_a_group_of_another_type(
    connect: Callable[[], RawMember], wire: Wire
) -> None:
    first = connect()
    first.join()
    first.sync({first.member_id: b"1"})
    answer = wire.call(join(first.group, protocols={"range": b""}), 3)
    assert answer.error_code == INCONSISTENT_PROTOCOL


def test_an_old_generation_is_refused(
    connect: Callable[[], RawMember], wire: Wire, topic: str
) -> None:
    first, second = connect(), connect()
    first.join()
    first.sync({first.member_id: b"1"})
    assert first.commit(topic, 3) == 0
    second_joins(first, second)
    old = first.generation - 1
    assert first.heartbeat(generation=old) == ILLEGAL_GENERATION
    assert first.commit(topic, 4, generation=old) == ILLEGAL_GENERATION
    nobody = commit(first.group, topic, 5, member_id="nobody", generation=first.generation)
    assert commit_code(wire.call(nobody, 8)) == UNKNOWN_MEMBER_ID
    simple = commit(first.group, topic, 6)
    assert commit_code(wire.call(simple, 8)) == UNKNOWN_MEMBER_ID


def test_groups_of_other_types_are_listed_with_it(
    connect: Callable[[], RawMember], wire: Wire
) -> None:
    member = connect()
    member.join()
    member.sync({member.member_id: b"1"})
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    (found,) = (g for g in wire.call(request, 5).groups if g.group_id == member.group)
    assert (found.protocol_type, found.group_state) == ("connect", "Stable")
    assert found.group_type.lower() == "classic"


def test_members_with_an_assignor_of_their_own_are_led_by_one_of_them(
    bootstrap: str, members: Members, make_topic: Callable[[], str], group: str
) -> None:
    topics = [make_topic() for _ in range(4)]
    both = [members("kafka_python-custom", group, *topics) for _ in range(2)]
    for member in both:
        member.run()
    wait(
        lambda: sorted(len(m.assigned) for m in both) == [2, 2],
        lambda: f"two topics each, not {[sorted(m.assigned) for m in both]} of {topics}",
    )
    for topic in topics:
        fill(bootstrap, topic, 20)
    wait(lambda: sum(len(m.records) for m in both) == 80, "all of them")
    assert set(everything(both).values()) == {4}
    both[0].close()
    both[1].wait(lambda: both[1].assigned == set(topics), "all topics")
    eventually(lambda: [lag(bootstrap, group, topic) for topic in topics] == [0] * 4, "committed")
