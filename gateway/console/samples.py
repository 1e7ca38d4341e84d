"""The lag of some groups over time: for the plot on a group's page.

A sample is taken when a page looks at the group, and of the groups with the greatest lag at each snapshot.
Nothing is stored: it begins with the first look after the broker's start, and ends with the broker. At most
MOST groups are kept, those that were looked at last, with LENGTH samples each, APART seconds or more from
one to the next.
"""

from __future__ import annotations

from collections import deque

MOST = 200
LENGTH = 300
APART = 1.5


class Lags:
    def __init__(self) -> None:
        self._of: dict[str, deque[tuple[float, float]]] = {}

    def add(self, group: str, at: float, lag: int) -> None:
        points = self._of.pop(group, None) or deque(maxlen=LENGTH)
        self._of[group] = points
        if not points or at - points[-1][0] >= APART:
            points.append((at, float(lag)))
        if len(self._of) > MOST:
            del self._of[next(iter(self._of))]

    def of(self, group: str) -> list[tuple[float, float]]:
        """Oldest first."""
        return list(self._of.get(group, ()))
