"""The broker's own numbers under their names, as prometheus-client wants them.

Each function gives the families of one subject matter. A family says in its help what it counts and,
where it is not plain, since when. Counters begin at 0 with the process.

Names: kafka_server_…, kafka_network_…, kafka_controller_… are those that the JMX exporter's usual rules
make of the metrics of an Apache Kafka broker; they are here where ours mean the same. All others begin
with kumquat_.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kumquat.core import pools
from kumquat.core.delivery.actions import REASONS

if TYPE_CHECKING:
    from kumquat.gateway.metrics.numbers import Buckets, Numbers
    from kumquat.gateway.metrics.walk import Totals

POOLS = {
    pools.READ: "read",
    pools.SEARCH: "search",
    pools.FILL: "fill",
    pools.DELIVER: "deliver",
    pools.QUERY: "query",
    pools.DECODE: "decode",
    pools.SCAN: "scan",
    pools.KEYS: "keys",
    pools.HISTORY: "history",
}
"""What a kind of thread is called in a label; a kind that is missing here has its own name."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many have no series of their own."""

    subjects: int
    pairs: int
    pending: int


class BrokerCollector(Collector):
    def __init__(self, numbers: Numbers, totals: Totals, left_out: LeftOut) -> None:
        self._numbers = numbers
        self._totals = totals
        self._left_out = left_out

    def collect(self) -> Iterable[Metric]:
        numbers, totals = self._numbers, self._totals
        yield from _cluster(numbers, totals)
        yield from _traffic(numbers)
        yield from _logs(numbers)
        yield from _delays(numbers)
        yield from _groups(numbers, totals)
        yield from _dead_letters(numbers)
        yield from _history(numbers)
        yield from _process(numbers)
        yield from _scrapes(numbers, self._left_out)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _counters(name: str, text: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _histogram(
    name: str, text: str, label: str | None, values: Mapping[str, Buckets]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=[label] if label else [])
    for key, found in values.items():
        bounds = [*map(str, found.bounds), "+Inf"]
        pairs = list(zip(bounds, [*found.counts, found.count], strict=True))
        family.add_metric([key] if label else [], buckets=pairs, sum_value=found.total)
    return family


def _cluster(numbers: Numbers, totals: Totals) -> Iterator[Metric]:
    subjects, log = numbers.log.subjects, numbers.log
    build = InfoMetricFamily("kumquat_build", "The broker's version")
    build.add_metric([], {"version": numbers.version, "python": numbers.python})
    yield build
    yield _gauge("kafka_brokers", "Number of Brokers in the Kafka Cluster.", 1)
    info = GaugeMetricFamily(
        "kafka_broker_info", "Information about the Kafka Broker.", labels=["id", "address"]
    )
    info.add_metric([str(numbers.node_id), numbers.address], 1)
    yield info
    for name, text, value in (
        (
            "replicamanager_partitioncount",
            "Partitions on this broker: one for each subject",
            subjects,
        ),
        ("replicamanager_leadercount", "Partitions that this broker leads: all", subjects),
        ("replicamanager_underreplicatedpartitions", "There is one replica, and it is in sync", 0),
    ):
        yield _gauge(f"kafka_server_{name}", text, value)
    for name, text, value in (
        ("activecontrollercount", "This broker is its own controller", 1),
        (
            "offlinepartitionscount",
            "Subjects that cannot be written: all, when the message log is fenced",
            subjects if log.fenced else 0,
        ),
        ("globaltopiccount", "Subjects", subjects),
        ("globalpartitioncount", "Partitions: one for each subject", subjects),
    ):
        yield _gauge(f"kafka_controller_kafkacontroller_{name}", text, value)
    name = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    yield _gauge(name, "Groups", totals.groups)
    yield _gauges(
        "kumquat_health",
        "1: this check of /health/ready is good; 0: it is not",
        "check",
        {check.name: float(check.ok) for check in numbers.checks},
    )


def _traffic(numbers: Numbers) -> Iterator[Metric]:
    requests, topics = numbers.requests, "kafka_server_brokertopicmetrics"
    written = "Bytes of record batches that got offsets, as they are stored"
    yield _counter(f"{topics}_bytesin", written, numbers.log.bytes_written)
    fetched = "Bytes of record batches in answers to Fetch and ShareFetch"
    yield _counter(f"{topics}_bytesout", fetched, numbers.fetched_bytes)
    for name, text, value in (
        ("totalproducerequests", "Produce requests", requests.get("Produce", 0)),
        (
            "totalfetchrequests",
            "Fetch and ShareFetch requests",
            requests.get("Fetch", 0) + requests.get("ShareFetch", 0),
        ),
        ("failedproducerequests", "Batches that were refused", numbers.produce_failures),
        (
            "failedfetchrequests",
            "Partitions of Fetch requests that could not be read",
            numbers.fetch_failures,
        ),
    ):
        yield _counter(f"{topics}_{name}", text, value)
    name = "kafka_network_requestmetrics_requests"
    yield _counters(name, "Requests by API", "request", requests)
    yield _gauge("kumquat_connections", "Connections of Kafka clients", numbers.connections)
    text = "Connections that there may be at one time (max.connections)"
    yield _gauge("kumquat_connections_limit", text, numbers.connections_limit)
    text = "Connections that were taken"
    yield _counter("kumquat_connections_opened", text, numbers.connections_opened)
    text = "Connections that were closed at once, since there were too many"
    yield _counter("kumquat_connections_refused", text, numbers.connections_refused)
    rooms = numbers.rooms
    yield _gauges(
        "kumquat_memory_bytes",
        "Memory that requests and answers hold, of queued.max.request.bytes; small ones are not counted",
        "room",
        {room: used.held for room, used in rooms.items()},
    )
    yield _gauges(
        "kumquat_memory_limit_bytes",
        "How much of it they may hold",
        "room",
        {room: used.limit for room, used in rooms.items()},
    )
    yield _gauges(
        "kumquat_memory_waiting",
        "Connections that wait for room",
        "room",
        {room: used.waiting for room, used in rooms.items()},
    )


def _logs(numbers: Numbers) -> Iterator[Metric]:
    messages, actions = numbers.log, numbers.actions
    yield _histogram(
        "kumquat_log_sync_seconds",
        "How long a round of group commit took in its thread: fdatasync, almost all of it",
        "log",
        {"messages": numbers.sync_messages, "actions": numbers.sync_actions},
    )
    for name, text, one, other in (
        (
            "unsynced_bytes",
            "Written and not yet durable",
            messages.bytes_unsynced,
            actions.bytes_unsynced,
        ),
        ("bytes", "Size of all segments", messages.bytes_stored, actions.bytes_stored),
        ("segments", "Segments", messages.segments, actions.segments),
        (
            "fenced",
            "1: a sync has failed, and nothing is written or acked until a restart",
            messages.fenced,
            actions.fenced,
        ),
    ):
        yield _gauges(f"kumquat_log_{name}", text, "log", {"messages": one, "actions": other})
    yield _gauge("kumquat_log_tail_bytes", "Newest messages kept in memory", messages.tail_bytes)
    yield _gauge("kumquat_log_open_files", "Segments held open", messages.open_files)
    text = "Batches that did not match their checksum when they were read"
    yield _counter("kumquat_reads_corrupt", text, messages.corrupt_reads)
    yield _counter("kumquat_reads_failed", "Reads that the disk refused", messages.failed_reads)
    disk = numbers.disk
    if disk is not None and disk.error is None:
        yield _gauge("kumquat_disk_free_bytes", "Free on the disk of the data folder", disk.free)
        yield _gauge("kumquat_disk_size_bytes", "Size of the disk of the data folder", disk.size)


def _delays(numbers: Numbers) -> Iterator[Metric]:
    delay = numbers.delay
    yield _gauge("kumquat_delay_pending", "Messages for later, in all subjects", delay.pending)
    yield _gauge("kumquat_delay_overdue", "Messages that are due and not delivered", delay.overdue)
    text = "1: messages for later cannot be delivered, loaded or filed at the moment"
    yield _gauge("kumquat_delay_failing", text, delay.failing is not None)
    yield _gauge("kumquat_delay_loaded", "Messages for later known in memory", delay.loaded)
    yield _gauge("kumquat_delay_files", "Schedule files", delay.files)
    yield _histogram(
        "kumquat_delay_lateness_seconds",
        "How long after its due time a consumer could see a message for later",
        None,
        {"": numbers.lateness},
    )
    for name, text, value in (
        ("scheduled", "Messages taken for later", delay.scheduled),
        ("delivered", "Messages for later that were delivered", delay.delivered),
        ("cancelled", "Messages for later that were cancelled", delay.cancelled),
        ("moved", "Messages for later that were moved to another time", delay.moved),
        ("dropped", "Messages for later that went with their subject", delay.dropped),
        ("damaged", "Messages for later that were lost: their record is damaged", delay.damaged),
    ):
        yield _counter(f"kumquat_delay_{name}", text, value)


def _groups(numbers: Numbers, totals: Totals) -> Iterator[Metric]:
    sharing = numbers.sharing
    for name, text, value in (
        ("subjects", "Subjects", numbers.log.subjects),
        ("messages", "Messages in all subjects that readers can see", totals.messages),
        ("groups", "Groups", totals.groups),
        ("groups_members", "Members of all groups", totals.members),
        (
            "groups_lag",
            "Messages that groups have not done, over all groups and subjects",
            totals.lag,
        ),
        ("leases_in_flight", "Messages that members of sharing groups have", totals.in_flight),
        ("retries_ready", "Messages given back, for whoever asks next", totals.again),
        ("retries_waiting", "Messages that wait for the end of their back-off", totals.waiting),
        ("doomed", "Messages that are to become dead letters", totals.doomed),
        ("fetches_waiting", "Fetches of sharing members that wait for messages", sharing.waiting),
    ):
        yield _gauge(f"kumquat_{name}", text, value)
    text = "Messages handed out to a member of a sharing group at once"
    yield _histogram("kumquat_hand_out_messages", text, None, {"": numbers.hand_outs})
    for name, text, value in (
        ("redeliveries", "Messages that were handed out once more", sharing.redelivered),
        (
            "leases_served_again",
            "Fetches that were given what they had been given",
            sharing.served_again,
        ),
        (
            "messages_expired",
            "Messages that retention deleted before a group had done them",
            sharing.expired,
        ),
        (
            "messages_lost",
            "Messages that a group could not be given: they are damaged",
            sharing.lost,
        ),
        (
            "lease_steals",
            "Rebalances of a member that held far more than its share while others waited",
            sharing.rebalances,
        ),
    ):
        yield _counter(f"kumquat_{name}", text, value)


def _dead_letters(numbers: Numbers) -> Iterator[Metric]:
    letters = numbers.dead_letters
    reasons = {**dict.fromkeys(REASONS, 0), **letters.reasons}
    text = "Dead letters that were written, by reason"
    yield _counters("kumquat_dead_letters", text, "reason", reasons)
    text = "Groups and subjects whose dead letters cannot be written at the moment"
    yield _gauge("kumquat_dead_letters_failing", text, len(letters.failing))


def _history(numbers: Numbers) -> Iterator[Metric]:
    history = numbers.history
    text = "Events of messages that were written to __kumquat_actions"
    yield _counter("kumquat_history_events", text, history.written)
    text = "Events that were dropped: too many at once, or they could not be written"
    yield _counter("kumquat_history_missed", text, history.missed)
    text = "Whether the history cannot be written at the moment"
    yield _gauge("kumquat_history_failing", text, history.failing is not None)


def _process(numbers: Numbers) -> Iterator[Metric]:
    text = "How late the event loop woke who had slept: so long every client waits"
    yield _histogram("kumquat_loop_lag_seconds", text, None, {"": numbers.loop_lag})
    yield _counter(
        "kumquat_gc_collections", "Runs of the garbage collector", numbers.loop.collections
    )
    text = "The longest run of the garbage collector"
    yield _gauge("kumquat_gc_longest_seconds", text, numbers.loop.longest_collection / 1e6)
    names = {kind: POOLS.get(kind, kind) for kind in numbers.threads}
    yield _gauges(
        "kumquat_threads_busy",
        "Threads at work, by what they do",
        "pool",
        {names[kind]: count for kind, count in numbers.threads.items()},
    )
    yield _gauges(
        "kumquat_threads_limit",
        "Threads that there may be",
        "pool",
        {names[kind]: numbers.threads_limit[kind] for kind in names},
    )


def _scrapes(numbers: Numbers, left_out: LeftOut) -> Iterator[Metric]:
    for name, text, value in (
        (
            "subjects",
            "Subjects without series of their own (metrics.max.subjects)",
            left_out.subjects,
        ),
        (
            "groups",
            "Pairs of group and subject without series (metrics.max.groups)",
            left_out.pairs,
        ),
        ("pending", "Subjects with messages for later without a series of that", left_out.pending),
    ):
        yield _gauge(f"kumquat_metrics_{name}_left_out", text, value)
    text = "CPU time that scrapes have cost, but for the one that says this"
    yield _counter("kumquat_metrics_cpu_seconds", text, numbers.scrape_cpu_seconds)
