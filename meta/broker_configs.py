"""Broker configs that a client may change while the broker runs, as in Kafka, and that have no effect here.

    validate_broker("num.io.threads", "8")              # None, or InvalidConfig with the reason
    describe_broker({"num.io.threads": "8"})            # a row per config that is set

Scripts for a Kafka cluster set thread counts, cleaners, throttles and flush intervals. Here these have no
effect that a client could see, so they are accepted, stored and shown. All other options are read when
the broker starts (gateway/config/options.py). To accept those at run time and ignore them would mislead
the operator.

There is one broker: what is set for it and what is set for all brokers is the same. Nothing here keeps
state.
"""

from collections.abc import Iterable, Mapping

from kumquat.meta.definitions import ConfigRow, ConfigSource, Synonym
from kumquat.meta.errors import InvalidConfig
from kumquat.meta.values import BOOLEAN, Kind, Value, decimal, integer, one_of, whole

_CODECS = one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
DOC = "Taken and shown, for scripts that set it; nothing follows from it here."

STORED: dict[str, Kind[Value]] = {
    "background.threads": integer(1),
    "compression.type": _CODECS,
    "follower.replication.throttled.rate": whole(0),
    "leader.replication.throttled.rate": whole(0),
    "log.cleaner.backoff.ms": whole(0),
    "log.cleaner.dedupe.buffer.size": whole(0),
    "log.cleaner.delete.retention.ms": whole(0),
    "log.cleaner.io.buffer.load.factor": decimal(0, 1),
    "log.cleaner.io.buffer.size": integer(0),
    "log.cleaner.io.max.bytes.per.second": decimal(0, float("inf")),
    "log.cleaner.max.compaction.lag.ms": whole(1),
    "log.cleaner.min.cleanable.ratio": decimal(0, 1),
    "log.cleaner.min.compaction.lag.ms": whole(0),
    "log.cleaner.threads": integer(0),
    "log.flush.interval.messages": whole(1),
    "log.flush.interval.ms": whole(0),
    "log.index.interval.bytes": integer(0),
    "log.index.size.max.bytes": integer(4),
    "log.preallocate": BOOLEAN,
    "log.roll.jitter.ms": whole(0),
    "log.roll.ms": whole(1),
    "log.segment.delete.delay.ms": whole(0),
    "min.insync.replicas": integer(1),
    "num.io.threads": integer(1),
    "num.network.threads": integer(1),
    "num.recovery.threads.per.data.dir": integer(1),
    "num.replica.fetchers": integer(1),
    "replica.alter.log.dirs.io.max.bytes.per.second": whole(0),
    "unclean.leader.election.enable": BOOLEAN,
}


def validate_broker(name: str, value: str) -> None:
    """Raises InvalidConfig unless the broker may be given this config with this value."""
    kind = STORED.get(name)
    if kind is None:
        raise InvalidConfig(
            f"{name} cannot be changed while the broker runs: its options are read at its start"
        )
    try:
        kind.parse(value)
    except ValueError as error:
        raise InvalidConfig(f"{name}={value!r} is not allowed: {error}") from None


def describe_broker(
    configs: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigRow]:
    """A row per config that was set."""
    wanted = set(STORED if names is None else names)
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        ConfigRow(name, value, source, STORED[name].type, DOC, (Synonym(name, value, source),))
        for name, value in sorted(configs.items())
        if name in wanted and name in STORED
    ]
