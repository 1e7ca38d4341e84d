"""POST /groups/reset: a group goes on somewhere else in a subject, forward or back.

    {"group": G, "subject": S, "to": "earliest" | "latest" | OFFSET}
    {"group": G, "subject": S, "time": T}     at the first message that is not older; "2h": so long ago
    … "dry_run": true                         say what would happen; change nothing

The group must have no members, since a running consumer keeps its own position: stop the consumers,
reset, start them again.

What the group had not finished is forgotten: messages that were given back, and retries that wait for
their time. Those from the new position on come again with everything else there, as first attempts. Those
below it never come. That is what a reset asks for: to keep them would deliver them twice, or deliver what
the operator has just given up. The answer counts all of them: `passed` never come to this group, `again`
had been done and come once more, `retries` were given back or waited. So nothing is lost without a number,
and `dry_run` shows the numbers first.

A message that is to become a dead letter is not lost by a reset. One below the new position still becomes
one (`doomed` counts these). One from there on comes again instead, and counts in `again`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kumquat.core.clock import wall_clock_ms
from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.lookup import find_group, find_subject
from kumquat.gateway.net.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.core.delivery.state import Group, Progress
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker

EARLIEST, LATEST = "earliest", "latest"

logger = logging.getLogger(__name__)


async def reset(broker: Broker, arguments: Arguments) -> Answer:
    name = arguments.required("group")
    subject = find_subject(broker, arguments.required("subject"))
    dry_run = arguments.flag("dry_run")
    find_group(broker, name)
    target = await _target(broker, subject, arguments)
    _check(broker, find_group(broker, name), subject)
    answer = await _what_happens(find_group(broker, name).progress.get(subject.id), subject, target)
    if not dry_run:
        group = find_group(broker, name)  # others had their turn
        _check(broker, group, subject)
        await broker.coordinator.reset(group, subject.id, target)
        logger.warning(
            "group %s goes on with %s at offset %d, as was asked: it never gets %d messages below, and "
            "gets %d once more",
            *(name, subject.name, target, answer["passed"], answer["again"]),
        )
    told = {"group": name, "subject": subject.name, **answer}
    return Answer(200, {**told, "done": not dry_run})


def _check(broker: Broker, group: Group, subject: Subject) -> None:
    """Whether the group may be moved."""
    if group.members or broker.coordinator.state(group) != "Empty":
        raise _no(
            f"group {group.name!r} has members ({len(group.members)}): stop its consumers, reset, and "
            "start them again"
        )
    if subject.deleted:
        raise _no(f"subject {subject.name!r} was deleted meanwhile")


async def _target(broker: Broker, subject: Subject, arguments: Arguments) -> int:
    """The offset that is asked for."""
    to, time = arguments.given("to"), arguments.past("time")
    if (to is None) == (time is None):
        raise _bad("say where to go on: give either to or time")
    if time is not None:
        if time > wall_clock_ms():
            raise _bad("time lies in the future")
        found = await broker.log.offset_for_timestamp(subject, time)
        return subject.readable_end if found is None else found[1]
    if to == EARLIEST:
        return subject.earliest
    if to == LATEST:
        return subject.readable_end
    try:
        offset = arguments.number("to")
    except HttpError:
        raise _bad(
            f"to must be earliest, latest or an offset, not {to!r}; for a time, or how long ago, give "
            "time"
        ) from None
    assert offset is not None
    if not subject.earliest <= offset <= subject.readable_end:
        raise _bad(
            f"{subject.name!r} has the offsets {subject.earliest} to {subject.readable_end} to go on "
            f"at, not {offset}"
        )
    return offset


async def _what_happens(progress: Progress | None, subject: Subject, target: int) -> dict[str, Any]:
    """In numbers: from where, to where, what never comes, what comes once more."""
    answer: dict[str, Any] = {"from": None, "to": target, "high_watermark": subject.readable_end}
    answer |= {"passed": 0, "again": 0, "retries": 0, "doomed": 0}
    if progress is None:
        return answer
    turn = Turn()
    for doomed in list(progress.doomed.values()):
        answer["doomed"] += max(0, min(doomed.end, target) - doomed.first)
        if turn.over:
            await turn.give_way()
    position = progress.lowest_unacked()
    if position is None or position < 0:
        return answer
    begin = progress.cursor if progress.shared else position
    retries, below, above = progress.retries, 0, 0
    for first, end in _retries(progress):
        below += max(0, min(end, target, begin) - first)
        above += max(0, min(end, begin) - max(first, target))
        if turn.over:
            await turn.give_way()
    return {
        **answer,
        "from": position,
        "passed": below + max(0, target - begin),
        "again": max(0, begin - target) - above,
        "retries": retries,
    }


def _retries(progress: Progress) -> Iterator[tuple[int, int]]:
    """What is to be delivered again, as it is now: first sequences, and those behind the last. There may be
    a million; a copy of them costs next to nothing."""
    for again in progress.redelivery.copy():
        yield again.first, again.end
    for wait in progress.waiting.copy():
        yield wait.first, wait.end


def _bad(message: str) -> HttpError:
    return HttpError(400, "INVALID_ARGUMENT", message)


def _no(message: str) -> HttpError:
    return HttpError(409, "NOT_RESET", message)
