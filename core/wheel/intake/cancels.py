"""What becomes of cancels and moves, decided by the state at that moment. Pure: nothing is written here.

A delay id names the newest message of its subject that was parked with it. The outcomes:

    cancelled, moved    the message was waiting, and will not be delivered at its old time
    delivered           it is too late. A cancel that is alone in its batch is refused with the reason
    remembered          no message has this id: the next message with it is cancelled, or moved, if it comes
                        soon enough. Of several the last one counts, but what is cancelled stays cancelled

A message is moved by parking it again, with a new schedule id, and withdrawing the old one, in one write.

Within a batch the order counts: a cancel may be about an earlier record of the same batch, which is then
left out, or parked for another time. It is never about a later one.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from kumquat.core.errors import CorruptMessage, InvalidRecord
from kumquat.core.logs.messages.parked import (
    CANCELLED,
    DELIVERED,
    MOVE_REMEMBERED,
    MOVED,
    NO_ORIGIN,
    RECORD_HEAD,
    RECORD_HEAD_SIZE,
    REMEMBERED,
    CancelItem,
    pack_parked,
)
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.wheel.format import LATEST_DUE, PENDING
from kumquat.core.wheel.intake.options import DelayOptions
from kumquat.core.wheel.intake.split import Cancel, Split
from kumquat.core.wheel.schedule.effects import NEVER, Parking
from kumquat.core.wheel.schedule.model import Named, NameKey, Remembered
from kumquat.core.wheel.schedule.schedule import Schedule

WAITING = (PENDING, MOVED)
"""The states of a name whose message is pending, unless it was delivered since."""


class Target(NamedTuple):
    """A message that is to be cancelled or moved, as it was found."""

    named: Named | None
    record: bytes | None
    """It is read only if the message is to be moved."""


class Moment(NamedTuple):
    """The state that a decision is made by."""

    schedule: Schedule
    now: int
    options: DelayOptions

    def waits(self, named: Named) -> bool:
        return named.status in WAITING and self.schedule.is_pending(named.schedule_id, named.due)

    def waits_unnamed(self, schedule_id: int, due: int) -> bool:
        """The same for a message that may have no delay id: the wheel is searched."""
        schedule = self.schedule
        return schedule.wheel.has(
            schedule_id, schedule.due_of(schedule_id, due)
        ) or schedule.is_pending(schedule_id, due)


def decide(moment: Moment, key: NameKey, named: Named | None, new_due: int | None) -> CancelItem:
    """What becomes of a cancel, or with `new_due` of a move; `named` is the message that was found."""
    delay_id = key[1]
    if named is None or named.status == REMEMBERED:
        waiting = moment.schedule.ids.remembers(key, moment.now)
        return _remembered(moment, waiting, delay_id, new_due)
    if named.status == CANCELLED:
        return CancelItem(CANCELLED, -1, named.due, 0, delay_id)
    if not moment.waits(named):
        return CancelItem(DELIVERED, named.schedule_id, named.due, 0, delay_id)
    return _withdrawn(named.schedule_id, named.due, delay_id, new_due)


def _remembered(
    moment: Moment, waiting: Remembered | None, delay_id: bytes, new_due: int | None
) -> CancelItem:
    """A cancel or a move that comes before its message. `waiting`: an earlier one that still waits."""
    until = min(moment.now + moment.options.cancel_remember_ms, LATEST_DUE)
    if waiting is not None and waiting.new_due is None:
        return CancelItem(
            REMEMBERED, -1, max(until, waiting.until), max(until, waiting.until), delay_id
        )
    if new_due is None:
        return CancelItem(REMEMBERED, -1, until, until, delay_id)
    return CancelItem(MOVE_REMEMBERED, -1, new_due, until, delay_id)


def decide_unnamed(moment: Moment, schedule_id: int, due: int, new_due: int | None) -> CancelItem:
    """The same for a message that is given by its schedule id."""
    if not moment.waits_unnamed(schedule_id, due):
        return CancelItem(DELIVERED, schedule_id, due, 0, b"")
    return _withdrawn(schedule_id, due, b"", new_due)


def _withdrawn(schedule_id: int, due: int, delay_id: bytes, new_due: int | None) -> CancelItem:
    if new_due is None:
        return CancelItem(CANCELLED, schedule_id, due, 0, delay_id)
    return CancelItem(MOVED, schedule_id, due, new_due, delay_id)


class Change(NamedTuple):
    """What becomes of the cancel or move of one message."""

    answer: CancelItem
    parking: Parking | None
    """What is to be written first; None: nothing, it is too late or was cancelled before."""


def change_message(
    moment: Moment, subject: Subject, item: CancelItem, record: bytes | None
) -> Change:
    """What the outcome of a cancel or a move asks for. InvalidRecord: the new time is too far away.
    CorruptMessage: a message without a readable record cannot be moved."""
    remembered = item.outcome in (REMEMBERED, MOVE_REMEMBERED)
    if item.outcome == DELIVERED or (item.schedule_id < 0 and not remembered):
        return Change(item, None)
    parked, wake_at = b"", NEVER
    if item.outcome == MOVE_REMEMBERED:
        _check_due(moment, item.due)
        item = item._replace(due=max(item.due, moment.now))
    elif item.outcome == MOVED:
        _check_due(moment, item.until)
        item = item._replace(until=max(item.until, moment.now))
        if record is None:
            raise CorruptMessage(f"the message scheduled as {item.schedule_id} cannot be read")
        parked, wake_at = with_due(record, item.until), item.until
    return Change(item, Parking(subject, NO_ORIGIN, parked, [item], None, wake_at))


def _check_due(moment: Moment, due: int) -> None:
    delay, most = due - moment.now, moment.options.max_ms
    if delay > most:
        raise InvalidRecord(
            f"a message cannot be moved to {due}: that is {delay} ms from now, delay.max.ms allows {most}"
        )


def with_due(record: bytes, due: int) -> bytes:
    """A parked record with another due time."""
    _, _, _, created, id_length = RECORD_HEAD.unpack_from(record)
    end = RECORD_HEAD_SIZE + id_length
    return pack_parked(due, created, record[RECORD_HEAD_SIZE:end], record[end:])


class BatchOutcome:
    """What the cancels of a batch do to the batch itself and to what is parked already."""

    def __init__(
        self, moment: Moment, subject_id: int, opened: Split, targets: dict[bytes, Target]
    ) -> None:
        self._moment = moment
        self._subject_id = subject_id
        self._opened = opened
        self._targets = targets
        self._changed: dict[int, bytes | None] = {}
        """Records of the batch that are parked with another due time, by their number; None: not at all."""
        self._added: list[bytes] = []
        """Records of messages that are moved: they are parked again."""
        self._items: list[CancelItem] = []
        self._done: dict[bytes, int] = {}
        """Delay ids that an earlier cancel of the batch was about, and the index of the message in
        `_added`; -1: it is not there."""
        self._waiting: dict[bytes, int] = {}
        """Delay ids of cancels and moves that come before their message, and their index in `_items`."""
        self._numbers: dict[bytes, list[int]] = {}
        """The numbers of the records of the batch with each delay id, in order."""
        for number, name in opened.names.items():
            self._numbers.setdefault(name, []).append(number)
        for cancel in opened.cancels:
            self._cancel(cancel)
        self._obey_remembered()

    @property
    def items(self) -> list[CancelItem]:
        return self._items

    @property
    def wake_at(self) -> int:
        """The earliest time at which a message of the batch may be due."""
        dues = list(self._opened.dues)
        dues += [one.new_due for one in self._opened.cancels if one.new_due is not None]
        dues += [item.until for item in self._items if item.outcome == MOVED]
        return min(dues, default=NEVER)

    @property
    def parked(self) -> bytes:
        """The records to be parked, one behind the other."""
        if not self._changed and not self._added:
            return self._opened.parked
        kept = [self._record(number) or b"" for number in range(len(self._opened.starts))]
        return b"".join(kept + self._added)

    def _cancel(self, cancel: Cancel) -> None:
        numbers = self._numbers.get(cancel.delay_id, [])
        before = bisect_left(numbers, cancel.behind)
        if before:
            self._cancel_in_batch(cancel, numbers[before - 1])
        elif cancel.delay_id in self._done:
            self._cancel_again(cancel)
        else:
            self._cancel_parked(cancel)

    def _cancel_in_batch(self, cancel: Cancel, number: int) -> None:
        record, due = self._record(number), self._opened.dues[number]
        if cancel.new_due is None or record is None:
            self._changed[number] = None
            self._items.append(CancelItem(CANCELLED, -1, due, 0, cancel.delay_id))
        else:
            self._changed[number] = with_due(record, cancel.new_due)
            self._items.append(CancelItem(MOVED, -1, due, cancel.new_due, cancel.delay_id))

    def _cancel_again(self, cancel: Cancel) -> None:
        """An earlier cancel of the batch was about the same message. What it moved is moved or
        cancelled."""
        at, waiting = self._done[cancel.delay_id], self._waiting.get(cancel.delay_id)
        if waiting is not None:
            before = _as_remembered(self._items[waiting])
            item = _remembered(self._moment, before, cancel.delay_id, cancel.new_due)
            self._items[waiting] = item
        if at < 0:
            return
        if cancel.new_due is not None:
            self._added[at] = with_due(self._added[at], cancel.new_due)
        else:
            due = RECORD_HEAD.unpack_from(self._added[at])[2]
            self._added[at] = b""
            self._done[cancel.delay_id] = -1
            self._items.append(CancelItem(CANCELLED, -1, due, 0, cancel.delay_id))

    def _cancel_parked(self, cancel: Cancel) -> None:
        delay_id, target = cancel.delay_id, self._targets[cancel.delay_id]
        named = self._moment.schedule.look_up((self._subject_id, delay_id)) or target.named
        item = decide(self._moment, (self._subject_id, delay_id), named, cancel.new_due)
        if item.outcome == MOVED and (target.record is None or target.named != named):
            item = item._replace(outcome=DELIVERED)
        if item.outcome == DELIVERED and self._opened.records == 1:
            raise _too_late(cancel, named)
        self._done[delay_id] = -1
        if item.outcome in (REMEMBERED, MOVE_REMEMBERED):
            self._waiting[delay_id] = len(self._items)
        if item.outcome == MOVED and target.record is not None:
            self._done[delay_id] = len(self._added)
            self._added.append(with_due(target.record, item.until))
        if item.outcome == CANCELLED and delay_id in self._numbers:
            item = item._replace(delay_id=b"")  # a later record of the batch has this id
        self._items.append(item)

    def _obey_remembered(self) -> None:
        """A record that a cancel or a move was waiting for is not parked, or is parked for another time."""
        now, over = self._moment.now, set[int]()
        for delay_id, numbers in self._numbers.items():
            key, at = (self._subject_id, delay_id), self._waiting.get(delay_id)
            if at is None:
                found = self._moment.schedule.ids.remembers(key, now)
            else:
                found = _as_remembered(self._items[at])
                over.add(at)
            if found is not None:
                self._obey(numbers[0], delay_id if len(numbers) == 1 else b"", found)
        if over:
            self._items = [item for i, item in enumerate(self._items) if i not in over]

    def _obey(self, number: int, delay_id: bytes, remembered: Remembered) -> None:
        """`delay_id`: empty if a later record of the batch has this id."""
        due, record = self._opened.dues[number], self._record(number)
        if remembered.new_due is None or record is None:
            self._changed[number] = None
            self._items.append(CancelItem(CANCELLED, -1, due, 0, delay_id))
        else:
            new_due = max(remembered.new_due, self._moment.now)
            self._changed[number] = with_due(record, new_due)
            self._items.append(CancelItem(MOVED, -1, due, new_due, delay_id))

    def _record(self, number: int) -> bytes | None:
        if number in self._changed:
            return self._changed[number]
        opened = self._opened
        end = (*opened.starts[number + 1 : number + 2], len(opened.parked))[0]
        return opened.parked[opened.starts[number] : end]


def _as_remembered(item: CancelItem) -> Remembered:
    return Remembered(item.until, item.due if item.outcome == MOVE_REMEMBERED else None)


def _too_late(cancel: Cancel, named: Named | None) -> InvalidRecord:
    delay_id = cancel.delay_id.decode()
    what = "cancelled" if cancel.new_due is None else "moved"
    reason = f"there is no pending message with the delay id {delay_id!r}"
    if named is not None and named.status in (*WAITING, DELIVERED):
        reason = f"the message with the delay id {delay_id!r} has been delivered"
    return InvalidRecord(
        f"record {cancel.record} of the batch: qmq-delay-cancel: nothing was {what}: {reason}"
    )
