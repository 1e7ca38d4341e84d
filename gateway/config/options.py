"""The broker's options, each documented where it is declared, under Kafka's name for it.

A BrokerConfig is made once, at start: by `load` in sources.py (from file, environment, command line) or,
in tests, by its constructor. Whether options fit together is checked when it is made. A single value is
checked where its text is read, so that the error can say where it was set. Nothing changes afterwards:
every option is read-only for clients.

Options about looking at the broker are in watching.py. Where Kafka has an option that is not here,
kafka_only.py says why.
"""

import dataclasses
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from kumquat.gateway.config.declare import Option, option, show
from kumquat.gateway.config.errors import Conflict, ConflictingOptions
from kumquat.gateway.config.kinds import (
    DIRECTORY,
    LISTENERS,
    ONE_PARTITION,
    Listener,
    is_loopback,
)
from kumquat.gateway.config.watching import WatchingOptions
from kumquat.meta.definitions import SubjectDefaults
from kumquat.meta.values import BOOLEAN, INT_MAX, ConfigType, integer, one_of, whole

__all__ = ["OPTIONS", "BrokerConfig", "Listener", "OptionRow"]

MIB = 1024 * 1024
YEAR_MS = 365 * 86_400_000
_DATA = Path("data")


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option as DescribeConfigs on a BROKER shows it; a value of None is "not set"."""

    name: str
    value: str | None
    default: str | None
    type: ConfigType
    doc: str
    is_default: bool
    read_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(WatchingOptions):
    # Who and where

    node_id: int = option(
        "node.id",
        1,
        integer(0),
        "The number by which clients know this broker.",
        aliases=("broker.id",),
    )
    listeners: tuple[Listener, ...] = option(
        "listeners",
        (Listener("127.0.0.1", 9092),),
        LISTENERS,
        "Addresses to listen on. Without authentication only this machine is served by default; "
        "an empty host is every interface, port 0 any free port.",
    )
    advertised_listeners: tuple[Listener, ...] | None = option(
        "advertised.listeners",
        None,
        LISTENERS,
        "Addresses that clients are told to connect to, where they are not the same: one for each of "
        "listeners, in the same order.",
    )
    log_dirs: Path = option(  # noqa: RUF009 (a Path cannot change)
        "log.dirs", _DATA, DIRECTORY, "The data folder; it is made if it does not exist."
    )
    # Connections

    max_connections: int = option(
        "max.connections",
        10_000,
        integer(1),
        "Connections at one time; a further one is closed at once.",
    )
    max_connections_per_ip: int = option(
        "max.connections.per.ip",
        INT_MAX,
        integer(1),
        "Connections at one time from one address; a further one is closed at once.",
    )
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms",
        600_000,
        whole(1, unlimited=True),
        "A connection on which nothing has happened for so long is closed; -1 for never.",
    )
    socket_request_max_bytes: int = option(
        "socket.request.max.bytes",
        100 * MIB,
        integer(1024),
        "The largest request; a connection that announces a larger one is closed.",
    )
    socket_request_receive_timeout_ms: int = option(
        "socket.request.receive.timeout.ms",
        60_000,
        whole(1),
        "A request of which the first byte has come must be complete within this time, or its "
        "connection is closed.",
    )
    queued_max_request_bytes: int = option(
        "queued.max.request.bytes",
        192 * MIB,
        whole(64 * MIB, unlimited=True),
        "Memory for requests that are being received or handled and for answers that wait to be "
        "taken, over all connections; -1 for no limit. A connection that finds no room is not read "
        "until there is some.",
    )
    shutdown_grace_ms: int = option(
        "shutdown.grace.ms",
        10_000,
        whole(0),
        "How long a stopping broker waits for answers that are under way before it closes "
        "connections.",
    )

    # Messages

    message_max_bytes: int = option(
        "message.max.bytes",
        1_048_588,
        integer(0),
        "The largest record batch, for subjects that do not set max.message.bytes.",
    )
    max_decompressed_bytes: int = option(
        "max.decompressed.bytes",
        64 * MIB,
        integer(1024),
        "What a compressed batch may inflate to, where the broker has to look into it; a larger "
        "one is refused.",
    )
    fetch_max_bytes: int = option(
        "fetch.max.bytes",
        55 * MIB,
        integer(1024),
        "The most that one Fetch is answered with, whatever it asks for. A first batch that is "
        "larger is still sent.",
    )
    log_message_timestamp_type: str = option(
        "log.message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Who stamps messages, for subjects that do not set message.timestamp.type.",
    )
    producer_id_expiration_ms: int = option(
        "producer.id.expiration.ms",
        86_400_000,
        whole(1),
        "How long an idempotent producer that sends nothing is remembered.",
    )

    # Subjects

    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable",
        True,
        BOOLEAN,
        "Whether a subject is made when a client first asks for it.",
    )
    num_partitions: int = option(
        "num.partitions", 1, ONE_PARTITION, "Partitions of a subject: always one, virtual."
    )
    default_replication_factor: int = option(
        "default.replication.factor",
        1,
        integer(1),
        "Accepted for the sake of existing files; a subject has a single replica.",
    )

    # Messages for later

    delay_enabled: bool = option(
        "delay.enabled",
        True,
        BOOLEAN,
        "Whether batches are looked through for delayed records, for subjects that do not set "
        "delay.enabled.",
    )
    delay_max_ms: int = option(
        "delay.max.ms",
        2 * YEAR_MS,
        whole(1, 100 * YEAR_MS),
        "How far in the future a message may be due; one that is later is refused. Two years.",
    )
    delay_cancel_remember_ms: int = option(
        "delay.cancel.remember.ms",
        600_000,
        whole(0),
        "How long a cancel of an unknown delay id is remembered, for the message that it overtook.",
    )

    # Groups

    group_min_session_timeout_ms: int = option(
        "group.min.session.timeout.ms",
        6_000,
        integer(1),
        "The shortest session time-out that a classic member may ask for.",
    )
    group_max_session_timeout_ms: int = option(
        "group.max.session.timeout.ms",
        1_800_000,
        integer(1),
        "The longest session time-out that a classic member may ask for.",
    )
    group_max_size: int = option(
        "group.max.size", INT_MAX, integer(1), "Members that a group may have."
    )
    group_initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms",
        3_000,
        integer(0),
        "Where a client assigns (Connect, Streams, custom assignors): how long an empty group waits "
        "for more members after the first. Where the broker assigns, nobody waits.",
    )
    group_consumer_session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        45_000,
        integer(1),
        "A KIP-848 member that sends no heartbeat for so long is gone.",
    )
    group_consumer_heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        integer(1),
        "How often a KIP-848 member is told to send heartbeats.",
    )
    group_share_max_share_sessions: int = option(
        "group.share.max.share.sessions",
        2_000,
        integer(1),
        "Share sessions at a time: one for each share consumer that reads.",
    )

    offsets_retention_minutes: int = option(
        "offsets.retention.minutes",
        7 * 24 * 60,
        integer(1),
        "Offsets of a group are forgotten so long after its last member left or, where it had none, after "
        "the last commit; and so are offsets of subjects that none of its members reads any more.",
    )
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms",
        600_000,
        whole(1),
        "How often the broker looks for offsets past their retention, and for groups without members and "
        "offsets.",
    )

    # The log

    log_segment_bytes: int = option(
        "log.segment.bytes",
        1024 * MIB,
        integer(1024),
        "Size of a segment of the message log, which all subjects share. Small ones are for tests.",
    )
    log_index_max_entries: int = option(
        "log.index.max.entries",
        1_000_000,
        integer(1),
        "A segment is also closed when it holds so many batches: this bounds the memory of its "
        "index.",
    )
    log_retention_ms: int | None = option(
        "log.retention.ms",
        None,
        whole(1, unlimited=True),
        "How long messages are kept, for subjects that do not set retention.ms; -1 for ever. Where it is "
        "not set, log.retention.minutes counts.",
    )
    log_retention_minutes: int | None = option(
        "log.retention.minutes",
        None,
        integer(1, unlimited=True),
        "How long messages are kept, in minutes. Where it is not set, log.retention.hours counts.",
    )
    log_retention_hours: int = option(
        "log.retention.hours",
        168,
        integer(1, unlimited=True),
        "How long messages are kept, in hours.",
    )
    log_retention_bytes: int = option(
        "log.retention.bytes",
        -1,
        whole(0, unlimited=True),
        "How much a subject keeps, for subjects that do not set retention.bytes; -1 for no limit.",
    )
    log_retention_check_interval_ms: int = option(
        "log.retention.check.interval.ms",
        300_000,
        whole(1),
        "How often the broker looks for messages past their retention.",
    )
    log_total_bytes: int = option(
        "log.total.bytes",
        -1,
        whole(0, unlimited=True),
        "Disk for all segments together: beyond it the oldest go, read or not, and the broker "
        "says so; -1 for no limit.",
    )
    log_unsynced_max_bytes: int = option(
        "log.unsynced.max.bytes",
        16 * MIB,
        integer(1),
        "Written but not yet synced bytes beyond which no Produce is read until the disk has "
        "caught up.",
    )
    log_tail_bytes: int = option(
        "log.tail.bytes",
        64 * MIB,
        integer(0),
        "Memory for the newest messages, from which readers that keep up are served.",
    )

    def __post_init__(self) -> None:
        if conflicts := list(self._conflicts()):
            raise ConflictingOptions(*conflicts)

    def _conflicts(self) -> Iterator[Conflict]:
        if self.socket_request_max_bytes < self.message_max_bytes:
            yield _conflict(
                self,
                "a batch of the largest size would never arrive",
                "message.max.bytes",
                "socket.request.max.bytes",
            )
        if 0 <= self.log_total_bytes < 2 * self.log_segment_bytes:
            yield _conflict(
                self,
                "log.total.bytes must be at least twice log.segment.bytes, since only whole "
                "segments are deleted and never the one being written",
                "log.total.bytes",
                "log.segment.bytes",
            )
        admin = self.admin_listener
        if admin is not None and not self.admin_allow_remote and not is_loopback(admin.host):
            yield _conflict(
                self,
                f"{admin.host or 'every interface'!r} is not this machine alone, and whoever reaches the "
                "admin endpoint may change everything; use 127.0.0.1",
                "admin.listener",
                "admin.allow.remote",
            )
        names = ("listeners", "advertised.listeners")
        if self.advertised_listeners is None:
            if any(listener.host in ("0.0.0.0", "::") for listener in self.listeners):
                yield _conflict(self, "say at which address clients find this broker", *names)
        elif len(self.advertised_listeners) != len(self.listeners):
            yield _conflict(self, "there must be as many of one as of the other", *names)
        elif any(
            listener.is_wildcard or not listener.port for listener in self.advertised_listeners
        ):
            yield _conflict(self, "a client needs a host and a port to connect to", *names)

    @property
    def retention_ms(self) -> int:
        """How long messages are kept, by the three options on that; -1 for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return max(self.log_retention_minutes * 60_000, -1)
        return max(self.log_retention_hours * 3_600_000, -1)

    def advertised(self, index: int, bound_port: int) -> Listener:
        """Where clients find listener `index`, which is bound to this port."""
        if self.advertised_listeners is not None:
            return self.advertised_listeners[index]
        return Listener(self.listeners[index].host or socket.gethostname(), bound_port)

    def subject_defaults(self) -> SubjectDefaults:
        """The options that count for subjects which do not set their own."""
        options = {
            "message.max.bytes": self.message_max_bytes,
            "log.retention.ms": self.retention_ms,
            "log.retention.bytes": self.log_retention_bytes,
            "log.message.timestamp.type": self.log_message_timestamp_type,
            "log.segment.bytes": self.log_segment_bytes,
            "delay.enabled": show(self.delay_enabled),
            "history": self.history,
            "history.sample": self.history_sample,
        }
        return SubjectDefaults.changed(options)

    def describe(self) -> list[OptionRow]:
        return [
            OptionRow(
                name=declared.name,
                value=show(getattr(self, declared.field)),
                default=show(declared.default),
                type=declared.kind.type,
                doc=declared.doc,
                is_default=getattr(self, declared.field) == declared.default,
            )
            for declared in OPTIONS.values()
        ]

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """From values by Kafka's names, already of the right types."""
        return cls(**{OPTIONS[name].field: value for name, value in values.items()})  # type: ignore[arg-type]


def _conflict(config: BrokerConfig, reason: str, *names: str) -> Conflict:
    given = " and ".join(
        f"{name}={show(getattr(config, OPTIONS[name].field)) or '(not set)'}" for name in names
    )
    return Conflict(names, f"{given} do not fit together: {reason}")


OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        field.metadata["option"].name: field.metadata["option"]
        for field in dataclasses.fields(BrokerConfig)
    }
)
