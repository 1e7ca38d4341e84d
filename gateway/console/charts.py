"""Plots as SVG, made by the server: a line over time, and bars. Pure.

No style and no script in them: the Content-Security-Policy allows neither, and the style sheet colours
them by class. Each has a title and a description for those who do not see it. Sizes are in the units of
the viewBox; the page scales them to its width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 600, 120
TOP, BOTTOM = 6, 18


class Bar(NamedTuple):
    label: str
    value: int
    title: str
    href: str = ""


def compact(number: float) -> str:
    """1,234,567 as 1.2 M: for axes and tiles."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(number) >= size:
            scaled = number / (1e3 if unit == " k" else size)
            return f"{scaled:,.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{number:,.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def line(points: Sequence[tuple[float, float]], title: str, kind: str = "accent") -> Markup:
    """Values over time (seconds), the oldest first; nothing where there are fewer than two."""
    if len(points) < 2:
        return Markup("")
    begin, end = points[0][0], points[-1][0]
    highest = max(value for _, value in points)
    span = max(end - begin, 1e-9)
    floor = HEIGHT - BOTTOM

    def place(at: float, value: float) -> str:
        x = (at - begin) / span * WIDTH
        y = floor - value / (highest or 1.0) * (floor - TOP)
        return f"{x:.1f},{y:.1f}"

    path = " ".join(place(*point) for point in points)
    minutes = span / 60
    past = f"{minutes:.0f} min ago" if minutes >= 2 else f"{span:.0f} s ago"
    return Markup(
        '<svg class="chart {}" viewBox="0 0 {} {}" role="img" preserveAspectRatio="none">'
        "<title>{}</title><desc>from {} to {} at most {}</desc>"
        '<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>'
        '<polygon class="area" points="0,{} {} {},{}"/>'
        '<polyline class="line" points="{}"/></svg>'
        '<div class="axis"><span>{}</span><span>max {}</span><span>now</span></div>'
    ).format(
        kind,
        *(WIDTH, HEIGHT, title, compact(points[0][1]), compact(points[-1][1]), compact(highest)),
        *(WIDTH, floor, floor),
        *(floor, path, WIDTH, floor, path),
        *(past, compact(highest)),
    )


def bars(values: Sequence[Bar], title: str) -> Markup:
    """One bar beside the other; each may be a link."""
    if not values:
        return Markup("")
    highest = max(bar.value for bar in values) or 1
    floor = HEIGHT - BOTTOM
    step = WIDTH / len(values)
    parts = []
    for i, bar in enumerate(values):
        height = bar.value / highest * (floor - TOP)
        height = max(height, 2.0) if bar.value else 0.0
        shape = Markup(
            '<rect class="slot" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>'
            '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="2"/>'
            "<title>{}</title>"
        ).format(
            *(i * step, TOP, step, floor - TOP),
            *(i * step + step * 0.12, floor - height, step * 0.76, height),
            bar.title,
        )
        if bar.href:
            shape = Markup('<a href="{}">{}</a>').format(bar.href, shape)
        parts.append(Markup("<g>{}</g>").format(shape))
    every = max(1, len(values) // 6)
    labels = Markup("").join(
        Markup('<text x="{:.1f}" y="{}">{}</text>').format(i * step + 2, HEIGHT - 4, bar.label)
        for i, bar in enumerate(values)
        if i % every == 0
    )
    grid = Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, floor, floor)
    inside = Markup("<title>{}</title>").format(title) + grid + Markup("").join(parts) + labels
    head = Markup('<svg class="chart bars" viewBox="0 0 {} {}" role="img">').format(WIDTH, HEIGHT)
    return head + inside + Markup("</svg>")
