"""Durations that Kafka takes and we do not, or the other way round: all were tried on Kafka 4.3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.meta.durations import read_iso_duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("PT0S", 0),
        ("P1DT2H3.5S", 86_400_000 + 7_200_000 + 3500),
        ("PT0.001S", 1),
        ("PT0.0019S", 1),
        ("pt1m", 60_000),
        ("+P1D", 86_400_000),
        ("PT1H-30M", 1_800_000),
        ("PT1S", 1000),
        ("PT1M-0.5S", 59_500),
        ("P100000000000D", 86_400_000 * 10**11),
    ],
)
def test_what_kafka_takes_is_read(text: str, milliseconds: int) -> None:
    assert read_iso_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "P1Y", "P1W", "P1M", "1h", " PT1H", "PT1H ", "-PT1H", "PT-1H"]
)
def test_what_kafka_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration|is negative"):
        read_iso_duration(text)


@given(st.text(alphabet="PTDHMSptdhms0123456789.,+-", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert read_iso_duration(text) >= 0
    except ValueError:
        return
