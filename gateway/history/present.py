"""Where a message is now, for each group that reads its subject; and the dead letters that were made of it.

All of it is read from the live state and from the subjects of dead letters, so it is there without a
history too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.core.delivery.dead_letters.letters import SEQUENCE, origin_of
from kumquat.core.delivery.dead_letters.names import letters_name, marked
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.core.delivery.whereabouts import ACKED, whereabouts
from kumquat.core.records.rewrite import header
from kumquat.gateway.history.reading import Slices
from kumquat.gateway.net.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.records.records import Record
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.history.reading import Budget

DEAD_LETTER = "dead letter"
MOST_GROUPS = 1_000


async def groups_of(broker: Broker, subject: Subject, sequence: int) -> list[dict[str, Any]]:
    """What each group has done with a message, by name."""
    found: list[dict[str, Any]] = []
    turn = Turn()
    for group in list(broker.actions.groups.by_name.values()):
        progress = group.progress.get(subject.id)
        if progress is None or group.name == INTERNAL_GROUP:
            continue
        place = whereabouts(progress, sequence)
        member = group.members.get(place.member_id or "")
        found.append(
            {
                "group": group.name,
                "state": place.state,
                "member": place.member_id,
                "client": None if member is None else member.client_id,
                "since": place.since,
                "due": place.due,
                "attempt": place.attempt,
                "reason": place.reason,
                "position": progress.lowest_unacked(),
            }
        )
        if len(found) >= MOST_GROUPS:
            break
        if turn.over:
            await turn.give_way()
    return sorted(found, key=lambda row: str(row["group"]))


async def letters_of(
    broker: Broker,
    subject: Subject,
    sequence: int,
    timestamp: int | None,
    names: Iterable[str],
    budget: Budget,
) -> list[dict[str, Any]]:
    """Its dead letters in these subjects. A letter keeps the timestamp of its message, so they are searched
    from there."""
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        letters = broker.log.subjects.by_name.get(name)
        if letters is not None and letters is not subject:
            found += await _letters_in(broker, letters, subject.name, sequence, timestamp, budget)
    return found


def bury(groups: list[dict[str, Any]], letters: list[dict[str, Any]]) -> None:
    """What a group is done with, and of which there is a dead letter for it, did not end well."""
    dead = {letter["group"] for letter in letters}
    for row in groups:
        if row["state"] == ACKED and row["group"] in dead:
            row["state"] = DEAD_LETTER


def names_of_letters(broker: Broker, subject: Subject) -> list[str]:
    """Where the groups of now put dead letters of a subject."""
    found: list[str] = []
    for group in broker.actions.groups.by_name.values():
        if subject.id in group.progress and group.name != INTERNAL_GROUP:
            configured = broker.registry.group_config(group.name).dead_letter_subject
            name = letters_name(subject.name, group.name, configured)
            found += [name, marked(name, name)]
    return found


async def _letters_in(
    broker: Broker,
    letters: Subject,
    origin: str,
    sequence: int,
    timestamp: int | None,
    budget: Budget,
) -> list[dict[str, Any]]:
    begin = letters.earliest
    if timestamp is not None and timestamp > 0:
        at = await broker.log.offset_for_timestamp(letters, timestamp)
        if at is None:
            return []
        begin = at[1]
    wanted = (SEQUENCE, b"%d" % sequence)

    def fits(record: Record) -> bool:
        if wanted not in record.headers:
            return False
        said = origin_of(record, letters.name)
        return said.subject == origin and said.sequence == sequence

    marks = (header(SEQUENCE.encode(), wanted[1]),)
    slices = Slices(broker.log, letters, begin, letters.readable_end, budget, marks=marks)
    found: list[dict[str, Any]] = []
    while (records := await slices.next(fits)) is not None:
        for record in records:
            said = origin_of(record, letters.name)
            found.append(
                {
                    "subject": letters.name,
                    "offset": record.offset,
                    "group": said.group or None,
                    "reason": said.reason or None,
                    "text": said.text or None,
                    "attempts": said.attempts if said.attempts >= 0 else None,
                }
            )
    return found
