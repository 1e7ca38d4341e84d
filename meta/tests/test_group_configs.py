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
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is not allowed: expected") as refused:
        validate_group(name, value)
    assert f"{name}={value!r}" in str(refused.value)


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
