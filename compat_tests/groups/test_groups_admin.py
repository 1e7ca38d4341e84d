"""Groups through admin clients: listed, described, moved, emptied, deleted.

Java's Admin does the same in java/compat/GroupStories.java, Kafka's own tool in test_groups_tools.py.
"""

# The package is typed, but exports its admin names implicitly.
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition as AsyncPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition
from kafka.admin import OffsetSpec, OffsetTimestamp
from kafka.structs import OffsetAndMetadata

from compat_tests.groups.stories import admin as confluent_admin
from compat_tests.groups.stories import committed, fill, lag, values
from compat_tests.members.fixture import Members
from compat_tests.support import DEADLINE, T0, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return confluent_admin(bootstrap)


@pytest.fixture
def python_admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield made
    made.close()


def read_and_leave(bootstrap: str, members: Members, group: str, topic: str, count: int) -> None:
    fill(bootstrap, topic, count)
    member = members("confluent-range", group, topic)
    member.take(count)
    member.do("commit")
    member.close()


def listed(admin: AdminClient, **filters: Any) -> dict[str, tuple[Any, Any]]:
    found = admin.list_consumer_groups(**filters).result(DEADLINE)
    assert not found.errors
    return {each.group_id: (each.state, each.type) for each in found.valid}


@pytest.mark.parametrize(
    ("variant", "kind"),
    [("kafka_python-range", "CLASSIC"), ("java-consumer", "CONSUMER")],
)
def test_groups_are_listed_by_state_and_type(
    bootstrap: str,
    members: Members,
    admin: AdminClient,
    topic: str,
    group: str,
    variant: str,
    kind: str,
) -> None:
    wanted = ConsumerGroupType[kind]
    member = members(variant, group, topic)
    member.run()
    member.wait_assigned(topic)
    eventually(
        lambda: listed(admin).get(group) == (ConsumerGroupState.STABLE, wanted), "it is stable"
    )
    assert group in listed(admin, states={ConsumerGroupState.STABLE})
    assert group not in listed(admin, states={ConsumerGroupState.EMPTY})
    others = set(ConsumerGroupType) - {wanted, ConsumerGroupType.UNKNOWN}
    assert group in listed(admin, types={wanted})
    for other in others:
        assert group not in listed(admin, types={other})
    fill(bootstrap, topic, 1)
    member.wait(lambda: bool(member.records), "a record")
    member.close()
    eventually(
        lambda: listed(admin).get(group, ("",))[0] == ConsumerGroupState.EMPTY, "it is empty"
    )
    assert group in listed(admin, states={ConsumerGroupState.EMPTY})


@pytest.mark.parametrize(
    "variant", ["aiokafka-range", "confluent-cooperative", "confluent-consumer"]
)
def test_a_group_is_described_with_its_members(
    members: Members, admin: AdminClient, topic: str, group: str, variant: str
) -> None:
    member = members(variant, group, topic)
    member.run()
    member.wait_assigned(topic)

    def described() -> Any:
        return admin.describe_consumer_groups([group])[group].result(DEADLINE)

    eventually(lambda: described().state == ConsumerGroupState.STABLE, "it is stable")
    found = described()
    assert (found.group_id, found.is_simple_consumer_group) == (group, False)
    (only,) = found.members
    assert only.client_id == member.name
    assert only.host.lstrip("/") == "127.0.0.1"
    assert [part.topic for part in only.assignment.topic_partitions] == [topic]
    if variant == "confluent-consumer":
        assert found.type == ConsumerGroupType.CONSUMER
    else:
        assert found.type == ConsumerGroupType.CLASSIC
        strategy = "range" if "range" in variant else "cooperative-sticky"
        assert found.partition_assignor == strategy
    member.close()
    eventually(lambda: described().members == [], "nobody is left")


def test_a_group_that_is_not_there_is_described_as_dead(admin: AdminClient, group: str) -> None:
    found = admin.describe_consumer_groups([group])[group].result(DEADLINE)
    assert (found.state, found.members) == (ConsumerGroupState.DEAD, [])
    assert group not in listed(admin)


