"""Several members share one subject: each message goes to one of them, and every message to one.

What only Kumquat does. The groups here are set to `consume.mode=shared`, so that sharing begins with the
first member; the way there from a group of one is told in test_groups_auto.py.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.groups.stories import (
    committed,
    configure,
    everything,
    fill,
    have_read,
    lag,
    until_each_has_some,
)
from compat_tests.members.fixture import EACH_VARIANT, VARIANTS, Hosts, Members
from compat_tests.members.remote import Failed, Member, wait
from compat_tests.support import SESSION_MS, eventually, mostly_long

if TYPE_CHECKING:
    from collections.abc import Callable

    from kumquat.testing import TestBroker

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")
COUNT = 2000
MIXED = [
    "confluent-consumer",
    "java-cooperative",
    "kafka_python-range",
    "aiokafka-range",
    "java-consumer",
    "confluent-cooperative",
]


def assert_each_went_to_one(members: list[Member], written: int) -> None:
    given = everything(members)
    assert given.keys() == {str(number) for number in range(written)}, "not what was written"
    twice = [value for value, times in given.items() if times > 1]
    assert not twice, f"{len(twice)} came more than once: {twice[:10]}"


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_each_message_goes_to_one_member(
    bootstrap: str, members: Members, topic: str, shared: str, variant: str
) -> None:
    crowd = [members(variant, shared, topic) for _ in range(3)]
    for member in crowd:
        member.run(handler_ms=0.2)
    wait(lambda: all(topic in member.assigned for member in crowd), "all hold the subject")
    written = until_each_has_some(bootstrap, topic, crowd, batch=len(crowd))
    written += len(fill(bootstrap, topic, COUNT, first=written))
    wait(lambda: len(everything(crowd)) == written, "all of them")
    assert_each_went_to_one(crowd, written)
    for member in crowd:
        member.close()
    assert not any(member.uncommitted for member in crowd)
    assert lag(bootstrap, shared, topic) == 0


def test_members_of_all_clients_share_in_one_group(
    bootstrap: str, members: Members, topic: str, shared: str
) -> None:
    crowd = [members(variant, shared, topic) for variant in VARIANTS]
    for member in crowd:
        member.run()
    wait(lambda: all(topic in member.assigned for member in crowd), "all hold the subject")
    written = until_each_has_some(bootstrap, topic, crowd, batch=len(crowd))
    written += len(fill(bootstrap, topic, COUNT, first=written, batch=50))
    wait(lambda: len(everything(crowd)) == written, "all of them")
    assert_each_went_to_one(crowd, written)
    eventually(lambda: lag(bootstrap, shared, topic) == 0, "all is committed")


@pytest.mark.parametrize("count", [2, 5])
def test_members_that_wait_each_get_some_of_large_batches(
    bootstrap: str, members: Members, topic: str, shared: str, count: int
) -> None:
    """How much each gets hangs on how quick the clients are. That members of one pace get between a half
    and one and a half of their share is told where the pace is known: in gateway/tests/sharing and
    core/delivery/tests/test_policy.py."""
    crowd = [members(variant, shared, topic) for variant in MIXED[:count]]
    for member in crowd:
        member.run(handler_ms=0.5)
    wait(lambda: all(topic in member.assigned for member in crowd), "all hold the subject")
    written = until_each_has_some(bootstrap, topic, crowd, batch=1000)
    wait(lambda: len(everything(crowd)) == written, "all of them")
    assert_each_went_to_one(crowd, written)


def test_what_a_member_left_uncommitted_goes_to_the_others(
    bootstrap: str, members: Members, topic: str, shared: str
) -> None:
    sent = fill(bootstrap, topic, 400)
    first = members("java-range", shared, topic, max_poll_records=50)
    done = first.take(50)
    first.do("commit")
    first.take(50)
    first.close()
    second = members("confluent-range", shared, topic)
    second.run()
    second.wait(lambda: len(second.records) == 350, "the rest")
    assert set(second.values()) == set(sent) - {record.value for record in done}
    second.stop()
    assert lag(bootstrap, shared, topic) == 0


@pytest.mark.parametrize(
    "variant",
    mostly_long(["confluent-range", "kafka_python-cooperative"], short=["confluent-range"]),
)
def test_what_a_killed_member_had_not_committed_goes_to_the_others(
    bootstrap: str, members: Members, topic: str, shared: str, variant: str
) -> None:
    kill_one(bootstrap, members, topic, shared, variant)


@pytest.mark.long
@pytest.mark.kumquat(group_consumer_session_timeout_ms=SESSION_MS, group_min_session_timeout_ms=1)
def test_what_a_killed_member_whose_session_is_the_brokers_had_goes_to_the_others(
    kumquat: TestBroker, hosts: Hosts
) -> None:
    members = Members(kumquat.bootstrap, hosts)
    configure(kumquat.bootstrap, "workers", **{"consume.mode": "shared"})
    try:
        kill_one(kumquat.bootstrap, members, "orders", "workers", "java-consumer")
    finally:
        members.close()


def kill_one(bootstrap: str, members: Members, topic: str, shared: str, variant: str) -> None:
    sent = fill(bootstrap, topic, 600)
    settings: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "max_poll_records": 20}
    victim = members(variant, shared, topic, alone=True, **settings)
    done = victim.take(20)
    victim.do("commit")
    victim.take(20)
    other = members("aiokafka-range", shared, topic)
    victim.kill()
    other.run()
    other.wait(lambda: len(other.records) == 600 - len(done), "all that was left behind")
    assert set(other.values()) == set(sent) - {record.value for record in done}
    eventually(lambda: lag(bootstrap, shared, topic) == 0, "all is committed")


@pytest.mark.parametrize(
    "variant",
    mostly_long(["aiokafka-range", "confluent-cooperative", "java-range"], short=["java-range"]),
)
def test_a_frozen_member_comes_back_to_new_messages_and_its_late_commit_acks_nothing(
    bootstrap: str, members: Members, topic: str, shared: str, variant: str
) -> None:
    fill(bootstrap, topic, 300)
    settings: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "max_poll_records": 20}
    frozen = members(variant, shared, topic, alone=True, **settings)
    frozen.take(20)
    frozen.freeze()
    other = members("kafka_python-range", shared, topic)
    other.run(commit="never")
    other.wait(lambda: len(other.records) == 300, "all, also what the frozen one had")
    before = committed(bootstrap, shared, topic)
    assert before == 0
    frozen.thaw()
    with suppress(Failed):
        frozen.do("commit")
    frozen.run()
    assert committed(bootstrap, shared, topic) == 0, "only the other one can ack these now"
    other.stop()
    other.do("commit")
    assert lag(bootstrap, shared, topic) == 0
    other.run()
    written = 300

    def frozen_gets_new_ones() -> bool:
        nonlocal written
        written += len(fill(bootstrap, topic, 20, first=written))
        return any(int(value) >= 300 for value in frozen.values())

    eventually(frozen_gets_new_ones, "the frozen one works again")
    wait(lambda: len(everything([frozen, other])) == written, "all new ones")


def test_any_number_of_groups_read_one_subject(
    bootstrap: str,
    members: Members,
    topic: str,
    shared_groups: Callable[[], str],
) -> None:
    sent = fill(bootstrap, topic, 500)
    crowds = []
    for _ in range(4):
        group = shared_groups()
        crowds.append([members(v, group, topic) for v in ("confluent-range", "aiokafka-range")])
    for crowd in crowds:
        for member in crowd:
            member.run()
    for crowd in crowds:
        wait(partial(have_read, crowd, len(sent)), "all of them")
        assert_each_went_to_one(crowd, len(sent))
