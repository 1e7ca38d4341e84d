"""The events of one message, out of `__kumquat_actions`.

The history is searched from the time when the message was stored, forwards. Batches in which the name of
the subject does not occur are not looked at further, and a record is decoded only if its key is the name;
all of that in threads, since a busy subject has very many. What became of its dead letters is told too.

A message that was for later has a part of its life before it was stored: the schedule id in its `delivered`
event leads there, and `moved` events from one schedule id to the one before.

Events that were dropped while it lived may have been its own: all of them together are one `missed`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kumquat.gateway.history.events import (
    CANCELLED,
    DELIVERED,
    MISSED,
    MOVED,
    REDRIVEN,
    SCHEDULED,
)
from kumquat.gateway.history.reading import Slices
from kumquat.gateway.history.texts import text_of
from kumquat.gateway.topics.table import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kumquat.core.records.records import Record
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.history.reading import Budget

SLACK_MS = 2_000
"""The history is written a little later than what it tells, and clocks are set."""
MOST_EVENTS = 1_000
"""In one answer."""
_MOST_DELAYS = 20_000
_OF_DELAYS = (SCHEDULED, MOVED, CANCELLED)

Told = dict[str, Any]


class Past(NamedTuple):
    events: list[Told]
    cut: bool
    """There may be more: too much had to be read."""


async def past_of(
    broker: Broker,
    subject: str,
    sequence: int,
    letters: Mapping[str, int],
    stored: int,
    created: int | None,
    budget: Budget,
) -> Past:
    """Of a message that was `stored` then (ms). `letters`: its dead letters, offsets by subject. `created`:
    when it was sent for later, if it was."""

    def about(event: Told) -> bool:
        if event["subject"] != subject:
            at = letters.get(event["subject"], -1)
            return event["event"] == MISSED or (event["event"] == REDRIVEN and _has(event, at))
        return event["event"] == MISSED or _has(event, sequence)

    names = [subject, *letters]
    events, cut = await _search(broker, names, stored - SLACK_MS, about, MOST_EVENTS, budget)
    delivery = next((each for each in events if each["event"] == DELIVERED), None)
    if delivery is not None and created is not None:
        schedule_id = delivery["schedule_id"][_place(delivery, sequence)]
        since = created - SLACK_MS
        delays, short = await _search(broker, [subject], since, _of_delay, _MOST_DELAYS, budget)
        events = [*_chain(delays, {schedule_id}), *events]
        cut = cut or short
    places = {**letters, subject: sequence}
    return Past([_shown(each, places.get(each["subject"])) for each in _missed_once(events)], cut)


async def past_of_delay(
    broker: Broker, subject: str, delay_id: str | None, schedule_id: int | None, budget: Budget
) -> Past:
    """Of a message for later, which may have no sequence yet: all that is kept of its history."""

    schedule_ids = {schedule_id} if schedule_id is not None else set[int]()

    def about(event: Told) -> bool:
        """Called in the order of events, so that all its schedule ids are known when it is delivered. There
        may be millions of others, and a delivery has hundreds of ids."""
        if event["event"] == DELIVERED:
            return not schedule_ids.isdisjoint(event["schedule_id"])
        if not _of_delay(event):
            return False
        if delay_id is not None and event["delay_id"] == delay_id:
            schedule_ids.add(event["schedule_id"])
        return delay_id is None or event["schedule_id"] in schedule_ids

    events, cut = await _search(broker, [subject], 0, about, _MOST_DELAYS, budget)
    found = [_shown(event, None) for event in _chain(events, schedule_ids)]
    for event in events:
        if event["event"] == DELIVERED:
            for at, each in enumerate(event["schedule_id"]):
                if each in schedule_ids:
                    found.append(_shown(event, _sequence(event, at)))
    found.sort(key=lambda event: int(event["at"]))
    return Past(found, cut)


async def _search(
    broker: Broker,
    subjects: Sequence[str],
    since: int,
    about: Callable[[Told], bool],
    most: int,
    budget: Budget,
) -> Past:
    log = broker.log
    history = log.subjects.by_name.get(ACTIONS)
    if history is None:
        return Past([], cut=False)
    at = await log.offset_for_timestamp(history, since) if since > 0 else (0, history.earliest)
    if at is None:
        return Past([], cut=False)
    keys, found = {name.encode() for name in subjects}, list[Told]()
    wanted = keys | {b""}

    def fits(record: Record) -> bool:
        return record.key in wanted and about(_decoded(record))

    slices = Slices(log, history, at[1], history.readable_end, budget, marks=tuple(keys))
    while len(found) < most and (records := await slices.next(fits)) is not None:
        found += map(_decoded, records)
    cut = len(found) >= most or (budget.spent and slices.at < history.readable_end)
    return Past(found[:most], cut)


def _decoded(record: Record) -> Told:
    try:
        event: Told = json.loads(record.value or b"{}")
    except ValueError:
        return {"event": "unreadable", "at": record.timestamp, "subject": ""}
    if "sid" in event:  # as the schedule id was called until 2026-11
        event["schedule_id"] = event.pop("sid")
    return event


def _has(event: Told, sequence: int) -> bool:
    ranges = event.get("ranges") or ()
    return any(first <= sequence < first + count for first, count in ranges)


def _of_delay(event: Told) -> bool:
    return event["event"] in _OF_DELAYS


def _place(event: Told, sequence: int) -> int:
    """Which of the messages in its ranges a sequence is."""
    passed = 0
    for first, count in event["ranges"]:
        if first <= sequence < first + count:
            return int(passed + sequence - first)
        passed += count
    raise ValueError(f"{sequence} is not in {event['ranges']}")


def _sequence(event: Told, place: int) -> int:
    for first, count in event["ranges"]:
        if place < count:
            return int(first + place)
        place -= count
    raise ValueError(f"{event['ranges']} are fewer than {place}")


def _chain(events: list[Told], schedule_ids: set[int]) -> list[Told]:
    """The events of these schedule ids and of those that they were moved from and to, oldest first."""
    found: list[Told] = []
    for event in reversed(events):
        if event["event"] == MOVED and event.get("to") in schedule_ids:
            schedule_ids.add(event["schedule_id"])
        if _of_delay(event) and event["schedule_id"] in schedule_ids:
            found.append(event)
    found.reverse()
    return found


def _missed_once(events: list[Told]) -> list[Told]:
    missed = [event for event in events if event["event"] == MISSED]
    if not missed:
        return events
    once = {**missed[0], "count": sum(event["count"] for event in missed)}
    others = (event for event in events if event is missed[0] or event["event"] != MISSED)
    return [once if event is missed[0] else event for event in others]


def _shown(event: Told, sequence: int | None) -> Told:
    """An event as a trace shows it: about the one message."""
    told = {name: value for name, value in event.items() if name not in ("ranges", "dues")}
    if sequence is not None and event["event"] == DELIVERED:
        at = _place(event, sequence)
        told["schedule_id"], told["offset"] = event["schedule_id"][at], sequence
        if "dues" in event:
            told["due"] = event["dues"][at]
            told["late_ms"] = event["at"] - told["due"]
    if sequence is not None and event["event"] == REDRIVEN:
        told["offset"] = event["offset"] + _place(event, sequence)
    told["text"] = text_of(told)
    return told
