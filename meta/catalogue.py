"""Every topic config that Kafka 4 knows, and its effect on a subject here; and five of our own:
`consume.mode`, `delay.enabled`, `history`, `history.sample` and `index.keys`.

There are three effects:
- real: it does here what it does in Kafka.
- stored: accepted, stored and shown, since everyday scripts set it, but without an effect that a
  client could see (how files are cut, when they are flushed, how they are compressed, what replicas
  would do, which do not exist here).
- refused: some values promise what this broker does not do. `refusal` gives the reason for such a
  value, or None for a value that may be used. If they were accepted in silence, the operator would
  find out too late.

Why these are refused: `cleanup.policy` other than delete (nothing is compacted, and something
must delete); the bounds on message timestamps (timestamps are not compared with the clock);
remote storage; Kafka's config for dead letters.

`synonym` is the broker option that gives the default, under its Kafka name. Defaults are Kafka
4's, except for the timestamp bounds: their default here is the only value that is true, no bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kumquat.meta.values import (
    BOOLEAN,
    LONG_MAX,
    ConfigType,
    Kind,
    Value,
    decimal,
    integer,
    list_of,
    one_of,
    whole,
)

Effect = Literal["real", "stored"]
Refusal = Callable[[Value], str | None]
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    kind: Kind[Value]
    default: str
    effect: Effect
    doc: str
    synonym: str | None = None
    refusal: Refusal | None = None


def _only(allowed: Value, reason: str) -> Refusal:
    return lambda value: None if value == allowed else reason


def _throttled(item: str) -> bool:
    partition, _, replica = item.partition(":")
    return item == "*" or (partition.isdecimal() and replica.isdecimal())


_POLICY = list_of("delete", lambda item: item in ("delete", "compact"))
_REPLICAS = list_of("* or pairs partition:broker between commas", _throttled)
_CODECS = one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_GZIP_LEVEL = Kind(
    ConfigType.INT, "a whole number from 1 to 9, or -1", whole(1, 9, unlimited=True).read
)
CONSUME_MODES = one_of("auto", "exclusive", "shared")
HISTORY_MODES = one_of("off", "sampled", "all")
_UNCHECKED = "timestamps are not compared with the clock, so only 2^63-1 (no bound) is true"

_DEFINITIONS = (
    Definition(
        "cleanup.policy",
        _POLICY,
        "delete",
        "stored",
        "What happens to old messages: they are deleted, by time and by size.",
        refusal=_only(
            ["delete"],
            "nothing is ever compacted here, and old messages are always deleted in time",
        ),
    ),
    Definition(
        "compression.gzip.level",
        _GZIP_LEVEL,
        "-1",
        "stored",
        "Level for a broker that compresses with gzip; this one keeps batches as they came.",
    ),
    Definition(
        "compression.lz4.level",
        integer(1, 17),
        "9",
        "stored",
        "Level for a broker that compresses with lz4; this one keeps batches as they came.",
    ),
    Definition(
        "compression.type",
        _CODECS,
        "producer",
        "stored",
        "Taken and shown. Batches are kept and sent as the producer compressed them, whatever it says: "
        "every reader can read every codec.",
        synonym="compression.type",
    ),
    Definition(
        "compression.zstd.level",
        integer(-131072, 22),
        "3",
        "stored",
        "Level for a broker that compresses with zstd; this one keeps batches as they came.",
    ),
    Definition(
        "consume.mode",
        CONSUME_MODES,
        "auto",
        "real",
        "How groups that do not set it themselves read this subject: exclusive, shared or auto.",
    ),
    Definition(
        "delay.enabled",
        BOOLEAN,
        "true",
        "real",
        "Whether batches are looked through for records that are to be delivered later. Where not, a "
        "delay header is a header like any other. What is pending already is delivered either way.",
        synonym="delay.enabled",
    ),
    Definition(
        "delete.retention.ms",
        whole(0),
        str(DAY_MS),
        "stored",
        "How long a compacted topic keeps its tombstones; nothing is compacted here.",
    ),
    Definition(
        "errors.deadletterqueue.group.enable",
        BOOLEAN,
        "false",
        "stored",
        "Whether share groups may use this subject for their dead letters.",
        refusal=_only(False, "dead letters are not served yet"),
    ),
    Definition(
        "file.delete.delay.ms",
        whole(0),
        str(MINUTE_MS),
        "stored",
        "How long a deleted file stays on disk; segments here belong to all subjects.",
    ),
    Definition(
        "flush.messages",
        whole(1),
        str(LONG_MAX),
        "stored",
        "Messages between two syncs; here the log syncs always, and before acks=all is answered.",
    ),
    Definition(
        "flush.ms",
        whole(0),
        str(LONG_MAX),
        "stored",
        "Time between two syncs; here the log syncs always, and before acks=all is answered.",
    ),
    Definition(
        "follower.replication.throttled.replicas",
        _REPLICAS,
        "",
        "stored",
        "Replicas whose copying is throttled at the follower; a subject has a single replica.",
    ),
    Definition(
        "history",
        HISTORY_MODES,
        "off",
        "real",
        "What happens to the messages of this subject is recorded in __kumquat_actions: not at all, for a "
        "sample of them (history.sample), or for all.",
        synonym="history",
    ),
    Definition(
        "history.sample",
        integer(1),
        "100",
        "real",
        "With history=sampled: of one message in so many the life is recorded. They are chosen by their "
        "offsets, in runs of 16, so that each has all of its events.",
        synonym="history.sample",
    ),
    Definition(
        "index.interval.bytes",
        integer(0),
        "4096",
        "stored",
        "Bytes between two index entries; here every batch has one.",
    ),
    Definition(
        "index.keys",
        BOOLEAN,
        "false",
        "real",
        "Whether an index of the messages' keys is kept, for searches by key. It is made in the "
        "background, costs producers nothing, and takes 16 bytes a message on disk.",
    ),
    Definition(
        "leader.replication.throttled.replicas",
        _REPLICAS,
        "",
        "stored",
        "Replicas whose copying is throttled at the leader; a subject has a single replica.",
    ),
    Definition(
        "local.retention.bytes",
        whole(-2),
        "-2",
        "stored",
        "Bytes kept on local disk beside remote storage; all data is local here.",
    ),
    Definition(
        "local.retention.ms",
        whole(-2),
        "-2",
        "stored",
        "Time that data stays on local disk beside remote storage; all data is local here.",
    ),
    Definition(
        "max.compaction.lag.ms",
        whole(1),
        str(LONG_MAX),
        "stored",
        "Longest time before a message is compacted; nothing is compacted here.",
    ),
    Definition(
        "max.message.bytes",
        integer(0),
        "1048588",
        "real",
        "The largest record batch that is accepted, as it comes over the wire (compressed or not).",
        synonym="message.max.bytes",
    ),
    Definition(
        "message.timestamp.after.max.ms",
        whole(0),
        str(LONG_MAX),
        "stored",
        "How far ahead of the broker's clock a message's timestamp may be: not bounded here.",
        refusal=_only(LONG_MAX, _UNCHECKED),
    ),
    Definition(
        "message.timestamp.before.max.ms",
        whole(0),
        str(LONG_MAX),
        "stored",
        "How far behind the broker's clock a message's timestamp may be: not bounded here.",
        refusal=_only(LONG_MAX, _UNCHECKED),
    ),
    Definition(
        "message.timestamp.type",
        one_of("CreateTime", "LogAppendTime"),
        "CreateTime",
        "real",
        "Who stamps a message: the producer (CreateTime) or the broker (LogAppendTime).",
        synonym="log.message.timestamp.type",
    ),
    Definition(
        "min.cleanable.dirty.ratio",
        decimal(0, 1),
        "0.5",
        "stored",
        "How much of a log must be new before it is compacted again; nothing is compacted here.",
    ),
    Definition(
        "min.compaction.lag.ms",
        whole(0),
        "0",
        "stored",
        "Shortest time before a message may be compacted; nothing is compacted here.",
    ),
    Definition(
        "min.insync.replicas",
        integer(1),
        "1",
        "stored",
        "Replicas that must have a message before acks=all is answered; a subject has one.",
    ),
    Definition(
        "preallocate",
        BOOLEAN,
        "false",
        "stored",
        "Whether a segment's space is reserved when it is made; here it always is.",
    ),
    Definition(
        "remote.copy.lag.bytes",
        whole(-1),
        "0",
        "stored",
        "Bytes by which copies to remote storage may lag; there is no remote storage here.",
    ),
    Definition(
        "remote.copy.lag.ms",
        whole(-1),
        "0",
        "stored",
        "Time by which copies to remote storage may lag; there is no remote storage here.",
    ),
    Definition(
        "remote.log.copy.disable",
        BOOLEAN,
        "false",
        "stored",
        "Stops copying to remote storage; nothing is copied here.",
    ),
    Definition(
        "remote.log.delete.on.disable",
        BOOLEAN,
        "false",
        "stored",
        "Deletes remote data when remote storage is switched off; there is none here.",
    ),
    Definition(
        "remote.storage.enable",
        BOOLEAN,
        "false",
        "stored",
        "Keeps older data in remote storage: all data is local here.",
        refusal=_only(
            False, "there is no remote storage; all data stays in the log's own directory"
        ),
    ),
    Definition(
        "retention.bytes",
        whole(0, unlimited=True),
        "-1",
        "real",
        "The oldest messages go when the subject holds more than this; -1 for no limit by size.",
        synonym="log.retention.bytes",
    ),
    Definition(
        "retention.ms",
        whole(0, unlimited=True),
        str(7 * DAY_MS),
        "real",
        "How long messages are kept; -1 for ever. All subjects share the segments of one log: where this "
        "is longer than the broker's log.retention.ms, all segments since the subject's oldest message "
        "stay on disk, unless the log is larger than log.total.bytes.",
        synonym="log.retention.ms",
    ),
    Definition(
        "segment.bytes",
        integer(1024 * 1024),
        str(1024**3),
        "stored",
        "Size of a segment file; here all subjects share segments of log.segment.bytes.",
        synonym="log.segment.bytes",
    ),
    Definition(
        "segment.index.bytes",
        integer(4),
        str(10 * 1024 * 1024),
        "stored",
        "Size of a segment's index file; here an index grows as it must.",
    ),
    Definition(
        "segment.jitter.ms",
        whole(0),
        "0",
        "stored",
        "Random time taken off segment.ms; here all subjects share segments.",
    ),
    Definition(
        "segment.ms",
        whole(1),
        str(7 * DAY_MS),
        "stored",
        "Time after which a segment is closed although not full; here all subjects share segments.",
    ),
    Definition(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "stored",
        "Whether a replica that lags may become leader; a subject has a single replica.",
    ),
)

DEFINITIONS = {definition.name: definition for definition in _DEFINITIONS}

# Names that older Kafkas knew and scripts still set: a reason beats "unknown".
RETIRED = {
    "message.format.version": "only record batch version 2 is kept; leave this config out",
    "message.downconversion.enable": "messages are never converted; leave this config out",
    "message.timestamp.difference.max.ms": "timestamps are not compared with the broker's clock; "
    "leave this config out",
}

assert list(DEFINITIONS) == sorted(DEFINITIONS), "kept in alphabetical order"
