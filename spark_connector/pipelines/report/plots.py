"""Plots of a report as SVG text, for an HTML page. No Spark in here.

A plot is drawn in a box of WIDTH by HEIGHT units that the page stretches to its column. Colours and
fonts are the page's: everything drawn has a class, and the page's style says how a class looks
in light and dark mode. Each bar and point has a `title`, which browsers show under the pointer.

The time axis begins and ends where the report does, the same for all its subjects, so that plots
below each other can be compared. Numbers on the other axis are round in their unit (10, 20, 30 s and
15, 30, 45 min), and it begins at zero: the height of a bar is its number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from kumquat.spark.pipelines.common.summary import duration, size
from kumquat.spark.pipelines.report.facts import HOUR_MS, Silence, clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

DAY_MS = 24 * HOUR_MS
WIDTH, HEIGHT = 480, 170
LEFT, RIGHT, TOP, BOTTOM = 60, 6, 10, 24
MOST_TIME_TICKS = 6
_TICK_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800]
_TICK_HOURS = [1, 2, 3, 6, 12, 24, 48, 168, 336, 672, 1344, 2688]
_LENGTHS = [m for power in (1, 10, 100) for m in (power, 2 * power, 5 * power)]
_LENGTHS += [s * 1000 for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)]
_LENGTHS += [h * HOUR_MS for h in (1, 2, 3, 6, 12)]
MOST_HEIGHT_TICKS = 4


@dataclass(frozen=True)
class TimeAxis:
    """Whole slots of one width: the first holds the report's start, the last its end."""

    start_ms: int
    end_ms: int
    slot_ms: int

    @classmethod
    def covering(cls, start_ms: int, end_ms: int, slot_ms: int) -> TimeAxis:
        return cls(start_ms // slot_ms * slot_ms, (end_ms // slot_ms + 1) * slot_ms, slot_ms)

    def x(self, ms: float) -> float:
        inside = WIDTH - LEFT - RIGHT
        return LEFT + inside * (ms - self.start_ms) / (self.end_ms - self.start_ms)

    def ticks(self) -> list[tuple[int, str]]:
        """Round times, and what is written below them: the day where a day begins."""
        steps = [s * 1000 for s in _TICK_SECONDS] + [h * HOUR_MS for h in _TICK_HOURS]
        span = self.end_ms - self.start_ms
        step = next((s for s in steps if span / s <= MOST_TIME_TICKS), span)
        first = -(-self.start_ms // step) * step
        times = range(first, self.end_ms + 1, step)
        return [(ms, clock(ms, _time_pattern(ms, step))) for ms in times]


@dataclass(frozen=True)
class Unit:
    """The vertical axis."""

    show: Callable[[float], str]
    """A value as it is shown under the pointer."""
    tick: Callable[[float], str]
    """A value as it is shown beside the axis, where there is room for seven letters."""
    ticks: Callable[[float], Sequence[int]]
    """From 0 to at or above the top."""


def bars(
    axis: TimeAxis,
    values: Mapping[int, float],
    label: str,
    unit: Unit,
    silences: Iterable[Silence] = (),
) -> str:
    """A bar a slot; behind them, long silences as bands."""
    height = _Height(max(values.values(), default=0), unit)
    parts = [_band(axis, silence) for silence in silences]
    parts += [height.grid(), _time_labels(axis)]
    for start, value in sorted(values.items()):
        x, y = axis.x(start), height.y(value)
        wide = max(axis.x(start + axis.slot_ms) - x - 1, 1.0)
        title = f"{clock(start)}: {unit.show(value)}"
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}"'
            f' height="{_floor() - y:.1f}"><title>{escape(title)}</title></rect>'
        )
    return _picture(label, parts)


def lines(
    axis: TimeAxis,
    series: Sequence[tuple[str, str, Mapping[int, float]]],
    label: str,
    unit: Unit,
) -> str:
    """Lines with a point a slot, each (name, class, values). A slot without a value breaks the line."""
    top = max((v for _, _, values in series for v in values.values()), default=0)
    height = _Height(top, unit)
    parts = [height.grid(), _time_labels(axis)]
    for name, kind, values in series:
        points = [
            (start, axis.x(start + axis.slot_ms / 2), values[start]) for start in sorted(values)
        ]
        path, last = [], None
        for start, x, value in points:
            joined = last is not None and start - last == axis.slot_ms
            path.append(f"{'L' if joined else 'M'}{x:.1f} {height.y(value):.1f}")
            last = start
        parts.append(f'<path class="line {kind}" d="{" ".join(path)}"/>')
        for start, x, value in points:
            title = f"{clock(start)}, {name}: {unit.show(value)}"
            parts.append(
                f'<circle class="point {kind}" cx="{x:.1f}" cy="{height.y(value):.1f}" r="2.5">'
                f"<title>{escape(title)}</title></circle>"
            )
    return _picture(label, parts)


