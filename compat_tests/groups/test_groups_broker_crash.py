"""kill -9 of the broker: members go on without rejoining, and what was committed never comes back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from compat_tests.groups.stories import (
    configure,
    fill,
    have_read,
    lag,
    offsets_name_one_message,
)
from compat_tests.members.fixture import VARIANTS, Hosts, Members
from compat_tests.members.remote import wait
from compat_tests.support import SESSION_MS, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.testing import TestBroker

pytestmark = [
    pytest.mark.differs("Kafka gives a partition to one member of a group"),
    pytest.mark.kumquat(
        group_min_session_timeout_ms=1000,
        group_consumer_session_timeout_ms=60_000,
        group_consumer_heartbeat_interval_ms=300,
    ),
]
TOPIC = "orders"
GROUP = "workers"
CRASHES = 3


@pytest.fixture
def crew(kumquat: TestBroker, hosts: Hosts) -> Iterator[Members]:
    made = Members(kumquat.bootstrap, hosts)
    yield made
    made.close()


def test_members_go_on_without_rejoining(kumquat: TestBroker, crew: Members) -> None:
    configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared"})
    written = len(fill(kumquat.bootstrap, TOPIC, 100))
    everyone = [crew(variant, GROUP, TOPIC) for variant in VARIANTS]
    for member in everyone:
        member.run()
    wait(lambda: all(TOPIC in member.assigned for member in everyone), "all hold the subject")
    callbacks = [list(member.callbacks) for member in everyone]
    for _ in range(CRASHES):
        kumquat.kill()
        kumquat.start()
        written += len(fill(kumquat.bootstrap, TOPIC, 300, first=written))
        wait(partial(have_read, everyone, written), "all of them")
    assert [member.callbacks for member in everyone] == callbacks
    offsets_name_one_message(everyone)
    for (
        member
    ) in everyone:  # the last commit may have failed with the broker, and there is no next one
        member.do("commit")
    eventually(lambda: lag(kumquat.bootstrap, GROUP, TOPIC) == 0, "all is committed")


@pytest.mark.long
@pytest.mark.kumquat(
    group_min_session_timeout_ms=1000,
    group_consumer_session_timeout_ms=SESSION_MS,
    group_consumer_heartbeat_interval_ms=300,
)
def test_what_was_committed_never_comes_back(kumquat: TestBroker, crew: Members) -> None:
    configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared"})
    sent = fill(kumquat.bootstrap, TOPIC, 900)
    committed: set[str] = set()
    given: list[str] = []
    for variant in ("confluent-range", "java-consumer", "kafka_python-cooperative"):
        # A client that has not met the new broker yet cannot tell it that it leaves: its session ends.
        member = crew(variant, GROUP, TOPIC, max_poll_records=100, session_timeout_ms=SESSION_MS)
        done = member.take(100)
        member.do("commit")
        assert not committed & set(member.values()), "what was committed came back"
        committed |= {record.value for record in done}
        given += member.values()
        kumquat.kill()
        kumquat.start()
        member.close()
    last = crew("aiokafka-range", GROUP, TOPIC)
    last.run()
    last.wait(lambda: len(last.records) >= 900 - len(committed), "the rest")
    assert set(last.values()) == set(sent) - committed
    offsets_name_one_message(crew.made)
    eventually(lambda: lag(kumquat.bootstrap, GROUP, TOPIC) == 0, "all is committed")


def test_a_group_that_reads_in_order_goes_on_in_order(kumquat: TestBroker, crew: Members) -> None:
    written = len(fill(kumquat.bootstrap, TOPIC, 100))
    member = crew("java-cooperative", GROUP, TOPIC)
    member.run()
    for _ in range(CRASHES):
        member.wait(partial(have_read, [member], written), "all of them")
        kumquat.kill()
        kumquat.start()
        written += len(fill(kumquat.bootstrap, TOPIC, 100, first=written))
    member.wait(partial(have_read, [member], written), "all of them")
    offsets = [record.offset for record in member.records]
    assert offsets == list(range(written))


@pytest.mark.long
def test_a_member_that_died_with_the_broker_is_missed_after_its_session(
    kumquat: TestBroker, crew: Members
) -> None:
    """Sessions are durable, and their clocks begin again with the broker."""
    configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared"})
    sent = fill(kumquat.bootstrap, TOPIC, 200)
    victim = crew("confluent-range", GROUP, TOPIC, alone=True, session_timeout_ms=SESSION_MS)
    victim.take(50)
    kumquat.kill()
    victim.kill()
    kumquat.start()
    other = crew("kafka_python-range", GROUP, TOPIC)
    other.run()
    other.wait(lambda: len(other.records) == 200, "all, since nothing was committed")
    assert set(other.values()) == set(sent)
