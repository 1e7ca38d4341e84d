"""POST /dlq/redrive and /dlq/purge: one part of it, in one subject.

The answer says how many letters were moved (`done`), how large they are, where they went (`to`), and why
letters stayed (`refused`: the reason, and how many). `now` is the time at which the part began. A client
that goes on until `next` is null gives the first `now` as `begun`: what died later than that is not meant.
So it does not send again what it has sent and what died once more meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kumquat.gateway.admin.dlq.wanted import cursor, filter_of, following, place_of
from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.lookup import find_subject
from kumquat.gateway.topics.table import INTERNAL

if TYPE_CHECKING:
    from kumquat.core.delivery.dead_letters.open_letters import Filter
    from kumquat.core.delivery.dead_letters.redrive import Outcome
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.admin.dlq.wanted import Place
    from kumquat.gateway.broker import Broker

MOST = 1000
"""Letters in one part that changes something."""


async def redrive(broker: Broker, arguments: Arguments) -> Answer:
    to = arguments.text("to")
    if to is not None and find_subject(broker, to).name in INTERNAL:
        raise HttpError(400, "INVALID_ARGUMENT", f"to must not be {to}: nobody reads that subject")
    dry_run, most = _how(arguments)
    wanted, place = _wanted(arguments), place_of(broker, arguments)
    now = broker.actions.now_ms()
    if place is None:
        return Answer(200, _nothing(now))
    outcome = await broker.dead_letters.redrives.redrive(
        place.subject, wanted, to=to, most=most, dry_run=dry_run, after=place.after
    )
    return _answer(broker, arguments, place, outcome, now)


async def purge(broker: Broker, arguments: Arguments) -> Answer:
    dry_run, most = _how(arguments)
    wanted, place = _wanted(arguments), place_of(broker, arguments)
    now = broker.actions.now_ms()
    if place is None:
        return Answer(200, _nothing(now))
    outcome = await broker.dead_letters.redrives.purge(
        place.subject, wanted, most=most, dry_run=dry_run, after=place.after
    )
    return _answer(broker, arguments, place, outcome, now)


def _wanted(arguments: Arguments) -> Filter:
    wanted, begun = filter_of(arguments), arguments.number("begun")
    if begun is None:
        return wanted
    bounds = [begun + 1, *([] if wanted.until is None else [wanted.until])]
    return replace(wanted, until=min(bounds))


def _how(arguments: Arguments) -> tuple[bool, int | None]:
    """Whether it is a dry run, and how many letters one part has at most."""
    dry_run = arguments.flag("dry_run")
    limit = arguments.number("limit", 1, MOST)
    return dry_run, limit if dry_run else limit or MOST


def _answer(
    broker: Broker, arguments: Arguments, place: Place, outcome: Outcome, now: int
) -> Answer:
    return Answer(
        200,
        {
            "subject": place.subject,
            "done": outcome.done,
            "bytes": outcome.bytes,
            "to": dict(outcome.to),
            "refused": dict(outcome.refused),
            "now": now,
            "next": cursor(following(broker, arguments, place, outcome.after)),
        },
    )


def _nothing(now: int) -> dict[str, Any]:
    empty: dict[str, Any] = {"to": {}, "refused": {}}
    return {"subject": None, "done": 0, "bytes": 0, **empty, "now": now, "next": None}
