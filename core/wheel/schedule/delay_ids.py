"""Delay ids: which message each one names, and the cancels and moves that came before their message.

A delay id names the newest message of its subject that was parked with it. `names` holds those that came up
since the last fill; older ones are found in the schedule files. `remembered` holds cancels and moves that
wait for their message: for a while, and no more than MOST_REMEMBERED.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kumquat.core.logs.messages.parked import (
    DELIVERED,
    MOVE_REMEMBERED,
    MOVED,
    REMEMBERED,
    CancelItem,
)
from kumquat.core.wheel.schedule.model import Fill, Named, NameKey, Remembered

log = logging.getLogger("kumquat.delay")

MOST_REMEMBERED = 100_000
"""Cancels and moves that wait for their messages."""


class DelayIds:
    def __init__(self, remembered: Mapping[NameKey, Remembered]) -> None:
        self.names: dict[NameKey, Named] = {}
        self.remembered = dict(remembered)
        """In the order in which they came."""
        self._filling: Mapping[NameKey, Named] = {}
        """The names that the fill under way writes."""
        self._forgot_some = False

    def cancelled(self, subject_id: int, item: CancelItem) -> None:
        """A cancel or a move of this delay id is written."""
        key = (subject_id, item.delay_id)
        self.remembered.pop(key, None)
        if item.outcome in (REMEMBERED, MOVE_REMEMBERED):
            new_due = item.due if item.outcome == MOVE_REMEMBERED else None
            self._remember(key, Remembered(item.until, new_due))
            return
        named = self.names.get(key)
        if item.outcome == MOVED and named is not None:
            self.names[key] = named._replace(status=MOVED)
        elif item.outcome != DELIVERED or named is None:
            self.names[key] = Named(item.schedule_id, item.due, item.outcome)

    def _remember(self, key: NameKey, remembered: Remembered) -> None:
        self.remembered[key] = remembered
        self.names[key] = Named(-1, remembered.until, REMEMBERED)
        if len(self.remembered) > MOST_REMEMBERED:
            subject_id, delay_id = oldest = next(iter(self.remembered))
            del self.remembered[oldest]
            if not self._forgot_some:
                log.warning(
                    "more than %d cancels and moves wait for their messages; the oldest are forgotten, "
                    "first that of %r of subject %d",
                    MOST_REMEMBERED,
                    delay_id,
                    subject_id,
                )
            self._forgot_some = True

    def look_up(self, key: NameKey) -> Named | None:
        """What a delay id names, if that came up since the last fill."""
        return self.names.get(key) or self._filling.get(key)

    def remembers(self, key: NameKey, now: int) -> Remembered | None:
        """The cancel or the move that waits for the message with this id."""
        found = self.remembered.get(key)
        return None if found is None or found.until <= now else found

    def forget_expired(self, now: int) -> None:
        """Forget the cancels and moves that have waited long enough."""
        expired = [key for key, remembered in self.remembered.items() if remembered.until <= now]
        for key in expired:
            del self.remembered[key]
        self._forgot_some = self._forgot_some and len(self.remembered) > MOST_REMEMBERED // 2

    def begin_fill(self) -> dict[NameKey, Named]:
        """The names that are to be filed."""
        filling, self.names = self.names, {}
        self._filling = filling
        return filling

    def finish_fill(self, fill: Fill) -> None:
        """The names are in a file."""
        self._filling = {}
        for _, key in fill.found:
            self.remembered.pop(key, None)

    def abandon_fill(self, fill: Fill) -> None:
        """The file could not be written."""
        self._filling = {}
        self.names = {**fill.names, **self.names}
