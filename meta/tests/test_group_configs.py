"""Group configs that lie, slip through, or are refused without saying why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.meta.definitions import ConfigSource
from kumquat.meta.errors import InvalidConfig
from kumquat.meta.group_configs import (
    GROUP_DEFINITIONS,
    consume_mode,
    describe_group,
    effective_group,
    validate_group,
)


@pytest.mark.parametrize("name", GROUP_DEFINITIONS)
def test_a_default_is_never_refused(name: str) -> None:
    validate_group(name, GROUP_DEFINITIONS[name].default)
    assert GROUP_DEFINITIONS[name].doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consume.mode", "broadcast"),
        ("consume.mode", ""),
        ("consume.auto.offset.reset", "none"),
        ("lease.max.records", "0"),
        ("lease.max.records", "2147483648"),
        ("lease.steal.after.ms", "-1"),
        ("auto.exclusive.after.ms", "soon"),
        ("delivery.count.limit", "0"),
        ("delivery.count.limit", "1001"),
        ("errors.deadletterqueue.topic.name", "dead letters"),
        ("errors.deadletterqueue.topic.name", "{subject}.{host}"),
        ("errors.deadletterqueue.topic.name", "__dead"),
        ("errors.deadletterqueue.topic.name", ".."),
        ("errors.deadletterqueue.topic.name", "d" * 250),
        ("retry.backoff.max.ms", "-1"),
        ("retry.backoff.ms", "-1"),
        ("retry.backoff.ms", "1s"),
        ("retry.backoff.multiplier", "0.9"),
        ("retry.backoff.multiplier", "100.1"),
        ("retry.backoff.multiplier", "nan"),
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:P1W"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "11"),
        ("share.heartbeat.interval.ms", "4999"),
        ("share.heartbeat.interval.ms", "15001"),
        ("share.isolation.level", "serializable"),
        ("share.partition.max.record.locks", "99"),
        ("share.partition.max.record.locks", "4001"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.record.lock.duration.ms", "60001"),
        ("share.renew.acknowledge.enable", "yes"),
        ("share.session.timeout.ms", "44999"),
        ("share.session.timeout.ms", "60001"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is not allowed: expected") as refused:
        validate_group(name, value)
    assert f"{name}={value!r}" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("delivery.count.limit", "1", "delivery_count_limit", 1),
        ("delivery.count.limit", "1000", "delivery_count_limit", 1000),
        ("errors.deadletterqueue.topic.name", "", "dead_letter_subject", ""),
        (
            "errors.deadletterqueue.topic.name",
            "dead.{group}",
            "dead_letter_subject",
            "dead.{group}",
        ),
        ("retry.backoff.max.ms", "0", "retry_backoff_max_ms", 0),
        ("retry.backoff.ms", "0", "retry_backoff_ms", 0),
        ("retry.backoff.multiplier", "1.5", "retry_backoff_multiplier", 1.5),
        ("retry.backoff.multiplier", "100", "retry_backoff_multiplier", 100.0),
        ("share.auto.offset.reset", "earliest", "share_auto_offset_reset", "earliest"),
        ("share.auto.offset.reset", "by_duration:PT1H", "share_reset_ms", 3_600_000),
        ("share.delivery.count.limit", "10", "share_delivery_count_limit", 10),
        ("share.heartbeat.interval.ms", "15000", "share_heartbeat_interval_ms", 15_000),
        ("share.isolation.level", "read_committed", "share_isolation_level", "read_committed"),
        ("share.partition.max.record.locks", "100", "share_max_record_locks", 100),
        ("share.record.lock.duration.ms", "60000", "share_record_lock_duration_ms", 60_000),
        ("share.renew.acknowledge.enable", "false", "share_renew_enable", False),
        ("share.session.timeout.ms", "60000", "share_session_timeout_ms", 60_000),
    ],
)
def test_a_config_that_is_set_is_in_force(
    name: str, value: str, field: str, expected: object
) -> None:
    validate_group(name, value)
    assert getattr(effective_group({name: value}), field) == expected


def test_what_a_group_that_sets_nothing_retries_and_how_often() -> None:
    config = effective_group({})
    backoff = (
        config.retry_backoff_ms,
        config.retry_backoff_multiplier,
        config.retry_backoff_max_ms,
    )
    assert backoff == (1000, 2.0, 600_000)
    assert (config.delivery_count_limit, config.share_delivery_count_limit) == (16, 5)
    assert (config.dead_letter_subject, config.share_reset_ms) == ("", None)


def test_an_unknown_config_is_refused_with_the_nearest_name_or_with_all() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean consume\.mode\?"):
        validate_group("consume.mod", "auto")
    with pytest.raises(InvalidConfig, match=r"there are auto\.exclusive\.after\.ms, "):
        validate_group("zzz", "1")


def test_the_groups_own_mode_beats_the_subjects() -> None:
    assert consume_mode({}, {}) == "auto"
    assert consume_mode({}, {"consume.mode": "shared"}) == "shared"
    assert consume_mode({"consume.mode": "auto"}, {"consume.mode": "shared"}) == "auto"
    assert consume_mode({"lease.max.records": "1"}, {"consume.mode": "shared"}) == "shared"


def test_a_stored_value_that_is_no_longer_allowed_has_no_effect() -> None:
    config = effective_group({"lease.max.records": "-5", "lease.steal.after.ms": "7"})
    assert (config.lease_max_records, config.lease_steal_after_ms) == (2000, 7)


def test_describe_says_where_a_value_comes_from() -> None:
    rows = {row.name: row for row in describe_group({"consume.mode": "shared"})}
    assert rows.keys() == GROUP_DEFINITIONS.keys()
    mode, records = rows["consume.mode"], rows["lease.max.records"]
    assert (mode.value, mode.source, mode.is_default) == (
        "shared",
        ConfigSource.GROUP_CONFIG,
        False,
    )
    assert [(s.value, s.source) for s in mode.synonyms] == [
        ("shared", ConfigSource.GROUP_CONFIG),
        ("auto", ConfigSource.DEFAULT_CONFIG),
    ]
    assert (records.value, records.source) == ("2000", ConfigSource.DEFAULT_CONFIG)
    assert records.is_default
    assert [row.name for row in describe_group({}, ["consume.mode", "no.such"])] == ["consume.mode"]


@given(st.sampled_from(sorted(GROUP_DEFINITIONS)), st.text())
def test_any_text_is_accepted_or_refused_and_never_breaks(name: str, value: str) -> None:
    try:
        validate_group(name, value)
    except InvalidConfig:
        return
    effective_group({name: value})
