"""Raw frames to a group that shares: no request may put a member onto plain offsets, or ack too much.

The rules that hold real clients on their pull logs, at their edges: connections that are cut or mixed,
slots that are gone, offsets that were never given.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.record import MemoryRecords

from compat_tests.groups.stories import PULL, committed, fill
from compat_tests.support import eventually
from compat_tests.wire.connection import Message, Wire, fetch, fetched
from compat_tests.wire.members import (
    COORDINATOR_LOADING,
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    RawMember,
    fetched_offset,
    offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")
COUNT = 1000


@pytest.fixture
def wires(bootstrap: str) -> Iterator[Callable[[], Wire]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Wire(bootstrap))


@pytest.fixture
def sharer(
    bootstrap: str, wires: Callable[[], Wire], shared: str, topic: str
) -> Callable[[], RawMember]:
    """Makes members that hold the subject and have not asked for their position yet."""
    fill(bootstrap, topic, COUNT)

    def make() -> RawMember:
        member = RawMember(wires(), shared, topic)
        member.rejoin_until(lambda topics: topics == [topic])
        return member

    return make


def position(member: RawMember, topic: str, wire: Wire | None = None) -> int:
    answer = (wire or member.wire).call(offsets(member.group, topic), 7)
    code, partition_code, offset, _ = fetched_offset(answer, 7)
    assert (code, partition_code) == (0, 0)
    return offset


def read(wire: Wire, topic: str, offset: int, wait_ms: int = 500) -> Message:
    """A Fetch there. Never an error, whatever the offset."""
    answer = fetched(wire.call(fetch(topic, offset, max_wait_ms=wait_ms), 12))
    assert answer.error_code == 0
    return answer


def records(answer: Message) -> list[tuple[int, str]]:
    found = []
    batches = MemoryRecords(bytes(answer.records or b""))
    while (batch := batches.next_batch()) is not None:
        found += [(record.offset, record.value.decode()) for record in batch]
    return found


def test_a_position_asked_on_another_connection_waits_until_that_is_the_members(
    sharer: Callable[[], RawMember], wires: Callable[[], Wire], topic: str
) -> None:
    """Some clients join on one connection and ask for offsets on another."""
    member, other = sharer(), wires()
    for version in range(2, 10):
        code, partition_code, offset, _ = fetched_offset(
            other.call(offsets(member.group, topic), version), version
        )
        assert COORDINATOR_LOADING in (code, partition_code), version
        assert offset < 0
    assert member.heartbeat(other) == 0
    assert position(member, topic, other) >= PULL


def test_a_connection_cut_between_sync_and_offset_fetch_gives_no_plain_offset(
    sharer: Callable[[], RawMember], wires: Callable[[], Wire], topic: str
) -> None:
    member = sharer()
    member.wire.socket.close()
    member.wire = wires()
    answer = member.wire.call(offsets(member.group, topic), 7)
    assert fetched_offset(answer, 7)[0] == COORDINATOR_LOADING
    assert member.heartbeat() == 0
    assert position(member, topic) >= PULL


def test_admins_are_answered_when_the_members_have_their_positions(
    sharer: Callable[[], RawMember], bootstrap: str, topic: str
) -> None:
    member = sharer()
    begins = position(member, topic)
    assert committed(bootstrap, member.group, topic) == 0
    got = records(read(member.wire, topic, begins))
    assert member.commit(topic, got[9][0] + 1) == 0
    assert committed(bootstrap, member.group, topic) == 10


@pytest.mark.long
def test_a_member_that_never_asks_for_its_position_is_told_to_come_again(
    sharer: Callable[[], RawMember],
) -> None:
    """It may have forgotten that it was given something, and fetch where it was before."""
    member = sharer()
    eventually(lambda: member.heartbeat() == REBALANCE_IN_PROGRESS, "it is told to rejoin")


def test_each_member_has_a_pull_log_of_its_own_and_reads_the_same_again(
    sharer: Callable[[], RawMember], topic: str
) -> None:
    members = [sharer() for _ in range(3)]
    begins = [position(member, topic) for member in members]
    assert len({offset >> 48 for offset in begins}) == 3
    given = [
        records(read(member.wire, topic, offset))
        for member, offset in zip(members, begins, strict=True)
    ]
    assert all(given)
    seen = [value for got in given for _, value in got]
    assert len(seen) == len(set(seen)), "each message went to one"
    for member, got in zip(members, given, strict=True):
        middle = got[len(got) // 2]
        assert records(read(member.wire, topic, got[0][0]))[: len(got)] == got
        assert records(read(member.wire, topic, middle[0]))[0] == middle
        assert position(member, topic) == got[0][0]


def test_commits_that_ack_nothing_are_answered_without_an_error(
    sharer: Callable[[], RawMember], bootstrap: str, topic: str
) -> None:
    member, other = sharer(), sharer()
    first, second = position(member, topic), position(other, topic)
    got = records(read(member.wire, topic, first))
    taken = records(read(other.wire, topic, second))
    end = got[-1][0] + 1
    for offset in (0, 5, -1, COUNT, taken[-1][0] + 1, end + 1, end + 10_000, first, PULL * 40):
        assert member.commit(topic, offset) == 0, offset
        assert position(member, topic) == first, offset
    assert committed(bootstrap, member.group, topic) == 0
    assert member.commit(topic, end) == 0
    assert position(member, topic) == end
    assert position(other, topic) == second


def test_commits_of_the_wrong_member_or_generation_are_refused(
    sharer: Callable[[], RawMember], topic: str
) -> None:
    member = sharer()
    begins = position(member, topic)
    end = records(read(member.wire, topic, begins))[-1][0] + 1
    assert member.commit(topic, end, generation=member.generation + 5) == ILLEGAL_GENERATION
    name, member.member_id = member.member_id, "nobody"
    assert member.commit(topic, end) == UNKNOWN_MEMBER_ID
    member.member_id = name
    assert position(member, topic) == begins
    member.leave()
    assert member.commit(topic, end) == UNKNOWN_MEMBER_ID


def test_a_slot_whose_member_is_gone_gives_nothing_and_no_error(
    sharer: Callable[[], RawMember], wires: Callable[[], Wire], topic: str
) -> None:
    member, wire = sharer(), wires()
    begins = position(member, topic)
    given = records(read(wire, topic, begins))
    assert member.commit(topic, begins) == 0
    member.leave()
    for offset in (begins, given[-1][0] + 1, PULL * 30_000 + 7, PULL, (1 << 63) - 1):
        answer = read(wire, topic, offset, wait_ms=50)
        assert records(answer) == []
        assert answer.high_watermark == offset
    heir = sharer()
    again = records(read(wire, topic, position(heir, topic)))
    assert again[0][1] == given[0][1], "what it had not committed goes to others first"
    assert again[0][0] > given[-1][0]


def test_the_high_watermark_tells_the_lag_in_the_members_own_offsets(
    sharer: Callable[[], RawMember], topic: str
) -> None:
    member = sharer()
    answer = read(member.wire, topic, position(member, topic))
    last = records(answer)[-1][0]
    assert last < answer.high_watermark <= last + 1 + COUNT
    assert answer.log_start_offset <= last


def test_no_leader_epoch_check_tells_a_member_to_truncate(
    sharer: Callable[[], RawMember], topic: str
) -> None:
    member = sharer()
    begins = position(member, topic)
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = asked.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[asked(topic=topic, partitions=[partition])]
    )
    assert member.wire.call(request, 3).topics[0].partitions[0].error_code == 0
    answer = fetched(member.wire.call(fetch(topic, begins), 12))
    assert answer.diverging_epoch is None or answer.diverging_epoch.epoch == -1
    batch = bytes(answer.records)
    assert int.from_bytes(batch[12:16], "big", signed=True) == -1, "no leader epoch in a batch"


def test_a_hundred_members_join_at_once(
    sharer: Callable[[], RawMember], wires: Callable[[], Wire], shared: str, topic: str
) -> None:
    members = [RawMember(wires(), shared, topic) for _ in range(100)]
    for member in members:
        member.start_join()
    for member in members:
        member.finish_join()
        member.wire.send(member.syncing(), 5)
    for member in members:
        assert member.wire.receive().error_code == 0
    slots = {position(member, topic) >> 48 for member in members}
    assert len(slots) == 100
    assert 0 not in slots
