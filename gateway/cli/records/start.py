"""Where `kumquat consume` begins: `-o`.

    beginning, earliest     the oldest message there is
    end, latest             what comes from now on
    5000                    an offset
    -10                     the last ten
    @2h, @2026-03-01T08:00Z the first message that is not older: so long ago, or a time (or ms since 1970)

Pure: `place` is given the two ends of the topic, and a function that finds an offset by time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kumquat.gateway.admin.times import read_past

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


@dataclass(frozen=True, slots=True)
class Start:
    """`word`: earliest or latest; else one of the numbers is set."""

    word: str = ""
    offset: int | None = None
    time: int | None = None

    def place(self, earliest: int, latest: int, at_time: Callable[[int], int | None]) -> int:
        """The offset to begin at. What is before the earliest begins there."""
        if self.word:
            return earliest if self.word == "earliest" else latest
        if self.time is not None:
            found = at_time(self.time)
            return latest if found is None else found
        offset = self.offset or 0
        return max(earliest, latest + offset if offset < 0 else offset)


def read_start(text: str, now: int) -> Start:
    """Raises ValueError."""
    if text in WORDS:
        return Start(word=WORDS[text])
    if text.startswith(("@", "s@")):
        return Start(time=read_past(text.partition("@")[2], now))
    if text.removeprefix("-").isdecimal() and text != "-0":
        return Start(offset=int(text))
    raise ValueError(f"expected beginning, end, an offset, -N or @TIME, not {text!r}")
