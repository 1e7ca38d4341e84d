"""The page and the tables of a report, from made-up facts: no Spark, no broker."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.spark.pipelines.report.facts import (
    HOUR_MS,
    MOST_SLOTS,
    Figures,
    Report,
    Silence,
    SubjectFacts,
    rate,
    slot_width,
    summary,
)
from kumquat.spark.pipelines.report.page import page
from kumquat.spark.pipelines.report.plots import (
    COUNT,
    HEIGHT,
    LENGTH,
    MOST_TIME_TICKS,
    OCTETS,
    TOP,
    WIDTH,
    TimeAxis,
    bars,
    lines,
    round_lengths,
    round_ticks,
)

T0 = 1_794_787_200_000
"""2026-11-16 00:00 UTC."""
TIMES = st.integers(0, 4_000_000_000_000)
VOID = {"meta"}


def figures(messages: int = 10, **more: int) -> Figures:
    plain = Figures(messages, messages * 100, 100, 180, 200, 4, 0, T0, T0 + HOUR_MS)
    return replace(plain, **more)


def facts(name: str = "orders", **more: object) -> SubjectFacts:
    late = figures(7, delayed=3, late_p50=4, late_p99=90, late_max=120)
    hours = {T0: figures(), T0 + HOUR_MS: late}
    total = figures(17, delayed=3, late_p50=4, late_p99=90, late_max=120)
    plain = SubjectFacts(name, total, hours, {T0: figures(), T0 + 60_000: late}, (5, T0))
    return replace(plain, **more)  # type: ignore[arg-type]


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src", "srcset", "data")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(text: str) -> str:
    """Every tag is closed, and nothing is fetched from elsewhere."""
    parser = _Balance()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert all(link is not None and re.fullmatch(r"#s[0-9]+", link) for link in parser.links)
    assert not re.search(r"https?:|@import|url\(|<script", text)
    return text


def test_a_page_that_needs_something_else() -> None:
    silences = [Silence(T0 + 60_000, T0 + 2_000_000)]
    keys = [("customer-1", 9), ("customer-2", 2)]
    subjects = [facts(silences=silences, top_keys=keys, holes=3), facts("audit")]
    report = Report("broker 127.0.0.1:9092", T0, subjects, ["idle"], {"orders": 2})
    text = checked(page(report))
    for part in ("orders", "audit", "idle", "customer-2", "Lateness", "silences shaded", "90 ms"):
        assert part in text
    assert "prefers-color-scheme: dark" in text
    assert 'id="s1"' in text


def test_a_key_or_a_name_that_is_html() -> None:
    evil = "</title><script>alert('1')</script>\"'>"
    text = checked(page(Report(evil, T0, [facts(evil, top_keys=[(evil, 2)])], [evil])))
    assert evil not in text
    assert "&lt;script&gt;" in text


def test_a_report_on_nothing_has_no_page() -> None:
    text = checked(page(Report("archive there", T0, [], ["orders"])))
    assert "There is no message in the range." in text
    assert "<svg" not in text
    assert "orders" in summary(Report("archive there", T0, [], ["orders"]), "page").text()


def test_early_deliveries_are_not_shown() -> None:
    early = facts(total=figures(17, delayed=3, early=1, late_p50=-2, late_p99=4, late_max=5))
    assert 'class="bad"' in page(Report("broker", T0, [early]))
    assert 'class="bad"' not in page(Report("broker", T0, [facts()]))


def test_a_bar_outside_the_picture() -> None:
    axis = TimeAxis.covering(T0, T0 + 90_000, 1000)
    values = {T0: 1.0, T0 + 90_000: 977.0}
    silence = [Silence(T0 + 1000, T0 + 89_999)]
    root = ElementTree.fromstring(bars(axis, values, "a & b", COUNT, silence))
    found = list(root.iter("rect"))
    assert [shape.get("class") for shape in found] == ["silence", "bar", "bar"]
    for shape in found:
        x, y, wide, high = (float(shape.get(a) or "nan") for a in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + wide <= WIDTH
        assert y >= TOP
        assert y + high <= HEIGHT
    assert float(found[1].get("height") or 0) > 0


def test_a_line_drawn_over_slots_that_have_no_value() -> None:
    axis = TimeAxis.covering(T0, T0 + 9000, 1000)
    values = {T0: 1.0, T0 + 1000: 2.0, T0 + 5000: 3.0}
    root = ElementTree.fromstring(lines(axis, [("p50", "p50", values)], "late", LENGTH))
    path = next(root.iter("path")).get("d") or ""
    assert re.sub(r"[^ML]", "", path) == "MLM"
    assert len(list(root.iter("circle"))) == 3


@given(TIMES, TIMES)
def test_more_slots_than_a_plot_can_show(one: int, other: int) -> None:
    start, end = sorted((one, other))
    width = slot_width(start, end)
    assert width % 1000 == 0
    axis = TimeAxis.covering(start, end, width)
    assert axis.start_ms <= start <= end < axis.end_ms
    assert (axis.end_ms - axis.start_ms) // width <= MOST_SLOTS
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= MOST_TIME_TICKS + 1
    assert all(axis.start_ms <= at <= axis.end_ms for at, _ in ticks)


@given(st.integers(0, 10**15))
def test_numbers_on_the_axis_that_are_not_round(top: int) -> None:
    ticks = round_ticks(top)
    assert 2 <= len(ticks) <= 6
    assert ticks[-1] >= top
    assert str(ticks[1]).rstrip("0") in ("1", "2", "5")


@given(st.integers(0, 10**12))
def test_times_on_the_axis_that_no_clock_shows(top_ms: int) -> None:
    ticks = round_lengths(top_ms)
    assert 2 <= len(ticks) <= 6
    assert ticks[-1] >= top_ms
    assert re.fullmatch(r"[1-9][0-9,]{0,6} (ms|s|min|h|d)", LENGTH.tick(ticks[1]))


def test_a_label_that_does_not_fit_beside_the_axis() -> None:
    assert [LENGTH.tick(ms) for ms in round_lengths(4_300_000)] == ["0", "30 min", "1 h", "90 min"]
    assert [COUNT.tick(n) for n in (0, 9000, 150_000, 1_500_000)] == [
        "0",
        "9,000",
        "150 k",
        "1.5 M",
    ]
    assert [OCTETS.tick(n) for n in (0, 500, 100_000, 1_500_000)] == [
        "0 B",
        "500 B",
        "100 kB",
        "1.5 MB",
    ]
    assert COUNT.show(149_999) == "149,999"


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(12_345.6, "12,346/s"), (1.5, "1.5/s"), (0.5, "30/min"), (0.001, "3.6/h"), (0, "0/h")],
)
def test_a_rate_in_a_unit_that_says_nothing(per_second: float, text: str) -> None:
    assert rate(per_second) == text


def test_hours_that_the_table_leaves_out_in_silence() -> None:
    hours = {T0 + h * HOUR_MS: figures() for h in range(60)}
    text = summary(Report("broker", T0, [facts(hours=hours)]), "page").text()
    assert "the last 48 of each; the page has 12 more" in text
    assert "By hour (60 hours)" in page(Report("broker", T0, [facts(hours=hours)]))
