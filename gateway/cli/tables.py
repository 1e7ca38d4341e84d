"""Tables for people: straight columns, nothing that controls a terminal, long texts cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.gateway.admin.times import show_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LONGEST = 60


def plain(text: str) -> str:
    """A text from a message, without characters that control a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def time_or_dash(time: int | None) -> str:
    return show_time(time) if time else "-"


def listing(items: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> list[str]:
    """A table of what an answer lists. `columns`: headline → name, or name@ for a time. What is absent or
    empty is a dash."""
    rows = [[_cell(item, name) for name in columns.values()] for item in items]
    return table([list(columns), *rows])


def _cell(item: Mapping[str, Any], name: str) -> str:
    if name.endswith("@"):
        return time_or_dash(item.get(name[:-1]))
    value = item.get(name)
    return "-" if value is None or value == "" else str(value)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns; long texts are cut."""
    cut = [[_cut(plain(cell)) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cut) for i in range(len(cut[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cut
    ]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
