"""A command that is obeyed although it says something else, or refused without a reason that helps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.delivery.commands import (
    LONGEST_REASON,
    MAX_AFTER_MS,
    MAX_OFFSET,
    NAMES,
    Command,
    read_command,
)
from kumquat.core.errors import InvalidRecord

Headers = list[tuple[str, bytes | None]]
LEAST: dict[str, bytes | None] = {
    "qmq-retry-group": b"billing",
    "qmq-retry-subject": b"orders",
    "qmq-retry-offset": b"42",
}


def headers(**more: bytes | None) -> Headers:
    """With _ for each dash after the prefix."""
    named = {f"qmq-retry-{name.replace('_', '-')}": value for name, value in more.items()}
    return list({**LEAST, **named}.items())


def reason(given: Headers) -> str:
    with pytest.raises(InvalidRecord) as refused:
        read_command(given)
    return str(refused.value)


def test_the_least_that_a_command_says_is_a_retry_after_the_groups_backoff() -> None:
    assert read_command(headers()) == Command("billing", "orders", 42, False, None, "")


def test_all_that_a_command_can_say() -> None:
    given = headers(action=b"retry", after_ms=b"1500", reason="kaputt: ü".encode())
    expected = Command("billing", "orders", 42, False, 1500, "kaputt: ü")
    assert read_command(given) == expected
    assert read_command(reversed(given)) == expected
    rejected = read_command(headers(action=b"reject", reason=b"no such customer"))
    assert (rejected.reject, rejected.reason) == (True, "no such customer")


def test_other_headers_do_not_count() -> None:
    others: Headers = [("traceparent", b"00-1"), ("qmq-attempt", b"3"), ("QMQ-Attempt", None)]
    assert read_command([*others, *headers()]) == read_command(headers())


@pytest.mark.parametrize("name", LEAST)
def test_what_is_missing_is_named(name: str) -> None:
    given = [header for header in headers() if header[0] != name]
    assert f"header {name} is missing" in reason(given)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("group", b""),
        ("group", None),
        ("group", b"\xff"),
        ("subject", b""),
        ("offset", b""),
        ("offset", None),
        ("offset", b"-1"),
        ("offset", b"4x"),
        ("offset", b"1e3"),
        ("offset", b" 1"),
        ("offset", "٣".encode()),
        ("offset", str(MAX_OFFSET + 1).encode()),
        ("offset", b"9" * 5000),
        ("action", b"ignore"),
        ("action", b"Retry"),
        ("action", b""),
        ("action", None),
        ("after_ms", b"-1"),
        ("after_ms", b"1.5"),
        ("after_ms", b""),
        ("after_ms", None),
        ("after_ms", str(MAX_AFTER_MS + 1).encode()),
        ("reason", b"\xff\xfe"),
        ("reason", None),
        ("reason", b"x" * (LONGEST_REASON + 1)),
    ],
)
def test_a_bad_value_is_shown_with_what_is_allowed(field: str, value: bytes | None) -> None:
    told = reason(headers(**{field: value}))
    assert told.startswith(f"header qmq-retry-{field.replace('_', '-')} is ")
    assert "; allowed is " in told
    assert len(told) < 300


def test_the_longest_delay_and_the_longest_reason_are_allowed() -> None:
    given = headers(after_ms=str(MAX_AFTER_MS).encode(), reason=b"x" * LONGEST_REASON)
    command = read_command(given)
    assert (command.after_ms, len(command.reason)) == (MAX_AFTER_MS, LONGEST_REASON)


def test_a_delay_of_a_message_that_is_rejected_is_no_mistake_to_overlook() -> None:
    told = reason(headers(action=b"reject", after_ms=b"1"))
    assert "not beside qmq-retry-action: reject" in told


@pytest.mark.parametrize(
    "name", ["qmq-retry-delay-ms", "QMQ-Retry-Group", "qmq-retry-", "qmq-retry-sbject"]
)
def test_a_misspelled_header_is_refused(name: str) -> None:
    told = reason([*headers(), (name, b"1")])
    assert f"header {name!r} is not known" in told
    assert "qmq-retry-after-ms" in told


def test_a_header_that_is_there_twice_is_refused() -> None:
    assert (
        reason([*headers(), ("qmq-retry-offset", b"43")])
        == "header qmq-retry-offset is there twice"
    )


@given(st.lists(st.tuples(st.sampled_from(NAMES) | st.text(), st.none() | st.binary())))
def test_any_headers_are_a_command_or_refused(given: Headers) -> None:
    try:
        read_command(given)
    except InvalidRecord:
        return
