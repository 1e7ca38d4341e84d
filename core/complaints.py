"""Saying a thing once: the same trouble at the same place is one line a minute, with a count.

A client that meets a bad place, or is refused, asks again at once, for as long as it runs. The first line
says all that there is to say; the next one, a minute later, adds how often it was met since. Any thread
may complain.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

INTERVAL_SECONDS = 60.0
MOST_PLACES = 1_000
"""The places that were met longest ago are forgotten first, and told of again when they are met again."""


class Complaints:
    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._said: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        """When it was last said, and how often it was met since."""
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
