"""A group's own life: its configs, what it leaves behind, what retention takes from under it."""

# The package is typed, but exports its admin names implicitly.
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from compat_tests.groups.stories import (
    admin,
    committed,
    configure,
    everything,
    fill,
    have_read,
    lag,
)
from compat_tests.members.fixture import Hosts, Members
from compat_tests.members.remote import wait
from compat_tests.support import DEADLINE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kumquat.testing import TestBroker


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    (done,) = admin(bootstrap).delete_records([TopicPartition(topic, 0, before)]).values()
    done.result(DEADLINE)


def described(bootstrap: str, group: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.GROUP, group)
    (found,) = admin(bootstrap).describe_configs([resource]).values()
    return {name: entry.value for name, entry in found.result(DEADLINE).items()}


@pytest.mark.differs("these configs are Kumquat's own")
def test_a_groups_configs_are_set_shown_and_checked(bootstrap: str, group: str) -> None:
    assert described(bootstrap, group)["consume.mode"] == "auto"
    configure(bootstrap, group, **{"consume.mode": "shared", "lease.max.records": "100"})
    shown = described(bootstrap, group)
    assert (shown["consume.mode"], shown["lease.max.records"]) == ("shared", "100")
    for name, value in (
        ("consume.mode", "both"),
        ("lease.max.records", "0"),
        ("consume.auto.offset.reset", "none"),
        ("retry.backoff.ms", "-1"),
        ("delivery.count.limit", "1001"),
        ("errors.deadletterqueue.topic.name", "dead letters"),
        ("no.such.config", "1"),
    ):
        with pytest.raises(KafkaException) as refused:
            configure(bootstrap, group, **{name: value})
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "default", "good", "bad"),
    [
        ("share.auto.offset.reset", "latest", "by_duration:P1DT2H", "by_duration:P1W"),
        ("share.delivery.count.limit", "5", "10", "11"),
        ("share.heartbeat.interval.ms", "5000", "15000", "15001"),
        ("share.isolation.level", "read_uncommitted", "read_committed", "all"),
        ("share.partition.max.record.locks", "2000", "4000", "4001"),
        ("share.record.lock.duration.ms", "30000", "15000", "14999"),
        ("share.renew.acknowledge.enable", "true", "false", "maybe"),
        ("share.session.timeout.ms", "45000", "60000", "60001"),
    ],
)
def test_the_configs_of_share_groups_have_kafkas_defaults_and_bounds(
    bootstrap: str, group: str, name: str, default: str, good: str, bad: str
) -> None:
    assert described(bootstrap, group)[name] == default
    configure(bootstrap, group, **{name: good})
    assert described(bootstrap, group)[name] == good
    with pytest.raises(KafkaException) as refused:
        configure(bootstrap, group, **{name: bad})
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert described(bootstrap, group)[name] == good


@pytest.mark.differs("these configs are Kumquat's own")
def test_a_lease_holds_no_more_than_the_group_allows(
    bootstrap: str, members: Members, topic: str, shared: str
) -> None:
    configure(bootstrap, shared, **{"lease.max.records": "7"})
    fill(bootstrap, topic, 100)
    hog = members("java-range", shared, topic, max_poll_records=500)
    assert len(hog.take(1)) <= 7


def test_a_group_for_each_instance_needs_no_commit_and_is_listed_as_empty_until_it_is_deleted(
    bootstrap: str, members: Members, topic: str, names: Callable[[], str]
) -> None:
    groups = [names() for _ in range(4)]
    variants = ["confluent-range", "java-consumer", "kafka_python-range", "aiokafka-range"]
    instances = [
        members(variant, group, topic, auto_offset_reset="earliest")
        for variant, group in zip(variants, groups, strict=True)
    ]
    for instance in instances:
        instance.run(commit="never")
    sent = fill(bootstrap, topic, 50)
    for instance in instances:
        instance.wait(partial(have_read, [instance], 50), "all of them")
        assert instance.values() == sent
        instance.close()

    def empty() -> set[str]:
        found = admin(bootstrap).list_consumer_groups().result(DEADLINE)
        listed = {each.group_id for each in found.valid if each.state == ConsumerGroupState.EMPTY}
        return listed & set(groups)

    eventually(lambda: empty() == set(groups), "all have left")
    for deleted in admin(bootstrap).delete_consumer_groups(groups).values():
        deleted.result(DEADLINE)
    assert not empty()


def test_a_group_whose_place_was_deleted_goes_on_at_the_first_that_is_left(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    sent = fill(bootstrap, topic, 100)
    first = members("confluent-range", group, topic, max_poll_records=10)
    first.take(10)
    first.do("commit")
    first.close()
    delete_records(bootstrap, topic, 60)
    second = members("java-range", group, topic)
    assert [record.value for record in second.take(40)] == sent[60:]
    second.do("commit")
    assert lag(bootstrap, group, topic) == 0


@pytest.fixture
def crew(kumquat: TestBroker, hosts: Hosts) -> Iterator[Members]:
    made = Members(kumquat.bootstrap, hosts)
    yield made
    made.close()


@pytest.mark.differs("Kafka gives a partition to one member of a group")
def test_a_cursor_that_retention_has_overtaken_is_loud(kumquat: TestBroker, crew: Members) -> None:
    bootstrap, topic, group = kumquat.bootstrap, "orders", "workers"
    configure(bootstrap, group, **{"consume.mode": "shared"})
    fill(bootstrap, topic, 100)
    first = crew("aiokafka-range", group, topic, max_poll_records=10)
    first.take(10)
    first.do("commit")
    first.close()
    delete_records(bootstrap, topic, 60)
    both = [crew(variant, group, topic) for variant in ("confluent-consumer", "java-range")]
    for member in both:
        member.run()
    wait(lambda: len(everything(both)) == 40, "what is left")
    assert everything(both).keys() == {str(number) for number in range(60, 100)}
    eventually(lambda: committed(bootstrap, group, topic) == 100, "all is committed")
    (line,) = (
        each for each in kumquat.log_text().splitlines() if "group workers: 50 messages" in each
    )
    assert "WARNING" in line


def test_an_empty_group_is_still_there_after_a_while(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    fill(bootstrap, topic, 5)
    member = members("confluent-range", group, topic)
    member.take(5)
    member.do("commit")
    member.close()
    found = admin(bootstrap).describe_consumer_groups([group])[group].result(DEADLINE)
    assert found.state == ConsumerGroupState.EMPTY
    assert committed(bootstrap, group, topic) == 5
