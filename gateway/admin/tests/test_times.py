"""A time that is read in another zone, to another unit, or shown so that it cannot be read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.gateway.admin.times import read_time, show_time

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("0", 0),
        (" 1700000000123 ", 1_700_000_000_123),
        ("2024-02-29", 1_709_164_800_000),
        ("2024-02-29T12:00", 1_709_208_000_000),
        ("2024-02-29T12:00Z", 1_709_208_000_000),
        ("2024-02-29 12:00:00.5Z", 1_709_208_000_500),
        ("2024-02-29T12:00:00.1239+02:00", 1_709_200_800_123),
        ("2024-03-31T02:30:00+01:00", 1_711_848_600_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("15m", NOW + 900_000),
        ("+2h", NOW + 7_200_000),
        ("1h30m", NOW + 5_400_000),
    ],
)
def test_a_time_is_read_as_it_is_meant_wherever_the_machine_is(
    text: str, time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    assert read_time(text, NOW) == time


@pytest.mark.parametrize(
    "text",
    ["", "now", "1e3", "-1", "2024-02-30", "12:00", "٣", "1" * 20, "2024-02-29x12:00", "15", "15M"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_time(text, NOW)


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_that_was_shown_can_be_read_again(time: int) -> None:
    assert read_time(show_time(time), NOW) == time


def test_a_time_that_no_calendar_has_is_shown_as_its_number() -> None:
    assert show_time(2**63 - 1) == str(2**63 - 1)
