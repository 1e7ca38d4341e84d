"""`consume.mode=auto`, the default: a group of one reads in order, from the second member on they share.

The moves from one to the other and back, with every client: nothing is lost, nothing comes twice that was
committed, nothing is left unacked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.groups.stories import (
    PULL,
    committed,
    configure,
    everything,
    fill,
    lag,
    unexplained,
)
from compat_tests.members.fixture import EACH_VARIANT, Members
from compat_tests.members.remote import Failed, Member, wait
from compat_tests.support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")


def shares(member: Member, since: int = 0) -> bool:
    """Whether it was given something through a pull log."""
    return any(record.offset >= PULL for record in member.records[since:])


def one_then_two(
    bootstrap: str, members: Members, topic: str, group: str, variants: tuple[str, str]
) -> tuple[Member, Member]:
    """The first is in the middle of its work when the second comes; returns when both share."""
    fill(bootstrap, topic, 500)
    first = members(variants[0], group, topic, max_poll_records=20)
    first.run(handler_ms=0.5)
    first.wait(lambda: len(first.records) >= 100, "its first records")
    assert not shares(first)
    second = members(variants[1], group, topic, max_poll_records=20)
    second.run(handler_ms=0.5)
    written = 500

    def both_share() -> bool:
        nonlocal written
        written += len(fill(bootstrap, topic, 20, first=written))
        return shares(first) and shares(second)

    eventually(both_share, "both share")
    wait(lambda: len(everything([first, second])) == written, "all of them")
    return first, second


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_the_moves_from_one_member_to_two_and_back_lose_nothing(
    bootstrap: str, members: Members, topic: str, group: str, variant: str
) -> None:
    configure(bootstrap, group, **{"auto.exclusive.after.ms": "500"})
    first, second = one_then_two(bootstrap, members, topic, group, (variant, variant))
    assert not unexplained([first, second])
    second.close()
    seen = len(first.records)
    written = len(everything([first, second]))

    def in_order_again() -> bool:
        nonlocal written
        written += len(fill(bootstrap, topic, 5, first=written))
        return any(record.offset < PULL for record in first.records[seen:])

    eventually(in_order_again, "the one that is left is back on plain offsets")
    wait(lambda: len(everything([first, second])) == written, "all of them")
    back = next(i for i, record in enumerate(first.records[seen:]) if record.offset < PULL)
    plain = first.records[seen + back :]
    offsets = [record.offset for record in plain]
    assert offsets == list(range(offsets[0], written)), "in order, from there to the end"
    assert [record.value for record in plain] == [str(offset) for offset in offsets]
    first.close()
    assert committed(bootstrap, group, topic) == written
    assert lag(bootstrap, group, topic) == 0


def test_a_second_member_stands_by_until_the_group_has_a_place(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    """Where a group begins is the first member's to say, and it says so by its first commit."""
    sent = fill(bootstrap, topic, 100)
    first = members("kafka_python-range", group, topic, max_poll_records=10)
    first.run(commit="never")
    first.wait(lambda: len(first.records) == 100, "all of them")
    second = members("confluent-consumer", group, topic)
    second.run()
    first.stop()

    def committed_some() -> bool:
        try:
            first.do("commit", topic, 40, "")
        except Failed:  # the second one joins: the first has to poll before it may commit
            first.run(commit="never")
            first.stop()
            return False
        return True

    eventually(committed_some, "the first commit")
    first.run()
    wait(lambda: everything([first, second]).total() >= 160, "what was not committed, again")
    assert everything([first, second]).keys() == set(sent)
    assert not {record.value for record in second.records} & set(sent[:40])


def test_a_rolling_deploy_that_starts_the_new_one_first_loses_nothing(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    configure(bootstrap, group, **{"auto.exclusive.after.ms": "300"})
    written = len(fill(bootstrap, topic, 100))
    running = members("confluent-cooperative", group, topic)
    running.run()
    for variant in ("java-consumer", "aiokafka-range", "kafka_python-cooperative"):
        replacement = members(variant, group, topic)
        replacement.run()
        written += len(fill(bootstrap, topic, 100, first=written))
        replacement.wait_assigned(topic)
        running.close()
        running = replacement
        written += len(fill(bootstrap, topic, 100, first=written))
    wait(lambda: len(everything(members.made)) == written, "all of them")
    assert not unexplained(members.made)
    running.stop()
    eventually(lambda: lag(bootstrap, group, topic) == 0, "all is committed")


def test_the_modes_are_set_while_members_are_at_work(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    both = [members(variant, group, topic) for variant in ("java-range", "confluent-consumer")]
    configure(bootstrap, group, **{"consume.mode": "exclusive"})
    for member in both:
        member.run()
    written = len(fill(bootstrap, topic, 100))
    wait(lambda: len(everything(both)) == written, "all of them")
    assert sum(bool(member.records) for member in both) == 1
    configure(bootstrap, group, **{"consume.mode": "shared"})

    def both_share() -> bool:
        nonlocal written
        written += len(fill(bootstrap, topic, 20, first=written))
        return all(shares(member) for member in both)

    eventually(both_share, "both share")
    wait(lambda: len(everything(both)) == written, "all of them")
    configure(bootstrap, group, **{"consume.mode": "exclusive"})
    seen = [len(member.records) for member in both]

    def one_reads_plain() -> bool:
        nonlocal written
        written += len(fill(bootstrap, topic, 20, first=written))
        return any(
            record.offset < PULL
            for member, count in zip(both, seen, strict=True)
            for record in member.records[count:]
        )

    eventually(one_reads_plain, "one of them reads in order")
    wait(lambda: len(everything(both)) == written, "all of them")
    assert not unexplained(both)


def test_a_subject_can_say_how_groups_read_it(
    bootstrap: str, members: Members, make_topic: Callable[..., str], names: Callable[[], str]
) -> None:
    topic = make_topic(**{"consume.mode": "shared"})
    sent = fill(bootstrap, topic, 200)
    alone = members("aiokafka-range", names(), topic)
    alone.run()
    alone.wait(lambda: len(alone.records) == 200, "all of them")
    assert shares(alone)
    group = names()
    configure(bootstrap, group, **{"consume.mode": "exclusive"})
    ordered = members("aiokafka-range", group, topic)
    ordered.run()
    ordered.wait(lambda: len(ordered.records) == 200, "all of them")
    assert ordered.values() == sent
    assert not shares(ordered)


@pytest.mark.parametrize(("reset", "begins"), [("earliest", 0), ("latest", 100)])
def test_a_shared_group_begins_where_its_config_says(
    bootstrap: str, members: Members, topic: str, group: str, reset: str, begins: int
) -> None:
    """The members' own auto.offset.reset is never asked: all are given pull offsets."""
    fill(bootstrap, topic, 100)
    configure(bootstrap, group, **{"consume.mode": "shared", "consume.auto.offset.reset": reset})
    both = [
        members(variant, group, topic, auto_offset_reset="none")
        for variant in ("java-cooperative", "kafka_python-range")
    ]
    for member in both:
        member.run()
    wait(lambda: all(topic in member.assigned for member in both), "both hold the subject")
    sent = fill(bootstrap, topic, 100, first=100)
    wanted = {str(number) for number in range(begins, 200)}
    wait(lambda: set(sent) <= everything(both).keys(), "the new ones")
    wait(lambda: everything(both).keys() == wanted, "what is wanted")
