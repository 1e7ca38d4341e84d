"""Beginning new segments, for both logs: a roll that fails is no error of the write that caused it.

The log goes on in the old segment, and does not try again for a while: each try costs a sync of the
folder. The time is that of a monotonic clock, so that a wall clock that is set back does not keep a log
from rolling.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

RETRY_SECONDS = 1.0


class Rolls:
    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._log = log
        self._not_before = float("-inf")

    @property
    def may_try(self) -> bool:
        """Whether the last failure was long enough ago."""
        return self.clock() >= self._not_before

    def attempt(self, roll: Callable[[], None], active: Path) -> None:
        """Roll. OSError from it must have left all as it was."""
        try:
            roll()
        except OSError as error:
            self._log.error("no new segment: %s; going on in %s", error, active)
            self._not_before = self.clock() + RETRY_SECONDS
