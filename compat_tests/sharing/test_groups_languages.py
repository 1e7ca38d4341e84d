"""sarama, kafka-go, franz-go and KafkaJS in groups that share, with nothing set for it.

sarama and kafka-go look whether the offset that they were given lies between the ends of the topic before
they fetch: see gateway/handlers/common/askers.py. All members here have one client id and come from one
address, as those of one program do.
"""

# The package is typed, but exports its admin names implicitly.
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.groups.stories import (
    PULL,
    admin,
    committed,
    everything,
    fill,
    have_read,
    lag,
    offsets_name_one_message,
)
from compat_tests.members.fixture import FRANZ, KAFKA_GO, KAFKA_JS, SARAMA, Hosts, Members
from compat_tests.members.remote import Member, wait
from compat_tests.support import DEADLINE, eventually, mostly_long

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

pytestmark = pytest.mark.differs("Kafka gives a partition to one member of a group")
COUNT = 30_000
OLD = 100
STRICT = {"sarama": {"reset_invalid": False}, "kafka_go": {"out_of_range_error": True}}
"""The client fails on an offset that it takes for invalid, where it would else reset or try again."""

CASES = [
    *((variant, False) for variant in (*SARAMA, *KAFKA_GO, *KAFKA_JS, *FRANZ)),
    *((variant, True) for variant in (*SARAMA, *KAFKA_GO)),
]
FEW = [(SARAMA[0], True), (KAFKA_GO[0], True), (KAFKA_JS[0], False), (FRANZ[3], False)]


def all_hold(members: list[Member], topic: str) -> None:
    """Wait until each member holds the subject: then all share it."""
    wait(lambda: all(topic in member.assigned for member in members), "all hold the subject")


def shares(member: Member) -> bool:
    return any(record.offset >= PULL for record in member.records)


def ends(bootstrap: str, topic: str) -> object:
    """As others are told them, also with the members' client id and address."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "client.id": "app"})
    try:
        return reader.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE)
    finally:
        reader.close()


def assert_each_once(members: list[Member], begin: int, end: int) -> None:
    given = everything(members)
    assert given.keys() == {str(number) for number in range(begin, end)}, "not what was written"
    assert given.total() == end - begin, "some came more than once"


@pytest.mark.parametrize("reset", mostly_long(["earliest", "latest"], short=["latest"]))
@pytest.mark.parametrize(("variant", "strict"), mostly_long(CASES, short=FEW))
def test_three_members_share_and_each_message_is_handled_once(
    bootstrap: str,
    members: Members,
    topic: str,
    group: str,
    variant: str,
    reset: str,
    strict: bool,
) -> None:
    settings: dict[str, Any] = {"client_id": "app", "auto_offset_reset": reset}
    if strict:
        settings |= STRICT[variant.partition("-")[0]]
    written = len(fill(bootstrap, topic, OLD))
    first = members(variant, group, topic, **settings)
    first.run()

    def begins() -> bool:
        nonlocal written
        written += len(fill(bootstrap, topic, 10, first=written))
        return bool(first.records)

    eventually(begins, "the first one reads")
    begin = int(first.records[0].value)
    assert (begin == 0) == (reset == "earliest")
    eventually(lambda: lag(bootstrap, group, topic) == 0, "it has committed all of it")
    assert not shares(first)
    crowd = [first, *(members(variant, group, topic, **settings) for _ in range(2))]
    for member in crowd:
        member.run()
    all_hold(crowd, topic)
    written += len(fill(bootstrap, topic, COUNT - written, first=written))
    wait(lambda: len(everything(crowd)) >= written - begin, "all of them", 2 * DEADLINE)
    assert_each_once(crowd, begin, written)
    assert all(shares(member) for member in crowd), crowd
    assert not any(member.broken for member in crowd), crowd
    assert ends(bootstrap, topic) == (0, written), "others are told sequences"
    eventually(lambda: lag(bootstrap, group, topic) == 0, "all is committed")
    for member in crowd:
        member.close()
    assert committed(bootstrap, group, topic) == written


@pytest.mark.long
@pytest.mark.parametrize("variant", [SARAMA[2], KAFKA_GO[1], KAFKA_JS[0], FRANZ[2]])
def test_members_that_come_and_go_amid_work_leave_nothing_behind(
    bootstrap: str, members: Members, topic: str, group: str, variant: str
) -> None:
    settings: dict[str, Any] = {"client_id": "app"}
    written = len(fill(bootstrap, topic, OLD))
    crowd = [members(variant, group, topic, **settings)]
    crowd[0].run()
    eventually(lambda: lag(bootstrap, group, topic) == 0, "the first one has committed")
    for _ in range(2):
        crowd.append(members(variant, group, topic, **settings))
        crowd[-1].run()
    all_hold(crowd, topic)
    for leaving in (crowd[0], crowd[1]):
        written += len(fill(bootstrap, topic, 2000, first=written))
        crowd.append(members(variant, group, topic, **settings))
        crowd[-1].run()
        leaving.close()
    wait(partial(have_read, crowd, written), "all of them")
    assert everything(crowd).keys() == {str(number) for number in range(written)}
    for member in crowd[1:]:
        assert all(record.offset >= PULL for record in member.records), "it slipped"
    offsets_name_one_message(crowd)
    eventually(lambda: lag(bootstrap, group, topic) == 0, "all is committed")


@pytest.mark.long
@pytest.mark.kumquat(group_min_session_timeout_ms=1000)
def test_clients_of_all_languages_go_on_sharing_when_the_broker_is_killed(
    kumquat: TestBroker, hosts: Hosts
) -> None:
    """They connect again, and some ask for the ends of the topic before a heartbeat tells who they are."""
    topic, group, bootstrap = "orders", "workers", kumquat.bootstrap
    crew = Members(bootstrap, hosts)
    try:
        written = len(fill(bootstrap, topic, OLD))
        variants = ["confluent-range", SARAMA[0], KAFKA_GO[0], KAFKA_JS[0], FRANZ[0], FRANZ[3]]
        # kafka-go comes back as another member: the first one's session has to end.
        settings: dict[str, Any] = {"client_id": "app", "session_timeout_ms": 6000}
        everyone = [crew(variants[0], group, topic, **settings)]
        everyone[0].run()
        eventually(lambda: lag(bootstrap, group, topic) == 0, "the first one has committed")
        for variant in variants[1:]:
            everyone.append(crew(variant, group, topic, **settings))
            everyone[-1].run()
        all_hold(everyone, topic)
        for _ in range(3):
            written += len(fill(bootstrap, topic, 500, first=written))
            kumquat.kill()
            kumquat.start()
            written += len(fill(bootstrap, topic, 500, first=written))
            wait(partial(have_read, everyone, written), "all of them")
        for member in everyone:
            assert all(record.offset >= PULL for record in member.records[OLD:]), member
        assert all(shares(member) for member in everyone), everyone
        offsets_name_one_message(everyone)
        admin.cache_clear()  # librdkafka's admin client waits in vain after several restarts
        eventually(lambda: lag(bootstrap, group, topic) == 0, "all is committed")
    finally:
        crew.close()
