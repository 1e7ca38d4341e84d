"""The lines of subjects and groups in Prometheus' text format.

There are thousands of them, a dozen for each subject or pair. prometheus-client takes 5 µs and more for a
line, since it makes an object of each and sorts and escapes its labels again. Here the labels of a
subject are escaped once and used for all its lines, which takes a tenth of that. What is not many goes
through the library (families.py).

The names and labels are kafka_exporter's. Its two sums are those over the one partition that a subject has.
Values that are the same for every subject (one replica, which is in sync and leads) are there because
dashboards and alerts ask for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kumquat.gateway.metrics.walk import PairRow, SubjectRow

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Family(NamedTuple):
    name: str
    help: str
    values: Iterable[tuple[str, float]]
    """Labels, as they stand in braces, and values."""
    kind: str = "gauge"


def subject_lines(
    rows: Sequence[SubjectRow], node_id: int, messages: int, pending: Sequence[tuple[str, int]]
) -> list[str]:
    """`messages`: written in all, for the total of the family that has one."""
    topics = [_label("topic", row.name) for row in rows]
    partitions = [f'{topic},partition="0"' for topic in topics]

    def all_have(labels: list[str], value: int) -> Iterable[tuple[str, float]]:
        return ((label, value) for label in labels)

    def each_has(labels: list[str], value: Callable[[SubjectRow], int]) -> list[tuple[str, float]]:
        return [(label, value(row)) for label, row in zip(labels, rows, strict=True)]

    prefix = "kafka_topic_partition"
    families = [
        Family(
            "kafka_topic_partitions", "Number of partitions for this Topic", all_have(topics, 1)
        ),
        Family(
            f"{prefix}_current_offset",
            "Current Offset of a Broker at Topic/Partition",
            each_has(partitions, lambda row: row.readable_end),
        ),
        Family(
            f"{prefix}_oldest_offset",
            "Oldest Offset of a Broker at Topic/Partition",
            each_has(partitions, lambda row: row.earliest),
        ),
        Family(
            f"{prefix}_leader",
            "Leader Broker ID of this Topic/Partition",
            all_have(partitions, node_id),
        ),
        Family(
            f"{prefix}_replicas",
            "Number of Replicas for this Topic/Partition",
            all_have(partitions, 1),
        ),
        Family(
            f"{prefix}_in_sync_replica",
            "Number of In-Sync Replicas for this Topic/Partition",
            all_have(partitions, 1),
        ),
        Family(
            f"{prefix}_leader_is_preferred",
            "1 if Topic/Partition is using the Preferred Broker",
            all_have(partitions, 1),
        ),
        Family(
            f"{prefix}_under_replicated_partition",
            "1 if Topic/Partition is under Replicated",
            all_have(partitions, 0),
        ),
        Family(
            "kafka_server_brokertopicmetrics_messagesin_total",
            "Messages that got an offset: without a topic, in all subjects since the start of the broker; "
            "with one, in that subject since it was created",
            [("", messages), *each_has(topics, lambda row: row.next_sequence)],
            "counter",
        ),
        Family(
            "kumquat_delay_pending_by_subject",
            "Messages for later, by subject",
            [(_label("topic", name), count) for name, count in pending],
        ),
    ]
    return [line for family in families for line in _lines(family)]


def pair_lines(rows: Sequence[PairRow], members: Sequence[tuple[str, int]]) -> list[str]:
    labels = [
        f"{_label('consumergroup', row.group)},{_label('topic', row.subject)}" for row in rows
    ]
    partitions = [f'{label},partition="0"' for label in labels]

    def each_has(labels: list[str], value: Callable[[PairRow], int]) -> list[tuple[str, float]]:
        return [(label, value(row)) for label, row in zip(labels, rows, strict=True)]

    prefix = "kafka_consumergroup"
    families = [
        Family(
            f"{prefix}_current_offset",
            "Current Offset of a ConsumerGroup at Topic/Partition: the lowest message that is not acked",
            each_has(partitions, lambda row: row.position),
        ),
        Family(
            f"{prefix}_current_offset_sum",
            "Current Offset of a ConsumerGroup at Topic for all partitions",
            each_has(labels, lambda row: row.position),
        ),
        Family(
            f"{prefix}_lag",
            "Current Approximate Lag of a ConsumerGroup at Topic/Partition: messages that are not done",
            each_has(partitions, lambda row: row.lag),
        ),
        Family(
            f"{prefix}_lag_sum",
            "Current Approximate Lag of a ConsumerGroup at Topic for all partitions",
            each_has(labels, lambda row: row.lag),
        ),
        Family(
            f"{prefix}_members",
            "Amount of members in a consumer group",
            [(_label("consumergroup", group), count) for group, count in members],
        ),
        Family(
            "kumquat_group_in_flight",
            "Messages that a member of the group has and has not acked",
            each_has(labels, lambda row: row.in_flight),
        ),
        Family(
            "kumquat_group_retries_ready",
            "Messages that were given back, for whoever asks next",
            each_has(labels, lambda row: row.again),
        ),
        Family(
            "kumquat_group_retries_waiting",
            "Messages that failed and wait for the end of their back-off",
            each_has(labels, lambda row: row.waiting),
        ),
        Family(
            "kumquat_group_doomed",
            "Messages that are to become dead letters, which are not durable yet",
            each_has(labels, lambda row: row.doomed),
        ),
    ]
    return [line for family in families for line in _lines(family)]


def _lines(family: Family) -> list[str]:
    name = family.name
    lines = [f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"]
    lines += [
        f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n"
        for labels, value in family.values
    ]
    return lines


def _label(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'
