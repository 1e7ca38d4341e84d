"""Log lines that do not flood: the same problem at the same place is one line a minute, with a count.

A client that hits a damaged batch, or is refused, asks again at once, for as long as it runs. The first
line says everything; the next one, a minute later, adds how often it happened since. Any thread may call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

INTERVAL_SECONDS = 60.0
MOST_PLACES = 1_000
"""Places are forgotten, the oldest first; if the problem comes back, it is logged again."""


class Complaints:
    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        """When it was last logged, and how often it happened since."""
        self._lock = threading.Lock()

    def error(self, place: Hashable, text: str) -> None:
        self._say(logging.ERROR, place, text)

    def warning(self, place: Hashable, text: str) -> None:
        self._say(logging.WARNING, place, text)

    def _say(self, level: int, place: Hashable, text: str) -> None:
        now = self._clock()
        with self._lock:
            said, since = self._said.pop(place, (None, 0))
            quiet = said is not None and now - said < INTERVAL_SECONDS
            self._said[place] = (said, since + 1) if quiet and said is not None else (now, 0)
            if len(self._said) > MOST_PLACES:
                self._said.popitem(last=False)
        if not quiet:
            self._log.log(level, "%s%s", text, f" ({since} more times since)" if since else "")
