"""What a report knows: figures by subject, by hour and by slot of time. No Spark in here.

`Figures` are the same measures on each level. Hours are for tables; slots are for plots, all of one
width, chosen so that the whole range makes fewer than a hundred (`slot_width`): a report on ten
seconds shows as much as one on a week. All times are milliseconds since 1970, UTC.

A silence is a time without any message, of a second or more. Lateness is the time of delivery less
the time at which a delayed message was due; "early" counts those below zero, which must be none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kumquat.spark.pipelines.common.summary import Summary, Table, count, duration, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOUR_MS = 3_600_000
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: a later time is a mistake."""
MOST_SLOTS = 96
KEYS = "keys (about)"
"""They are estimated: see Figures."""
TABLE_HOURS = 48
_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800]
_HOURS = [1, 2, 3, 6, 12, 24, 48, 168, 336, 672]


@dataclass(frozen=True)
class Figures:
    messages: int
    octets: int
    size_p50: int
    size_p99: int
    largest: int
    keys: int
    """Different keys, estimated: within a few per cent."""
    keyless: int
    first_ms: int
    last_ms: int
    delayed: int = 0
    early: int = 0
    late_p50: int | None = None
    late_p99: int | None = None
    late_max: int | None = None


@dataclass(frozen=True)
class Silence:
    start_ms: int
    end_ms: int

    @property
    def seconds(self) -> float:
        return (self.end_ms - self.start_ms) / 1000


@dataclass(frozen=True)
class SubjectFacts:
    name: str
    total: Figures
    hours: Mapping[int, Figures]
    slots: Mapping[int, Figures]
    busiest: tuple[int, int] = (0, 0)
    """The most messages in one second, and when."""
    silences: Sequence[Silence] = ()
    """The longest of all and the longest begun in each hour; longest first."""
    top_keys: Sequence[tuple[str, int]] = ()
    holes: int | None = 0
    """Offsets between the first and the last message that have none; None: not looked for."""

    @property
    def rate(self) -> float:
        """Messages a second from the first to the last; of less than a second, its messages."""
        return self.total.messages / max((self.total.last_ms - self.total.first_ms) / 1000, 1.0)

    def hour_rate(self, hour: int) -> float:
        """Messages a second in that part of the hour that the subject's messages cover."""
        start = max(hour, self.total.first_ms)
        end = min(hour + HOUR_MS, self.total.last_ms)
        return self.hours[hour].messages / max((end - start) / 1000, 1.0)

    def hour_silence(self, hour: int) -> float:
        """Seconds of the longest silence that began in this hour."""
        began = [s.seconds for s in self.silences if hour <= s.start_ms < hour + HOUR_MS]
        return max(began, default=0.0)


@dataclass(frozen=True)
class Report:
    source: str
    written_ms: int
    subjects: Sequence[SubjectFacts]
    empty: Sequence[str] = field(default=())
    """Subjects without a message in the range."""
    timeless: Mapping[str, int] = field(default_factory=dict)
    """Of subjects that have any: messages without a valid time. They are in no figure."""

    @property
    def start_ms(self) -> int:
        return min(subject.total.first_ms for subject in self.subjects)

    @property
    def end_ms(self) -> int:
        return max(subject.total.last_ms for subject in self.subjects)

    @property
    def slot_ms(self) -> int:
        return slot_width(self.start_ms, self.end_ms)

    @property
    def messages(self) -> int:
        return sum(subject.total.messages for subject in self.subjects)

    @property
    def octets(self) -> int:
        return sum(subject.total.octets for subject in self.subjects)


def slot_width(start_ms: int, end_ms: int) -> int:
    """The smallest round width, in ms, that cuts the range into fewer than MOST_SLOTS slots."""
    widths = [s * 1000 for s in _SECONDS] + [h * HOUR_MS for h in _HOURS]
    for width in widths:
        if end_ms // width - start_ms // width < MOST_SLOTS:
            return width
    return widths[-1] * ((end_ms - start_ms) // (widths[-1] * (MOST_SLOTS - 2)) + 1)


def clock(ms: int, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(pattern)


def milliseconds(value: int | None) -> str:
    return "" if value is None else duration(value / 1000)


def rate(per_second: float) -> str:
    """1,200/s; 3.5/s; 42/min; 7/h: in the unit that gives a number above one."""
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * factor >= 1 or unit == "h":
            break
    number = per_second * factor
    return f"{number:,.0f}/{unit}" if number >= 10 else f"{number:.2g}/{unit}"


def summary(report: Report, page: str) -> Summary:
    """The report as a terminal shows it: a table of subjects, and one of subjects by hour."""
    if not report.subjects:
        values = [("source", report.source), *_left_out(report)]
        return Summary("report: no messages in the range", values)
    values = [
        ("source", report.source),
        ("time", f"{clock(report.start_ms)} to {clock(report.end_ms)} UTC"),
        ("messages", f"{count(report.messages)}, {size(report.octets)}"),
    ]
    values += [*_left_out(report), ("page", page)]
    title = f"report: {count(len(report.subjects), 'subject')}"
    return Summary(title, values, [_subjects_table(report), _hours_table(report)])


def _left_out(report: Report) -> list[tuple[str, str]]:
    rows = []
    if report.empty:
        rows.append(("without messages", ", ".join(report.empty)))
    if report.timeless:
        rows.append(("left out", timeless_text(report)))
    return rows


def timeless_text(report: Report) -> str:
    """5 messages of orders, 1 message of audit: none of them has a valid time."""
    each = [f"{count(n, 'message')} of {name}" for name, n in sorted(report.timeless.items())]
    return f"{', '.join(each)}: without a time, or later than the year 9999"


def _subjects_table(report: Report) -> Table:
    heads = ["subject", "messages", "rate", "busiest", "volume", "p50", "largest", KEYS]
    heads += ["silence", "delayed", "late p50", "p99", "max"]
    rows = []
    for subject in report.subjects:
        total = subject.total
        rows.append(
            [
                *(subject.name, count(total.messages), rate(subject.rate)),
                *(count(subject.busiest[0]), size(total.octets)),
                *(size(total.size_p50), size(total.largest), count(total.keys)),
                duration(subject.silences[0].seconds) if subject.silences else "",
                *lateness_cells(total),
            ]
        )
    return Table(heads, rows)


def _hours_table(report: Report) -> Table:
    heads = ["subject", "hour (UTC)", "messages", "rate", "volume", "p50", "largest", KEYS]
    heads += ["silence", "delayed", "late p50", "p99", "max"]
    each = max(TABLE_HOURS // len(report.subjects), 3)
    rows = [
        hour_cells(subject, hour)
        for subject in report.subjects
        for hour in sorted(subject.hours)[-each:]
    ]
    left = sum(len(subject.hours) for subject in report.subjects) - len(rows)
    more = f" (the last {each} of each; the page has {left:,} more)" if left else ""
    return Table(heads, rows, f"by subject and hour{more}")


def hour_cells(subject: SubjectFacts, hour: int) -> list[str]:
    figures = subject.hours[hour]
    silence = subject.hour_silence(hour)
    return [
        *(subject.name, clock(hour, "%Y-%m-%d %H:00")),
        *(count(figures.messages), rate(subject.hour_rate(hour)), size(figures.octets)),
        *(size(figures.size_p50), size(figures.largest), count(figures.keys)),
        duration(silence) if silence else "",
        *lateness_cells(figures),
    ]


def lateness_cells(figures: Figures) -> list[str]:
    if not figures.delayed:
        return [""] * 4
    late = (figures.late_p50, figures.late_p99, figures.late_max)
    return [count(figures.delayed), *map(milliseconds, late)]
