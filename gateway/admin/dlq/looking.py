"""The GETs below /dlq: subjects, letters, one letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from kumquat.core.delivery.actions import REASONS
from kumquat.core.delivery.dead_letters.open_letters import Filter, count_open, progress_of
from kumquat.core.delivery.dead_letters.redrive import NoLetters
from kumquat.gateway.admin.dlq.views import row, whole
from kumquat.gateway.admin.dlq.wanted import cursor, dead_subjects, filter_of, following, place_of
from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.lookup import page

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
LOOKED_AT = 1000
"""Letters of each subject whose reasons are counted."""
SEARCH_SECONDS = 2.0
"""After so long a list ends early, and says where to go on."""
OTHER = "other"


async def list_subjects(broker: Broker, arguments: Arguments) -> Answer:
    """As many as can be looked at in SEARCH_SECONDS, at least one."""
    limit = arguments.number("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT
    names, more = await page(dead_subjects(broker), arguments.text("after"), limit)
    listed: list[dict[str, Any]] = []
    last, ends = None, trio.current_time() + SEARCH_SECONDS
    for name in names:
        if last is not None and trio.current_time() >= ends:
            more = True
            break
        last, subject = name, broker.log.subjects.by_name.get(name)
        summary = None if subject is None else await _summary(broker, subject)
        if summary is not None:
            listed.append(summary)
    return Answer(200, {"subjects": listed, "next": last if more else None})


async def _summary(broker: Broker, subject: Subject) -> dict[str, Any] | None:
    """How many are open is known; why they died is read from the first ones. None: it was deleted."""
    try:
        found = await broker.dead_letters.redrives.page(subject.name, Filter(), limit=LOOKED_AT)
    except NoLetters:
        return None
    reasons = dict.fromkeys([*REASONS, OTHER], 0)
    for letter in found.letters:
        reason = letter.origin.reason
        reasons[reason if reason in REASONS else OTHER] += 1
    died = [letter.died for letter in found.letters]
    progress = progress_of(broker.coordinator.groups, subject.id)
    bounds = subject.earliest, subject.readable_end
    opened = 0 if progress is None else count_open(progress, *bounds)
    return {
        "subject": subject.name,
        "open": opened,
        "looked_at": opened if found.after is None else len(found.letters),
        **reasons,
        "oldest": min(died, default=None),
        "newest": max(died, default=None),
    }


async def list_letters(broker: Broker, arguments: Arguments) -> Answer:
    """Of as many subjects as it takes, for at most SEARCH_SECONDS."""
    limit = arguments.number("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT
    wanted, place = filter_of(arguments), place_of(broker, arguments)
    letters: list[dict[str, Any]] = []
    unreadable, ends = 0, trio.current_time() + SEARCH_SECONDS
    while place is not None and len(letters) < limit and trio.current_time() < ends:
        room = limit - len(letters)
        try:
            found = await broker.dead_letters.redrives.page(
                place.subject, wanted, place.after, room
            )
        except NoLetters:
            if arguments.text("subject") is not None:
                raise
            place = following(broker, arguments, place, None)  # it was deleted meanwhile
            continue
        letters += [row(place.subject, letter) for letter in found.letters]
        unreadable += found.unreadable
        place = following(broker, arguments, place, found.after)
    return Answer(200, {"letters": letters, "unreadable": unreadable, "next": cursor(place)})


async def show(broker: Broker, arguments: Arguments) -> Answer:
    subject, sequence = arguments.required("subject"), arguments.number("sequence")
    if sequence is None:
        raise HttpError(400, "INVALID_ARGUMENT", "sequence is missing: a list shows it")
    letter = await broker.dead_letters.redrives.show(subject, sequence)
    if letter is None:
        raise HttpError(
            404,
            "NO_LETTER",
            f"{subject!r} has no letter {sequence}; kumquat dlq list --subject {subject} shows those "
            "that are open",
        )
    return Answer(200, whole(subject, letter))
