"""What the stories of groups share: messages to read, a group's configs, its lag.

Values are the numbers from 0 on as text, unless a story says otherwise, so that a test can say what came
twice or not at all.
"""

# The package is typed, but exports its admin names implicitly.
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from compat_tests.support import DEADLINE, T0, eventually

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compat_tests.members.client import Record
    from compat_tests.members.remote import Member

PULL = 1 << 48
"""Offsets from here on are those of a pull log: synthetic, a member's own."""


def fill(bootstrap: str, topic: str, count: int, *, first: int = 0, batch: int = 1000) -> list[str]:
    """Writes the values first, first + 1, … ten ms apart from T0; gives them."""
    writer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.num.messages": batch,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    values = [str(number) for number in range(first, first + count)]
    for index, value in enumerate(values):
        writer.produce(topic, value.encode(), timestamp=T0 + 10 * index)
        if index % 10_000 == 0:
            writer.poll(0)
    assert writer.flush(2 * DEADLINE) == 0, "not answered in time"
    return values


@cache
def admin(bootstrap: str) -> AdminClient:
    """Kept: its futures end with it."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def configure(bootstrap: str, group: str, **configs: str) -> None:
    """Sets configs of a group."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for future in admin(bootstrap).incremental_alter_configs([resource]).values():
        future.result(DEADLINE)


def committed(bootstrap: str, group: str, topic: str) -> int | None:
    """The group's position as tools see it."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (future,) = admin(bootstrap).list_consumer_group_offsets([asked]).values()
    (found,) = future.result(DEADLINE).topic_partitions
    return None if found.offset < 0 else int(found.offset)


def lag(bootstrap: str, group: str, topic: str) -> int | None:
    """As lag tools compute it: the end of the topic less the group's position."""
    position = committed(bootstrap, group, topic)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "lag"})
    try:
        ends = reader.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE)
    finally:
        reader.close()
    assert ends is not None
    return None if position is None else ends[1] - position


def settled(bootstrap: str, group: str, count: int) -> bool:
    """Whether the group is stable and has so many members."""
    found = admin(bootstrap).describe_consumer_groups([group])[group].result(DEADLINE)
    return found.state == ConsumerGroupState.STABLE and len(found.members) == count


def values(records: Iterable[Record]) -> list[str]:
    return [record.value for record in records]


def everything(members: Iterable[Member]) -> Counter[str]:
    """How often each value was given to any of them."""
    return Counter(record.value for member in members for record in member.records)


def have_read(members: Iterable[Member], count: int) -> bool:
    """Whether so many different values came, to any of them."""
    return len(everything(members)) >= count


def unexplained(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Values that came more than once, and that every reader could have committed; with readers."""
    readers: dict[str, list[Member]] = {}
    for member in members:
        for record in member.records:
            readers.setdefault(record.value, []).append(member)
    return {
        value: some
        for value, some in readers.items()
        if len(some) > 1 and not any(member.explains(value) for member in some)
    }


def until_each_has_some(bootstrap: str, topic: str, members: list[Member], batch: int) -> int:
    """Writes the values from 0 on, a batch at a time, until each member has got some; returns how many. The
    member that has waited longest comes first, so none is left out, even if the others are fast."""
    written = 0

    def all_have_some() -> bool:
        nonlocal written
        written += len(fill(bootstrap, topic, batch, first=written, batch=batch))
        return all(member.records for member in members)

    eventually(all_have_some, "each gets some")
    return written


def offsets_name_one_message(members: Iterable[Member]) -> None:
    """No offset of a pull log was ever used for two messages."""
    named: dict[tuple[str, int], str] = {}
    for member in members:
        for record in member.records:
            if record.offset >= PULL:
                place = (record.topic, record.offset)
                assert named.setdefault(place, record.value) == record.value, place
