"""What the log says of writes that fail, without a line for each.

A full disk refuses large writes and takes small ones, so failures and successes alternate, many times a
second. The first failure is logged at once. While more follow, there is one line a minute with a count. The
end is logged by the first write that works when none has failed for HOLD_SECONDS. Until then `reason` says
why writes fail, for whoever asks whether the log can be written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

HOLD_SECONDS = 10.0
INTERVAL_SECONDS = 60.0


class WriteTrouble:
    __slots__ = ("_clock", "_failed_at", "_failures", "_log", "_said_at", "_since_said", "reason")

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason: str | None = None
        """Why writes have failed lately; None: they work."""
        self._log = log
        self._clock = clock
        self._failed_at = self._said_at = 0.0
        self._failures = self._since_said = 0

    def failed(self, path: Path, error: OSError) -> None:
        now = self._failed_at = self._clock()
        if self.reason is None:
            self._failures = self._since_said = 0
            text = "cannot write to %s: %s; writes are refused until it works again"
            self._log.error(text, path, error)
            self._said_at = now
        self._failures += 1
        self._since_said += 1
        self.reason = str(error.strerror or error)
        if now - self._said_at >= INTERVAL_SECONDS:
            text = "writes to %s still fail: %s (%d failed since the last such line)"
            self._log.error(text, path, error, self._since_said)
            self._said_at, self._since_said = now, 0

    def worked(self, path: Path) -> None:
        """A write succeeded while `reason` was set."""
        if self._clock() - self._failed_at >= HOLD_SECONDS:
            self.reason = None
            self._log.warning("%s can be written again (%d writes failed)", path, self._failures)
