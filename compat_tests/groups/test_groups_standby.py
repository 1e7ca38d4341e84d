"""Several members, one partition, Kafka's way: one reads in order, the others stand by and take over.

On Kumquat the group is set to `consume.mode=exclusive`; test_groups_sharing.py tells what it does else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.groups.stories import committed, everything, fill, have_read, lag
from compat_tests.members.fixture import EACH_VARIANT, Members
from compat_tests.members.remote import Member, wait
from compat_tests.support import SESSION_MS, mostly_long

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 300


def owner(members: list[Member], topic: str) -> Member:
    """The one that holds the topic, once exactly one does."""

    def one() -> bool:
        return sum(topic in member.assigned for member in members) == 1

    wait(one, f"one of {members} holds the topic")
    return next(member for member in members if topic in member.assigned)


def in_order(member: Member) -> bool:
    offsets = [record.offset for record in member.records]
    return offsets == sorted(offsets)


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_a_member_that_stands_by_takes_over_where_the_owner_left(
    bootstrap: str, members: Members, topic: str, exclusive: str, variant: str
) -> None:
    both = [members(variant, exclusive, topic) for _ in range(2)]
    sent = fill(bootstrap, topic, COUNT)
    for member in both:
        member.run()
    wait(lambda: len(everything(both)) == COUNT, "the first ones")
    first = owner(both, topic)
    (second,) = (member for member in both if member is not first)
    first.close()
    second.wait_assigned(topic)
    sent += fill(bootstrap, topic, COUNT, first=COUNT)
    wait(lambda: len(everything(both)) == 2 * COUNT, "the others")
    assert everything(both).keys() == set(sent)
    assert in_order(first)
    assert in_order(second)
    assert max(record.offset for record in second.records) == 2 * COUNT - 1
    second.stop()
    assert lag(bootstrap, exclusive, topic) == 0


@pytest.mark.long
@pytest.mark.parametrize("variant", ["confluent-range", "aiokafka-range"])
def test_what_a_killed_owner_had_not_committed_is_read_again(
    bootstrap: str, members: Members, topic: str, exclusive: str, variant: str
) -> None:
    sent = fill(bootstrap, topic, COUNT)
    settings: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "max_poll_records": 50}
    first = members(variant, exclusive, topic, alone=True, **settings)
    first.take(50)
    first.do("commit")
    first.take(50)
    second = members("kafka_python-range", exclusive, topic)
    first.kill()
    second.run()
    second.wait(lambda: len(second.records) == COUNT - 50, "all that was not committed")
    assert second.values() == sent[50:]


@pytest.mark.parametrize(
    "variant",
    mostly_long(["aiokafka-range", "java-range", "kafka_python-range"], short=["aiokafka-range"]),
)
def test_a_frozen_owner_loses_its_place_and_its_late_commit_changes_nothing(
    bootstrap: str, members: Members, topic: str, exclusive: str, variant: str
) -> None:
    fill(bootstrap, topic, COUNT)
    settings: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "max_poll_records": 50}
    first = members(variant, exclusive, topic, alone=True, **settings)
    first.take(50)
    first.freeze()
    second = members("confluent-range", exclusive, topic)
    second.run()
    second.wait(lambda: len(second.records) == COUNT, "all, since nothing was committed")
    second.stop()
    second.do("commit")
    first.thaw()
    with pytest.raises(Exception, match=r"(?i)commit|generation|member|rebalanc|illegal"):
        first.do("commit")
    assert committed(bootstrap, exclusive, topic) == COUNT


def test_members_of_all_clients_stand_by_for_each_other(
    bootstrap: str, members: Members, topic: str, exclusive: str
) -> None:
    """Classic clients with one way of assigning in common, as Kafka wants it."""
    variants = ["confluent-range", "java-range", "aiokafka-range", "kafka_python-range"]
    crowd = [members(variant, exclusive, topic) for variant in variants]
    for member in crowd:
        member.run()
    sent: list[str] = []
    while crowd:
        sent += fill(bootstrap, topic, 50, first=len(sent))
        wait(partial(have_read, members.made, len(sent)), "the next fifty")
        reader = owner(crowd, topic)
        crowd.remove(reader)
        reader.close()
    assert everything(members.made).keys() == set(sent)
    assert all(member.records and in_order(member) for member in members.made)
    assert lag(bootstrap, exclusive, topic) == 0


@pytest.mark.parametrize("strategy", ["cooperative", "consumer"])
def test_several_topics_are_spread_over_the_members(
    bootstrap: str,
    members: Members,
    make_topic: Callable[[], str],
    exclusive: str,
    strategy: str,
) -> None:
    topics = [make_topic() for _ in range(4)]
    for topic in topics:
        fill(bootstrap, topic, 10)
    first = members(f"java-{strategy}", exclusive, *topics)
    first.run()
    first.wait(lambda: len(first.records) == 40, "all of them")
    second = members(f"confluent-{strategy}", exclusive, *topics)
    second.run()
    both = [first, second]
    wait(lambda: [len(member.assigned) for member in both] == [2, 2], "two topics each")
    assert first.assigned | second.assigned == set(topics)
    for topic in topics:
        fill(bootstrap, topic, 10, first=10)
    wait(lambda: sum(map(len, (m.records for m in both))) >= 80, "the new ones")
    second.close()
    first.wait(lambda: first.assigned == set(topics), "all topics again")
