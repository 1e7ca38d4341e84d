"""Tables for people: straight columns, nothing that controls a terminal, long texts cut.

At a terminal Rich draws them: bold headlines, numbers to the right, what does not fit is folded.
In a pipe or a file they are plain text, one row a line, whatever its width: made for grep and awk. Colours
obey NO_COLOR and TERM=dumb, as Rich does. Rich is imported when a table is drawn: it takes 50 ms.

What a table shows often comes from a message, so every cell is made `plain` first: a key cannot move the
cursor of whoever looks at it.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from kumquat.gateway.admin.times import show_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.table import Table

LONGEST = 60
_CONTROLS = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Those that JSON leaves as they are."""
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def plain(text: str) -> str:
    """A text from a message, without characters that control a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def json_line(value: object) -> str:
    """JSON in one line. What controls a terminal, or is half a character, is escaped: it means the same."""
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def time_or_dash(time: int | None) -> str:
    return show_time(time) if time else "-"


def size(count: float) -> str:
    """A number of bytes as people say it."""
    for unit in UNITS:
        if count < 1024 or unit == UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def listing(
    items: Iterable[Mapping[str, Any]], columns: Mapping[str, str], longest: int = LONGEST
) -> list[str]:
    """A table of what an answer lists. `columns`: headline → name, or name@ for a time. What is absent or
    empty is a dash."""
    rows = [[_cell(item, name) for name in columns.values()] for item in items]
    return table([list(columns), *rows], longest)


def _cell(item: Mapping[str, Any], name: str) -> str:
    if name.endswith("@"):
        return time_or_dash(item.get(name[:-1]))
    value = item.get(name)
    return "-" if value is None or value == "" else str(value)


def table(rows: Sequence[Sequence[str]], longest: int = LONGEST) -> list[str]:
    """Rows in columns, the first are the headlines; long texts are cut."""
    cut = [[_cut(plain(cell), longest) for cell in row] for row in rows]
    if sys.stdout.isatty():
        return _drawn(cut)
    widths = [max(len(row[i]) for row in cut) for i in range(len(cut[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cut
    ]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _drawn(rows: Sequence[Sequence[str]]) -> list[str]:
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(rich_table(rows))
    return captured.get().splitlines()


def rich_table(rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """The same rows for Rich; cells are plain already."""
    from rich.table import Table
    from rich.text import Text

    head, *body = rows
    drawn = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for at, name in enumerate(head):
        numbers = bool(body) and all(_is_number(row[at]) for row in body)
        drawn.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in body:
        drawn.add_row(*map(Text, row))
    return drawn


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").isdigit()
