"""Offsets while sharing: what a member, an admin and a lag tool are told, and what seeking does.

A member sees offsets of its own pull log, which mean nothing to anybody else. Tools see sequences: the
lowest that is not acked. A member that seeks to a plain offset reads there, like any reader; it takes no
lease, and its commit of such a position is answered and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.groups.stories import (
    PULL,
    committed,
    everything,
    fill,
    lag,
    offsets_name_one_message,
    values,
)
from compat_tests.members.fixture import CLIENTS, Members
from compat_tests.members.remote import wait
from compat_tests.support import T0, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")


@pytest.mark.parametrize("variant", CLIENTS)
def test_a_plain_offset_read_by_a_member_takes_no_lease(
    bootstrap: str, members: Members, topic: str, shared: str, variant: str
) -> None:
    sent = fill(bootstrap, topic, 300)
    member = members(variant, shared, topic, max_poll_records=20)
    done = member.take(20)
    assert all(record.offset >= PULL for record in done)
    member.do("commit")
    member.do("seek", topic, 200)
    read = member.take(20)
    assert [(record.offset, record.value) for record in read] == list(enumerate(sent))[200:220]
    member.do("commit")
    member.do("seek", topic, "beginning")
    assert values(member.take(20)) == sent[:20]
    member.close()
    assert committed(bootstrap, shared, topic) == 20, "neither seek nor commit there has moved it"
    other = members("confluent-range", shared, topic)
    other.run()
    other.wait(lambda: len(other.records) == 280, "all that was never committed")
    assert set(other.values()) == set(sent) - set(values(done))


@pytest.mark.parametrize("variant", CLIENTS)
def test_positions_of_a_member_are_its_own_and_times_and_ends_are_sequences(
    bootstrap: str, members: Members, topic: str, shared: str, variant: str
) -> None:
    fill(bootstrap, topic, 100)
    member = members(variant, shared, topic, max_poll_records=20)
    got = member.take(20)
    position = member.offset("position", topic)
    assert position == got[-1].offset + 1
    member.do("commit")
    assert member.offset("committed", topic) == position
    assert member.ends(topic) == (0, 100)
    assert member.offset("at", topic, T0 + 500) == 50
    member.do("seek", topic, position)
    assert len(member.take(20)) == 20
    assert {record.value for record in member.records} == {str(n) for n in range(40)}


def test_paused_members_keep_their_place(
    bootstrap: str, members: Members, topic: str, shared: str
) -> None:
    crowd = [members(variant, shared, topic) for variant in CLIENTS]
    for member in crowd:
        member.run()
    wait(lambda: all(topic in member.assigned for member in crowd), "all hold the subject")
    for member in crowd[1:]:
        member.do("pause", topic)
    written = len(fill(bootstrap, topic, 500))
    for member in crowd[1:]:
        member.do("resume", topic)
    wait(lambda: len(everything(crowd)) == written, "all of them")
    assert everything(crowd).total() == written


def test_a_tool_sees_the_lowest_sequence_that_is_not_acked(
    bootstrap: str, members: Members, topic: str, shared: str
) -> None:
    fill(bootstrap, topic, 400)
    slow = members("java-range", shared, topic, max_poll_records=10)
    first = slow.take(10)
    quick = members("kafka_python-range", shared, topic)
    quick.run()
    quick.wait(lambda: len(quick.records) >= 200, "half of them, or more")
    lowest = min(int(record.value) for record in first)
    assert committed(bootstrap, shared, topic) == lowest == 0
    assert lag(bootstrap, shared, topic) == 400
    slow.run()
    wait(lambda: len(everything([slow, quick])) == 400, "all of them")
    eventually(lambda: lag(bootstrap, shared, topic) == 0, "the lag goes to nothing")


def test_a_member_that_is_alone_and_idle_shows_no_lag(
    bootstrap: str, members: Members, topic: str, shared: str
) -> None:
    member = members("aiokafka-range", shared, topic)
    member.run()
    member.wait_assigned(topic)
    for _ in range(3):
        fill(bootstrap, topic, 5)
        eventually(lambda: lag(bootstrap, shared, topic) == 0, "the lag goes to nothing")


def test_offsets_never_name_two_messages(
    bootstrap: str, members: Members, topic: str, shared_groups: Callable[[], str]
) -> None:
    fill(bootstrap, topic, 300)
    for _ in range(2):
        group = shared_groups()
        for variant in ("confluent-range", "kafka_python-range", "aiokafka-range"):
            member = members(variant, group, topic, max_poll_records=50)
            member.take(50)
            member.close()
    offsets_name_one_message(members.made)