def test_a_group_is_deleted_when_nobody_is_in_it(
    bootstrap: str, members: Members, admin: AdminClient, topic: str, group: str
) -> None:
    fill(bootstrap, topic, 10)
    member = members("java-range", group, topic)
    member.run()
    member.wait(lambda: len(member.records) == 10, "all of them")

    def delete() -> int:
        try:
            admin.delete_consumer_groups([group])[group].result(DEADLINE)
        except KafkaException as refused:
            return int(refused.args[0].code())
        return 0

    assert delete() == KafkaError.NON_EMPTY_GROUP
    member.close()
    assert committed(bootstrap, group, topic) == 10
    assert delete() == 0
    assert delete() == KafkaError.GROUP_ID_NOT_FOUND
    assert committed(bootstrap, group, topic) is None
    again = members("confluent-range", group, topic)
    assert len(again.take(10)) == 10, "it begins again"


def test_offsets_of_an_empty_group_are_altered_and_those_of_one_at_work_are_not(
    bootstrap: str, members: Members, admin: AdminClient, topic: str, group: str
) -> None:
    read_and_leave(bootstrap, members, group, topic, 50)

    def alter(offset: int) -> int:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
        try:
            done = admin.alter_consumer_group_offsets([wanted])[group].result(DEADLINE)
        except KafkaException as refused:
            return int(refused.args[0].code())
        (partition,) = done.topic_partitions
        return 0 if partition.error is None else int(partition.error.code())

    assert alter(30) == 0
    assert committed(bootstrap, group, topic) == 30
    assert lag(bootstrap, group, topic) == 20
    member = members("aiokafka-range", group, topic)
    assert values(member.take(20)) == [str(number) for number in range(30, 50)]
    assert alter(0) == KafkaError.UNKNOWN_MEMBER_ID
    member.close()
    assert committed(bootstrap, group, topic) == 30


def test_offsets_are_reset_by_offset_and_by_time(
    bootstrap: str, members: Members, python_admin: KafkaAdminClient, topic: str, group: str
) -> None:
    read_and_leave(bootstrap, members, group, topic, 50)
    partition = PythonPartition(topic, 0)
    for spec, wanted in (
        (OffsetTimestamp(T0 + 120), 12),
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 50),
        (7, 7),
    ):
        python_admin.reset_group_offsets(group, {partition: spec})
        assert committed(bootstrap, group, topic) == wanted
    member = members("kafka_python-range", group, topic)
    assert values(member.take(43)) == [str(number) for number in range(7, 50)]


def test_offsets_are_deleted_topic_by_topic(
    bootstrap: str,
    members: Members,
    python_admin: KafkaAdminClient,
    make_topic: Callable[[], str],
    group: str,
) -> None:
    topics = [make_topic(), make_topic()]
    offsets = {PythonPartition(each, 0): OffsetAndMetadata(5, "", -1) for each in topics}
    for topic in topics:
        fill(bootstrap, topic, 10)
    python_admin.alter_group_offsets(group, offsets)
    gone, kept = topics
    done = python_admin.delete_group_offsets(group, [PythonPartition(gone, 0)])
    assert [error.errno for error in done.values()] == [0]
    assert committed(bootstrap, group, gone) is None
    assert committed(bootstrap, group, kept) == 5
    member = members("confluent-range", group, kept)
    member.run()
    member.wait_assigned(kept)
    refused = python_admin.delete_group_offsets(group, [PythonPartition(kept, 0)])
    assert [error.errno for error in refused.values()] == [86], "the group is subscribed to it"


def test_offsets_of_several_groups_are_asked_for_at_once(
    bootstrap: str, python_admin: KafkaAdminClient, topic: str, names: Callable[[], str]
) -> None:
    fill(bootstrap, topic, 10)
    groups = {names(): offset for offset in range(3)}
    partition = PythonPartition(topic, 0)
    for group, offset in groups.items():
        text = f"by {group}"
        python_admin.alter_group_offsets(group, {partition: OffsetAndMetadata(offset, text, -1)})
    nothing = names()
    found = python_admin.list_group_offsets([*groups, nothing])
    for group, offset in groups.items():
        assert found[group][partition].offset == offset
        assert found[group][partition].metadata == f"by {group}"
    assert found[nothing] == {}


def test_aiokafkas_admin_sees_groups_and_their_offsets(
    bootstrap: str, members: Members, topic: str, group: str
) -> None:
    read_and_leave(bootstrap, members, group, topic, 10)

    async def look() -> tuple[Any, Any]:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            groups = await client.list_consumer_groups()
            offsets = await client.list_consumer_group_offsets(group)
        finally:
            await client.close()
        return groups, offsets

    groups, offsets = asyncio.run(look())
    assert (group, "consumer") in groups
    assert offsets[AsyncPartition(topic, 0)].offset == 10
