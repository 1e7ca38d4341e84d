"""A time that is understood in another way than it was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.wheel.intake.durations import read_duration, read_instant, read_units

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("900000", 900_000),
        ("15m", 900_000),
        ("+2h", 7_200_000),
        ("1h30m", 5_400_000),
        ("90s", 90_000),
        ("2d", 172_800_000),
        ("1w1d", 691_200_000),
        ("1s500ms", 1_500),
        ("0s", 0),
    ],
)
def test_a_duration_is_what_people_mean_by_it(text: str, ms: int) -> None:
    assert read_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        *["", "+", "m", "15M", "15 m", " 15m", "1.5h", "-1h", "1h1h", "30m1h", "1ms1s", "15min"],
        *["+900000", "1h30", "PT15M", "\u0663m", "1" * 20, "1h\n", "++1h", "1e3s", "15m "],
    ],
)
def test_what_could_mean_several_things_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        read_duration(text)


def test_digits_alone_are_no_duration_where_they_could_be_a_time() -> None:
    with pytest.raises(ValueError, match="is no duration"):
        read_units("900000")


@given(
    st.dictionaries(st.sampled_from(list(UNITS)), st.integers(0, 10**6), min_size=1), st.booleans()
)
def test_every_duration_in_order_is_the_sum_of_its_units(
    counts: dict[str, int], plus: bool
) -> None:
    text = "".join(f"{counts[unit]}{unit}" for unit in UNITS if unit in counts)
    assert read_duration("+" * plus + text) == sum(n * UNITS[unit] for unit, n in counts.items())


@given(st.text(alphabet="0123456789wdhms+. -", max_size=12))
def test_a_text_is_read_to_one_number_or_refused(text: str) -> None:
    try:
        ms = read_duration(text)
    except ValueError:
        return
    left = text.removeprefix("+")
    if left.isdigit():
        assert (ms, text) == (int(left), left)
        return
    total = 0
    for unit, size in UNITS.items():
        head, found, tail = left.partition(unit)
        if found and head.isdigit() and not (unit == "m" and tail.startswith("s")):
            total, left = total + int(head) * size, tail
    assert (left, total) == ("", ms)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1800000000000", 1_800_000_000_000),
        ("2024-02-29T12:00Z", 1_709_208_000_000),
        ("2024-02-29T13:00:00.25+01:00", 1_709_208_000_250),
        ("2024-02-29 12:00:00-0000", 1_709_208_000_000),
    ],
)
def test_an_instant_is_the_same_everywhere(text: str, ms: int) -> None:
    assert read_instant(text) == ms


@pytest.mark.parametrize(
    "text", ["2024-02-29", "2024-02-29T12:00", "12:00Z", "2024-W09-4T12:00Z", "2024-02-30T12:00Z"]
)
def test_an_instant_without_a_zone_or_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_instant(text)


def test_without_a_zone_it_is_utc_only_where_that_is_said() -> None:
    assert read_instant("2024-02-29T12:00", utc=True) == 1_709_208_000_000
    assert read_instant("2024-02-29", utc=True) == 1_709_164_800_000
