"""Delivers what is due: takes slots from the wheel, reads their records ahead, writes them as messages.

Rules:
- Never early, by the wall clock read at the moment of delivery. Sleeps end at the next due time, and after
  one notch at the latest, so that a clock that was set, or a machine that slept, is noticed.
- In order of (due, schedule id) over all subjects: what is written moves `delivered_until` on, and a start
  takes all up to there for delivered. So nothing is delivered while the wheel holds something that comes
  before it. Beyond `loaded_until` nothing is taken: there the wheel is not complete yet.
- Records of the coming notch are read ahead in a thread, up to 64 MB of them.
- After some milliseconds of work others have their turn. While too much is unsynced nothing is written.
  Deliveries are a moment apart, so that many messages a second do not mean as many writes and syncs.
- A write that fails changes nothing. It is tried again every second; one line in the log says when that
  begins, another when it ends, and `failing` says so meanwhile.
- A record that is damaged is given up, loudly; one whose subject is gone goes with it. One that cannot be
  read at the moment is held back and read again, later and later (held_back.py); all others pass it.

Lateness is counted when the messages are synced, which is when consumers can see them.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

import trio

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.messages.parked import SCHEDULE_ID, pack_schedule_ids
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.pools import DELIVER, in_thread
from kumquat.core.wheel.files.record_reader import Body
from kumquat.core.wheel.schedule.batch_builder import build_batches
from kumquat.core.wheel.schedule.lateness import Histogram
from kumquat.core.wheel.schedule.read_retries import HeldBack
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.schedule.wheel import NOTCH_MS, Slot

log = logging.getLogger("kumquat.delay")

AHEAD_BYTES = 64 << 20
"""How much is read ahead."""
READ_MS = NOTCH_MS // 2
"""How long before its time a record is read at the latest."""
AT_HAND = 65_536
"""How many slots are taken from the wheel ahead of their delivery."""
CHUNK = 1_024
"""How many messages are delivered in one go: a few milliseconds of work."""
CHUNK_BYTES = 2 << 20
APART_MS = 2
"""The least time between two deliveries, unless there is more due than is delivered in one go."""
RETRY_SECONDS = 1.0
_FOREVER = 1 << 62

ReadBodies = Callable[[list[Slot]], list[Body]]
"""Blocks."""


class Deliverer:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        read_bodies: ReadBodies,
        now_ms: Callable[[], int],
    ) -> None:
        self.lateness = Histogram()
        self._failing: str | None = None
        """Why nothing can be delivered at the moment."""
        self._held_back = HeldBack(schedule.held_back)
        self._log = message_log
        self._schedule = schedule
        self._wheel = schedule.wheel
        self._read_bodies = read_bodies
        self._now_ms = now_ms
        self._slots: list[Slot] = []
        """At hand, in order."""
        self._bodies: dict[int, Body] = {}
        """Their records, as far as they are read, by sid."""
        self._held = 0
        """Bytes of these."""
        self._unread = 0
        """How many slots at hand have no record yet."""
        self._taken_back = 0
        self._wake = trio.Event()
        self._wakes_at = 0

    @property
    def overdue(self) -> int:
        """How many of the messages at hand should have been delivered by now."""
        return self._due_count(self._now_ms()) + len(self._held_back)

    @property
    def failing(self) -> str | None:
        """Why messages cannot be delivered at the moment."""
        return self._failing or self._held_back.reason

    def nudge(self, due: int) -> None:
        """Something that is due then has come into the wheel, or the wheel has been loaded further."""
        if due - READ_MS < self._wakes_at:
            self._wake.set()

    async def run(self) -> None:
        while True:
            try:
                await self._work()
                self._succeeded()
            except (StorageError, OSError) as error:
                self._failed(error)
                await trio.sleep(RETRY_SECONDS)
                continue
            await self._sleep()

    async def _work(self) -> None:
        """Deliver all that is due, and read ahead."""
        while True:
            await self._fetch()
            self._take_up(self._held_back.due_again(trio.current_time()))
            if self._due_count(self._now_ms()):
                if self._bodies.get(self._slots[0].sid) is None and await self._read():
                    continue
                await self._log.wait_produce_unblocked()
                self._deliver()
                await trio.lowlevel.checkpoint()
            elif not await self._read():
                return

    async def _sleep(self) -> None:
        now = self._now_ms()
        next_due = self._slots[0].due if self._slots else _FOREVER
        in_wheel = self._wheel.next_due()
        if in_wheel is not None and in_wheel < self._schedule.loaded_until:
            next_due = min(next_due, in_wheel - READ_MS)
        wait = min(max(next_due - now, APART_MS), NOTCH_MS)
        self._wake = trio.Event()
        self._wakes_at = now + wait
        with trio.move_on_after(wait / 1000):
            await self._wake.wait()
        self._wakes_at = 0

    # --- taking from the wheel ------------------------------------------------------------------

    async def _fetch(self) -> None:
        """Take what is due within a notch, as far as there is room; and in any case all that is to be
        delivered before what is at hand."""
        wheel, now = self._wheel, self._now_ms()
        next_due = wheel.next_due()
        if next_due is None or next_due > now + READ_MS:
            return
        until = min(now + NOTCH_MS, self._schedule.loaded_until)
        while wheel.unfold(until):
            await trio.lowlevel.checkpoint()
        while (key := wheel.next_key(until)) is not None:
            slots = self._slots
            if len(slots) >= AT_HAND and key > slots[-1][:2]:
                break
            fresh = wheel.prepare(until, CHUNK)
            self._unread += len(fresh)
            in_order = not slots or not fresh or slots[-1] < fresh[0]
            slots += fresh
            if not in_order:
                slots.sort()
            await trio.lowlevel.checkpoint()

    def _due_count(self, now: int) -> int:
        return bisect_right(self._slots, now, key=lambda slot: slot.due)

    # --- reading --------------------------------------------------------------------------------

    async def _read(self) -> bool:
        """Read some records of what is at hand, first things first; False: there is nothing to read, or
        no room."""
        self._drop_withdrawn()
        if not self._unread:
            return False
        bodies, size = self._bodies, 0
        wanted: list[Slot] = []
        for slot in self._slots:
            if slot.sid not in bodies:
                if wanted and (len(wanted) == CHUNK or size > CHUNK_BYTES):
                    break
                if self._held + size + slot.length > AHEAD_BYTES and not self._make_room(slot):
                    break
                wanted.append(slot)
                size += slot.length
        if not wanted:
            return False
        read = partial(self._read_bodies, wanted)
        found = await in_thread(DELIVER, read)
        for slot, body in zip(wanted, found, strict=True):
            if isinstance(body, OSError) and slot.subject_id in self._log.subjects.by_id:
                self._held_back.add(slot, body, trio.current_time())
            else:
                self._held_back.discard(slot.sid)
                bodies[slot.sid] = body if isinstance(body, bytes) else str(body)
                self._held += _size(bodies[slot.sid])
        self._unread -= len(wanted)
        self._slots = [slot for slot in self._slots if slot.sid not in self._held_back]
        return True

    def _take_up(self, slots: list[Slot]) -> None:
        """Slots that were held back are tried again."""
        if slots:
            self._unread += len(slots)
            self._slots = sorted(self._slots + slots)

    def _drop_withdrawn(self) -> None:
        """Forget the slots that were cancelled since they were taken from the wheel."""
        if self._taken_back != self._wheel.taken_back:
            self._taken_back = self._wheel.taken_back
            self._slots = self._wheel.still(self._slots)
            self._held_back.keep(self._wheel.still)
            sids = {slot.sid for slot in self._slots}
            for sid in self._bodies.keys() - sids:
                self._held -= _size(self._bodies.pop(sid))
            self._unread = len(self._slots) - len(self._bodies)

    def _make_room(self, slot: Slot) -> bool:
        """For the first slot alone: give up what was read of later ones."""
        if slot is not self._slots[0]:
            return False
        self._bodies.clear()
        self._held, self._unread = 0, len(self._slots)
        return True

    # --- delivering -----------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Deliver the first of what is due. StorageError: nothing of it has happened."""
        self._drop_withdrawn()
        now = self._now_ms()
        chunk = self._chunk(now)
        if not chunk:
            return
        damaged = self._stage(chunk, now)
        self._log.write_nowait()
        self._wheel.delivered([slot.sid for slot in chunk])
        self._schedule.passed(chunk[-1][:2])
        del self._slots[: len(chunk)]
        dues = [slot.due for slot in chunk]
        self._log.call_when_synced(self._log.log.written_end, partial(self._synced, dues))
        for slot, name in damaged:
            self._report(slot, name, self._bodies[slot.sid])
        for slot in chunk:
            self._held -= _size(self._bodies.pop(slot.sid))

    def _chunk(self, now: int) -> list[Slot]:
        """What can be delivered in one go: due, read, and with nothing before it in the wheel."""
        size = 0
        due = self._slots[: min(CHUNK, self._due_count(now))]
        next_due = self._wheel.next_due()
        if next_due is not None and next_due <= now:
            bound = self._wheel.next_key(now + 1)
            if bound is not None:
                del due[bisect_left(due, bound) :]
        for i, slot in enumerate(due):
            if slot.sid not in self._bodies or size > CHUNK_BYTES:
                return due[:i]
            size += slot.length
        return due

    def _stage(self, slots: list[Slot], now: int) -> list[tuple[Slot, str]]:
        """Gives those whose record is damaged, and the names of their subjects."""
        by_subject: dict[int, list[Slot]] = {}
        for slot in slots:
            by_subject.setdefault(slot.subject_id, []).append(slot)
        all_damaged: list[tuple[Slot, str]] = []
        for subject_id, of_subject in by_subject.items():
            subject = self._log.subjects.by_id.get(subject_id)
            if subject is not None:
                damaged = self._stage_subject(subject, of_subject, now)
                all_damaged += [(slot, subject.name) for slot in damaged]
        return all_damaged

    def _stage_subject(self, subject: Subject, slots: list[Slot], now: int) -> list[Slot]:
        message_log, bodies = self._log.log, self._bodies
        whole = [slot for slot in slots if isinstance(bodies[slot.sid], bytes)]
        sids = pack_schedule_ids(slot.sid for slot in whole)
        records = [bodies[slot.sid] for slot in whole]
        append_time, most = subject.config.log_append_time, subject.config.max_message_bytes
        at = 0
        for batch, count in build_batches(cast("list[bytes]", records), now, append_time, most):
            end = at + count * SCHEDULE_ID.size
            message_log.deliver_nowait(subject, sids[at:end], batch)
            at = end
        if len(whole) == len(slots):
            return []
        damaged = [slot for slot in slots if isinstance(bodies[slot.sid], str)]
        message_log.give_up_nowait(subject, pack_schedule_ids(slot.sid for slot in damaged))
        return damaged

    def _report(self, slot: Slot, name: str, why: Body) -> None:
        self._schedule.counters.delivered -= 1
        self._schedule.counters.damaged += 1
        log.error(
            "a message of %r, scheduled as %d and due at %d, is lost: its record is damaged: %s",
            name,
            slot.sid,
            slot.due,
            why,
        )

    def _synced(self, dues: list[int], error: KumquatError | None) -> None:
        if error is None:
            now = self._now_ms()
            for due, count in Counter(dues).items():
                self.lateness.add(now - due, count)

    # --- trouble --------------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        if self._failing is None:
            log.error("delayed messages cannot be delivered, trying again every second: %s", error)
        self._failing = str(error)

    def _succeeded(self) -> None:
        if self._failing is not None:
            self._failing = None
            log.warning("delayed messages are delivered again")


def _size(body: Body) -> int:
    return len(body) if isinstance(body, bytes) else 0