def sparkline(axis: TimeAxis, values: Mapping[int, float], label: str) -> str:
    """The shape of the bars in the height of a line of text."""
    wide, high, top = 120, 22, max(values.values(), default=0) or 1
    slots = (axis.end_ms - axis.start_ms) // axis.slot_ms
    step = wide / slots
    shapes = "".join(
        f'<rect class="bar" x="{(start - axis.start_ms) // axis.slot_ms * step:.1f}"'
        f' y="{high - max(high * value / top, 1):.1f}" width="{max(step - 0.3, 0.7):.1f}"'
        f' height="{max(high * value / top, 1):.1f}"/>'
        for start, value in sorted(values.items())
    )
    return (
        f'<svg class="spark" viewBox="0 0 {wide} {high}" role="img" aria-label="{escape(label)}">'
        f"{shapes}</svg>"
    )


def round_ticks(top: float) -> list[int]:
    """0 and a few round whole numbers above it, the last one at or above the top."""
    return _up_to(top, _round_step(top))


def round_lengths(top_ms: float) -> list[int]:
    """The same for lengths of time: round as clocks have it."""
    step = next((ms for ms in _LENGTHS if top_ms / ms <= MOST_HEIGHT_TICKS), 0)
    return _up_to(top_ms, step or _round_step(top_ms / DAY_MS) * DAY_MS)


def _round_step(top: float) -> int:
    rough = max(top / MOST_HEIGHT_TICKS, 1.0)
    power = int(10 ** math.floor(math.log10(rough)))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough)


def _up_to(top: float, step: int) -> list[int]:
    return [step * i for i in range(max(math.ceil(top / step), 1) + 1)]


def short_count(number: float) -> str:
    """9,000; 10 k; 1.5 M."""
    if number < 10_000:
        return f"{number:,.0f}"
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= unit:
            return f"{number / unit:g} {name}"
    return f"{number / 1000:g} k"


def short_length(ms: float) -> str:
    """0; 20 ms; 15 s; 90 min; 2 h; 3 d: in the largest unit that leaves a whole number."""
    for unit, name in ((DAY_MS, "d"), (HOUR_MS, "h"), (60_000, "min"), (1000, "s")):
        if ms >= unit and ms % unit == 0:
            return f"{ms / unit:,.0f} {name}"
    return f"{ms:g} ms" if ms else "0"


COUNT = Unit(lambda number: f"{number:,.0f}", short_count, round_ticks)
OCTETS = Unit(size, lambda octets: size(octets).replace(".0 ", " "), round_ticks)
LENGTH = Unit(lambda ms: duration(ms / 1000), short_length, round_lengths)


class _Height:
    """Draws the vertical axis."""

    def __init__(self, top: float, unit: Unit) -> None:
        self._ticks = unit.ticks(top)
        self._unit = unit

    def y(self, value: float) -> float:
        return _floor() - (_floor() - TOP) * value / self._ticks[-1]

    def grid(self) -> str:
        parts = []
        for tick in self._ticks:
            y = self.y(tick)
            kind = "grid" if tick else "axis"
            parts.append(
                f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(
                f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">'
                f"{escape(self._unit.tick(tick))}</text>"
            )
        return "".join(parts)


def _time_labels(axis: TimeAxis) -> str:
    parts = []
    for ms, text in axis.ticks():
        x = axis.x(ms)
        anchor = "end" if x > WIDTH - RIGHT - 20 else "middle"
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_floor()}" y2="{_floor() + 4}"/>'
        )
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{text}</text>'
        )
    return "".join(parts)


def _time_pattern(ms: int, step: int) -> str:
    if step >= 24 * HOUR_MS or ms % (24 * HOUR_MS) == 0:
        return "%d %b"
    return "%H:%M:%S" if step < 60_000 else "%H:%M"


def _band(axis: TimeAxis, silence: Silence) -> str:
    x, end = axis.x(silence.start_ms), axis.x(silence.end_ms)
    title = f"silence from {clock(silence.start_ms)} to {clock(silence.end_ms)}"
    return (
        f'<rect class="silence" x="{x:.1f}" y="{TOP}" width="{end - x:.1f}"'
        f' height="{_floor() - TOP}"><title>{title}</title></rect>'
    )


def _picture(label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _floor() -> int:
    return HEIGHT - BOTTOM
