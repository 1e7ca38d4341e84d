"""Slots whose record the disk does not give at the moment: kept aside, and tried again later and later.

An error of the machine (EIO, no descriptors, no memory) is no verdict on a message, and must not hold up
the others. So the slot leaves the deliverer's list and comes back after a second, then two, then four, up
to a minute. It stays at hand in the wheel, so it can be cancelled meanwhile. `sids` is the schedule's set:
while it is not empty, W stays where it is (schedule.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from kumquat.core.complaints import Complaints
from kumquat.core.wheel.schedule.wheel import Slot

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


@dataclass(slots=True)
class _Held:
    slot: Slot
    error: OSError
    pause: float
    again_at: float
    waits: bool
    """Not given back to be tried."""


class HeldBack:
    def __init__(self, sids: set[int]) -> None:
        self._sids = sids
        self._held: dict[int, _Held] = {}
        self._complaints = Complaints(logging.getLogger("kumquat.delay"))

    def __len__(self) -> int:
        return sum(one.waits for one in self._held.values())

    def __contains__(self, sid: int) -> bool:
        held = self._held.get(sid)
        return held is not None and held.waits

    @property
    def reason(self) -> str | None:
        for one in self._held.values():
            return f"{len(self._held)} messages that are due cannot be read: {one.error}"
        return None

    def add(self, slot: Slot, error: OSError, now: float) -> None:
        before = self._held.get(slot.sid)
        pause = FIRST_PAUSE if before is None else min(LONGEST_PAUSE, 2 * before.pause)
        self._held[slot.sid] = _Held(slot, error, pause, now + pause, True)
        self._sids.add(slot.sid)
        self._complaints.error(
            slot.source,
            f"a message that is due cannot be read at the moment, it is tried again until it can be: "
            f"schedule id {slot.sid}, due at {slot.due}: {error}",
        )

    def due_again(self, now: float) -> list[Slot]:
        """Those whose pause is over: to be read again, and then added or discarded."""
        again = [one for one in self._held.values() if one.waits and one.again_at <= now]
        for one in again:
            one.waits = False
        return [one.slot for one in again]

    def discard(self, sid: int) -> None:
        """It is read."""
        if self._held.pop(sid, None) is not None:
            self._sids.discard(sid)

    def keep(self, still: Callable[[list[Slot]], list[Slot]]) -> None:
        """Forget those that were cancelled."""
        kept = {slot.sid for slot in still([one.slot for one in self._held.values()])}
        for sid in self._held.keys() - kept:
            self.discard(sid)
