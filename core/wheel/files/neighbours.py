"""Which records are read together: those that lie close to each other, up to about a megabyte."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

_GAP = 32 << 10
"""Two records with fewer bytes between them are read in one read."""
_STRIDE = 1 << 20
"""One read of several records takes no more, apart from the last of them."""
_ENDLESS = 1 << 63

Place = tuple[int, int]
"""Where a record lies, and its length."""


def neighbours(places: Sequence[Place], bases: Sequence[int] = ()) -> Iterator[list[int]]:
    """Groups of places, given by their index, each to be read in one read. `bases`: positions at which
    another file begins; no group goes beyond one."""
    run: list[int] = []
    begin = end = border = 0
    for i in sorted(range(len(places)), key=places.__getitem__):
        position, length = places[i]
        if run and (position > end + _GAP or position - begin > _STRIDE or position >= border):
            yield run
            run = []
        if not run:
            begin = end = position
            following = bisect_right(bases, position)
            border = bases[following] if following < len(bases) else _ENDLESS
        run.append(i)
        end = max(end, position + length)
    if run:
        yield run
