"""The life of one message: what is known of it, what happened to it, and where it is now.

    {"subject", "offset", "history",       history: off, sampled or all, as the subject has it now
     "message": {…} or null,               null: retention took it, it is damaged, or there is none
     "events": […], "groups": […], "letters": […],
     "cut": true}                          there may be more: the budget of time or bytes was used up

Events are as old as the history is kept, and as complete as it was switched on. Groups and letters are of
now and need no history. `newest` finds a message by its key or a header: the newest that fits, going
backwards from the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from kumquat.core.errors import KumquatError
from kumquat.core.wheel.intake.headers import encode_id
from kumquat.gateway.history.events import BURIED
from kumquat.gateway.history.past import past_of, past_of_delay
from kumquat.gateway.history.present import bury, groups_of, letters_of, names_of_letters
from kumquat.gateway.history.reading import Budget, Slices, head_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.records.records import Record
    from kumquat.gateway.broker import Broker

_CREATED = "qmq-created-ms"
_FLUSH_SECONDS = 2.0
_WINDOW = 2_000
"""Sequences that are searched at once, backwards."""


async def trace(broker: Broker, subject: Subject, sequence: int) -> dict[str, Any]:
    """All that is known of the message with that sequence."""
    with trio.move_on_after(_FLUSH_SECONDS):
        await broker.history.flush()
    budget = Budget()
    record, stored = await _read(broker, subject, sequence)
    created = None if record is None else _number(dict(record.headers).get(_CREATED))
    timestamp = None if record is None else record.timestamp
    names = names_of_letters(broker, subject)
    letters = await letters_of(broker, subject, sequence, timestamp, names, budget)
    at = {letter["subject"]: letter["offset"] for letter in letters}
    past = await past_of(broker, subject.name, sequence, at, stored or 0, created, budget)
    # A group may be gone, or name another subject by now.
    told = {each["letters"] for each in past.events if each["event"] == BURIED}.difference(names)
    letters += await letters_of(broker, subject, sequence, timestamp, told, budget)
    groups = await groups_of(broker, subject, sequence)
    bury(groups, letters)
    answer: dict[str, Any] = {
        "subject": subject.name,
        "offset": sequence,
        "history": mode(subject),
        "message": None if record is None else head_of(record, stored),
        "events": past.events,
        "groups": groups,
        "letters": letters,
    }
    if past.cut or budget.spent:
        answer["cut"] = True
    return answer


async def trace_delay(
    broker: Broker, subject: Subject, *, delay_id: str | None = None, schedule_id: int | None = None
) -> dict[str, Any]:
    """The life of a message for later, by the id that its producer gave it, or by its schedule id. Its
    offset, if it has one by now, is in the `delivered` event."""
    if delay_id is not None:
        encode_id(delay_id)  # raises where it cannot be one
    with trio.move_on_after(_FLUSH_SECONDS):
        await broker.history.flush()
    past = await past_of_delay(broker, subject.name, delay_id, schedule_id, Budget())
    state = None
    if delay_id is not None:
        shown = await broker.delay.show(subject, delay_id)
        state = {"state": shown.status, "due": shown.due, "schedule_id": shown.schedule_id}
    answer: dict[str, Any] = {
        "subject": subject.name,
        "delay_id": delay_id,
        "schedule_id": schedule_id,
        "history": mode(subject),
        "delay": state,
        "events": past.events,
    }
    if past.cut:
        answer["cut"] = True
    return answer


async def newest(
    broker: Broker, subject: Subject, fits: Callable[[Record], bool], mark: bytes
) -> tuple[int | None, bool]:
    """The sequence of the newest message that fits; and whether all was searched. `mark`: bytes that such
    a message has. `fits` is called in a thread."""
    budget, end = Budget(), subject.readable_end
    while end > subject.earliest and not budget.spent:
        begin = max(subject.earliest, end - _WINDOW)
        slices, found = Slices(broker.log, subject, begin, end, budget, marks=(mark,)), -1
        while (records := await slices.next(fits)) is not None:
            found = max([found, *(record.offset for record in records)])
        if found >= 0 and slices.at >= end:
            return found, True
        end = begin if slices.at >= end else end
    return None, end <= subject.earliest


def mode(subject: Subject) -> str:
    every = subject.config.history
    return "off" if not every else "all" if every == 1 else "sampled"


async def _read(
    broker: Broker, subject: Subject, sequence: int
) -> tuple[Record | None, int | None]:
    """The message, and when it was stored, as far as that can be read."""
    if not subject.earliest <= sequence < subject.readable_end:
        return None, None
    budget = Budget()
    slices = Slices(broker.log, subject, sequence, sequence + 1, budget)
    records = await slices.next(lambda record: record.offset == sequence) or []
    try:
        stored = await broker.log.store_time(subject, sequence)
    except KumquatError:
        stored = None
    return (records[0] if records else None), stored


def _number(value: bytes | None) -> int | None:
    text = (value or b"").decode(errors="replace")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
