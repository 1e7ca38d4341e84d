"""What a pipeline shows to a person: its progress while it runs, and a summary at the end.

Progress is one line that is written again on a terminal, and a line every few seconds elsewhere (a
log file wants few lines). It goes to stderr; the summary goes to stdout, so that it can be piped.

A summary is a title, named values in the order in which they are shown, and tables below them. Its
`ok` is False when the pipeline ran to its end but found a problem (reconcile: the two sides differ); the
command then ends with exit code 1.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True)
class Table:
    """Heads and rows of text. A column whose cells are all numbers is aligned to the right."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def lines(self) -> list[str]:
        columns = list(zip(self.heads, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        right = [all(map(_is_number, column[1:])) for column in columns]
        shown = [self.heads, ["─" * width for width in widths], *self.rows]
        cells = [map(_pad, row, widths, right) for row in shown]
        return [*([self.title] if self.title else []), *("  ".join(r).rstrip() for r in cells)]


@dataclass(frozen=True)
class Summary:
    title: str
    values: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    ok: bool = True

    def text(self) -> str:
        width = max((len(name) for name, _ in self.values), default=0)
        lines = [self.title, *(f"  {name:<{width}}  {value}" for name, value in self.values)]
        for table in self.tables:
            lines += ["", *table.lines()]
        return "\n".join(lines)


@dataclass
class Progress:
    """Call it with a line of progress, as often as you like."""

    stream: TextIO | None = None
    now: Callable[[], float] = time.monotonic
    _last: float = field(default=float("-inf"), init=False)
    _open: bool = field(default=False, init=False)

    def __call__(self, line: str) -> None:
        if self.stream is None:
            return
        if self.stream.isatty():
            self.stream.write(f"\r\x1b[K{line}")
            self._open = True
        elif self.now() - self._last < SECONDS_BETWEEN_LINES:
            return
        else:
            self._last = self.now()
            self.stream.write(f"{line}\n")
        self.stream.flush()

    def end(self) -> None:
        """Clears the line on a terminal, so that the next output begins on an empty one."""
        if self._open and self.stream is not None:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self._open = False


SILENT = Progress()


def count(number: int, what: str = "") -> str:
    """1,234 messages; 1 message."""
    plural = what and f" {what}" + ("" if number == 1 else "s")
    return f"{number:,}{plural}"


def size(octets: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(octets) < 1000:
            return f"{octets:,.0f} {unit}" if unit == "B" else f"{octets:,.1f} {unit}"
        octets /= 1000
    return f"{octets:,.1f} TB"


def duration(seconds: float) -> str:
    """120 ms; 4.2 s; 3 min 5 s; 2 h 10 min; 3 d 4 h."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or (cell[0] in "-+" and cell[1:2].isdigit())


def _pad(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)
