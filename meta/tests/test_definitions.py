"""Configs that lie, slip through, or are refused without saying why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.meta.definitions import (
    DEFINITIONS,
    ConfigSource,
    SubjectDefaults,
    describe,
    effective,
    outdated,
    validate,
)
from kumquat.meta.errors import InvalidConfig

BROKER = SubjectDefaults()
WEEK = "604800000"

OURS = ("consume.mode", "delay.enabled", "history", "history.sample", "index.keys")

# What Kafka 4's own tools may set on a topic.
KAFKA_4 = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "errors.deadletterqueue.group.enable",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]

BAD = {
    "retention.ms": ["", "abc", "1e3", "1_000", "-2", "٣", "9223372036854775808", "9" * 400],
    "retention.bytes": ["-2", "1.5", "0x10"],
    "max.message.bytes": ["-1", "2147483648", "lots"],
    "message.timestamp.type": ["", "createtime", "LogAppend"],
    "min.insync.replicas": ["0", "-1"],
    "min.cleanable.dirty.ratio": ["1.1", "-0.1", "nan", "inf"],
    "segment.bytes": ["1048575"],
    "preallocate": ["yes", "1", ""],
    "cleanup.policy": ["Delete", "remove"],
    "compression.type": ["brotli"],
    "compression.gzip.level": ["0", "10"],
    "consume.mode": ["", "Shared", "broadcast"],
    "leader.replication.throttled.replicas": ["0", "a:b", "0:1,"],
}

PROMISES = {
    "cleanup.policy": ["compact", "compact,delete", "delete, compact", ""],
    "errors.deadletterqueue.group.enable": ["true"],
    "message.timestamp.after.max.ms": ["3600000"],
    "message.timestamp.before.max.ms": ["0"],
    "remote.storage.enable": ["true", "TRUE"],
}

EVERYDAY = {
    "cleanup.policy": "delete",
    "compression.type": "zstd",
    "consume.mode": "shared",
    "flush.messages": "1",
    "follower.replication.throttled.replicas": "*",
    "leader.replication.throttled.replicas": "0:1,0:2",
    "max.message.bytes": "2000000",
    "message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "2",
    "preallocate": "True",
    "remote.storage.enable": "false",
    "retention.bytes": " 1073741824 ",
    "retention.ms": "+60000",
    "segment.bytes": "536870912",
    "unclean.leader.election.enable": "false",
}


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, values in table.items() for value in values]


def test_no_config_of_kafka_4_is_unknown() -> None:
    assert sorted(DEFINITIONS) == sorted([*KAFKA_4, *OURS])


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_default_is_never_refused(name: str) -> None:
    validate(name, DEFINITIONS[name].default)
    assert DEFINITIONS[name].doc.endswith(".")


@pytest.mark.parametrize(("name", "value"), EVERYDAY.items())
def test_what_everyday_scripts_set_is_accepted(name: str, value: str) -> None:
    validate(name, value)


@pytest.mark.parametrize(("name", "value"), pairs(BAD))
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate(name, value)
    message = str(refused.value)
    assert name in message
    assert repr(value) in message
    assert DEFINITIONS[name].kind.allowed in message
    assert refused.value.error_code == 40


@pytest.mark.parametrize(("name", "value"), pairs(PROMISES))
def test_a_promise_we_do_not_keep_is_refused_with_the_reason(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match="is refused: ") as refused:
        validate(name, value)
    assert str(refused.value).startswith(f"{name}={value!r} is refused: ")


def test_an_unknown_config_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        InvalidConfig, match=r"unknown config 'retention.mss'; did you mean retention.ms"
    ):
        validate("retention.mss", "1")
    with pytest.raises(InvalidConfig, match=r"^unknown config 'x'$"):
        validate("x", "1")


def test_a_config_that_kafka_has_dropped_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidConfig, match="only record batch version 2"):
        validate("message.format.version", "2.8")


@pytest.mark.parametrize("broker", ["1000", "-1"])
@pytest.mark.parametrize("value", ["0", "1000", "1001", "-1", "9223372036854775807"])
def test_retention_may_outlive_the_brokers(broker: str, value: str) -> None:
    defaults = SubjectDefaults({"log.retention.ms": broker})
    validate("retention.ms", value)
    assert effective({"retention.ms": value}, defaults).retention_ms == int(value)
    (shown,) = describe({"retention.ms": value}, defaults, ["retention.ms"])
    assert shown.value == value


def test_real_configs_take_effect_and_absent_ones_are_the_brokers() -> None:
    defaults = SubjectDefaults({"message.max.bytes": "500", "log.retention.bytes": "7"})
    plain = effective({}, defaults)
    assert (plain.max_message_bytes, plain.retention_ms) == (500, int(WEEK))
    assert (plain.retention_bytes, plain.log_append_time) == (7, False)
    configs = {
        "max.message.bytes": "600",
        "retention.ms": "5",
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
    }
    mine = effective(configs, defaults)
    assert (mine.max_message_bytes, mine.retention_ms) == (600, 5)
    assert (mine.retention_bytes, mine.log_append_time) == (-1, True)


@pytest.mark.parametrize("broker", ["true", "false"])
def test_a_subject_says_for_itself_whether_it_takes_delayed_messages(broker: str) -> None:
    defaults = SubjectDefaults({"delay.enabled": broker})
    assert effective({}, defaults).delay_enabled is (broker == "true")
    for mine in ("true", "false"):
        assert effective({"delay.enabled": mine}, defaults).delay_enabled is (mine == "true")


def test_a_stored_value_that_is_no_longer_allowed_has_no_effect_and_is_told_of() -> None:
    configs = {"retention.ms": "-5", "max.message.bytes": "garbage", "segment.ms": "10"}
    broker = SubjectDefaults({"log.retention.ms": "1000"})
    assert effective(configs, broker).retention_ms == 1000
    assert effective(configs, broker).max_message_bytes == 1048588
    lines = outdated(configs)
    assert [line.partition("=")[0] for line in lines] == ["retention.ms", "max.message.bytes"]
    assert outdated({"retention.ms": "5000"}) == []


def test_describe_says_where_a_value_comes_from() -> None:
    broker = SubjectDefaults({"log.retention.ms": "1000"})
    rows = {row.name: row for row in describe({"retention.ms": "10"}, broker)}
    assert rows.keys() == DEFINITIONS.keys()
    mine = rows["retention.ms"]
    assert (mine.value, mine.source, mine.is_default) == (
        "10",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        False,
    )
    assert [(s.name, s.value, s.source.value) for s in mine.synonyms] == [
        ("retention.ms", "10", 1),
        ("log.retention.ms", "1000", 4),
        ("log.retention.ms", WEEK, 5),
    ]
    from_broker = describe({}, broker, ["retention.ms", "no.such"])
    assert [(row.value, row.source) for row in from_broker] == [
        ("1000", ConfigSource.STATIC_BROKER_CONFIG)
    ]
    assert rows["segment.ms"].source is ConfigSource.DEFAULT_CONFIG


def test_only_options_that_were_changed_count_as_the_brokers() -> None:
    defaults = SubjectDefaults.changed({"log.retention.ms": WEEK, "message.max.bytes": 5})
    assert dict(defaults.options) == {"message.max.bytes": "5"}


@given(name=st.sampled_from(KAFKA_4), value=st.text(max_size=30) | st.integers().map(str))
def test_any_text_is_accepted_or_refused_and_never_breaks(name: str, value: str) -> None:
    try:
        validate(name, value)
    except InvalidConfig:
        assert outdated({name: value})
    else:
        assert not outdated({name: value})
    effective({name: value}, BROKER)
    assert describe({name: value}, BROKER, [name])[0].value == value


def test_what_is_not_set_is_not_made_again_for_each_subject() -> None:
    defaults = SubjectDefaults({"log.retention.ms": "86400000"})
    first, second = (describe({"segment.bytes": size}, defaults) for size in ("2000000", "3000000"))
    own = {row.name for row, other in zip(first, second, strict=True) if row is not other}
    assert own == {"segment.bytes"}
    (again,) = describe({}, defaults, ["segment.bytes"])
    assert again.is_default
