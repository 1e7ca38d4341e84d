"""Warnings that a client could cause by the thousand: one line of a kind in a while.

The next line of that kind says how many were left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

QUIET_SECONDS = 10.0
MAX_KINDS = 1000


class Seldom:
    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._seen: dict[str, tuple[float | None, int]] = {}

    def warn(self, kind: str, text: str) -> None:
        """A line in the log, unless one of its kind was written lately."""
        now = self._clock()
        written, left_out = self._seen.get(kind, (None, 0))
        if written is not None and now < written + QUIET_SECONDS:
            self._seen[kind] = (written, left_out + 1)
            return
        if written is None and len(self._seen) >= MAX_KINDS:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        if left_out:
            text += f" ({left_out} such lines were left out)"
        self._logger.warning("%s", text)
