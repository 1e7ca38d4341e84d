"""POST /groups/skip: past messages that are damaged.

    POST /groups/skip  {"group": G, "subject": S}              past what is damaged where the group stands
    POST /groups/skip  {"group": G, "subject": S, "to": N}     to offset N, over everything in between

A group that reads in order gets CORRUPT_MESSAGE at a damaged batch each time it asks: it must not skip
messages unless an operator has given them up. This request gives them up, for one group. The answer says
which offsets were skipped, and so does the log. It goes forward only.

The group must have no members, since a running consumer keeps its own position: stop the consumers, skip,
start them again. A group that shares the subject does not need this: there the broker skips damaged
messages when it would hand them out, and logs that.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kumquat.core.delivery import actions
from kumquat.core.errors import CorruptMessage
from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.lookup import find_group, find_subject

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker

logger = logging.getLogger(__name__)


async def skip(broker: Broker, arguments: Arguments) -> Answer:
    name = arguments.required("group")
    subject = find_subject(broker, arguments.required("subject"))
    to = arguments.number("to")
    group = find_group(broker, name)
    position = _position(broker, group, subject)
    end = await _behind_damage(broker, subject, position) if to is None else to
    group = find_group(broker, name)  # others had their turn
    if subject.deleted or _position(broker, group, subject) != position:
        raise _no(f"group {name!r} has moved on meanwhile, or {subject.name!r} was deleted")
    _check_target(subject, position, end, asked=to is not None)
    await broker.coordinator.change([actions.Commit(group.id, subject.id, end, -1, "")])
    logger.warning(
        "group %s goes on with %s at offset %d, as was asked: it never gets the messages from %d to %d",
        *(name, subject.name, end, position, end - 1),
    )
    answer = {"group": name, "subject": subject.name, "from": position, "to": end}
    return Answer(200, {**answer, "skipped": end - position})


def _position(broker: Broker, group: Group, subject: Subject) -> int:
    """The position of a group, if the group may be moved."""
    if group.members or broker.coordinator.state(group) != "Empty":
        raise _no(
            f"group {group.name!r} has members: stop its consumers, skip, and start them again"
        )
    progress = group.progress.get(subject.id)
    if progress is not None and progress.shared:
        raise _no(
            f"group {group.name!r} shares {subject.name!r}: what is damaged is skipped by itself when it "
            "would be handed out, and the log says so"
        )
    position = None if progress is None else progress.lowest_unacked()
    if position is None:
        raise HttpError(
            404, "NO_OFFSET", f"group {group.name!r} has committed no offset of {subject.name!r}"
        )
    return position


async def _behind_damage(broker: Broker, subject: Subject, at: int) -> int:
    """The first offset from there on that can be read, or the end."""
    while at < subject.readable_end:
        try:
            await broker.log.read(subject, at, 1, True)
        except CorruptMessage:
            behind = (await broker.log.bounds(subject, at))[1]
            at = min(max(behind, at + 1), subject.readable_end)
        else:
            break
    return at


def _check_target(subject: Subject, position: int, end: int, *, asked: bool) -> None:
    if not asked and end == position:
        raise _no(
            f"{subject.name!r} can be read at offset {position}, where the group stands: nothing is "
            "skipped; to skip messages that can be read, say where to go on (to)"
        )
    if not position < end <= subject.readable_end:
        raise _no(
            f"the group stands at {position} and {subject.name!r} ends at {subject.readable_end}: it "
            f"cannot skip to {end}"
        )


def _no(message: str) -> HttpError:
    return HttpError(409, "NOT_SKIPPED", message)
