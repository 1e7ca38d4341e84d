"""Templates, and how numbers, sizes and times look on a page.

Everything that a template prints is escaped. Times are written in UTC, with the milliseconds in an
attribute: the script writes them in the reader's own zone. So a page says the same as long as nothing has
happened, and its ETag stays.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kumquat.gateway.admin.times import show_time
from kumquat.gateway.console import contents
from kumquat.gateway.console.charts import compact
from kumquat.version import version

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
NOTHING = "\u2013"
"""A dash, where there is no value."""
SPANS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))

NAVIGATION = (
    ("overview", "Overview", "/", "o"),
    ("subjects", "Subjects", "/console/subjects", "s"),
    ("groups", "Groups", "/console/groups", "g"),
    ("delays", "Delays", "/console/delays", "d"),
    ("letters", "Dead letters", "/console/letters", "l"),
    ("search", "Search", "/console/search", "m"),
    ("configs", "Configs", "/console/configs", "c"),
    ("connections", "Connections", "/console/connections", "n"),
)
"""Page, name, address, and the key that goes there after g."""


def link(path: str, **parameters: object) -> str:
    """An address of the console; parameters that are None or empty are left out."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    return NOTHING if value is None else compact(value)


def size(value: float | None) -> str:
    if value is None:
        return NOTHING
    unit = 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return (
        f"{value:,.0f} {UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {UNITS[unit]}"
    )


def duration(ms: float | None) -> str:
    """1 d 2 h, 3 min 4 s, 250 ms: its two largest units."""
    if ms is None:
        return NOTHING
    if ms < 1000:
        return f"{ms:.0f} ms"
    parts: list[str] = []
    left = int(ms)
    for span, unit in SPANS:
        count, left = divmod(left, span)
        if count or parts:
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 "))


def when(ms: int | None) -> Markup:
    """A moment; the script turns it into local time, and says how long ago in its title."""
    if not ms or ms < 0:
        return Markup('<span class="dim">{}</span>').format(NOTHING)
    text = show_time(ms)
    shown = text[:19].replace("T", " ") + " UTC" if text.endswith("Z") else text
    return Markup('<time datetime="{}" data-ms="{}">{}</time>').format(text, ms, shown)


def bytes_of(data: bytes | None) -> Markup:
    """A key or a header's value, in one line."""
    text = contents.brief(data)
    return Markup('<span class="dim">null</span>') if text is None else Markup("{}").format(text)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        number=number, rate=rate, size=size, duration=duration, when=when, compact=compact
    )
    environment.filters.update(bytes=bytes_of, readable=contents.readable)
    environment.globals.update(link=link, navigation=NAVIGATION, version=version())
    return environment


def render(template: str, values: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(values)
