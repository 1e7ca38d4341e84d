"""Subjects: the list, in pages by name, and one of them with its configs and the groups that read it.

A page of names is kept until a subject is made or deleted: to find it means to look at every name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.admin.groups.standing import mode, standing
from kumquat.gateway.admin.lookup import page
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.topics.table import INTERNAL
from kumquat.meta.definitions import DEFINITIONS, describe

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.console.snapshot import Snapshot
    from kumquat.meta.definitions import ConfigRow

PAGE = 50
AT_A_TIME = 2000
MOST_READERS = 100
MOST_KEPT = 32
"""Pages of names."""


class Row(NamedTuple):
    name: str
    messages: int
    earliest: int
    end: int
    internal: bool
    pending: int


class Reader(NamedTuple):
    group: str
    mode: str
    members: int
    standing: dict[str, Any]


class SubjectView(NamedTuple):
    subject: Subject
    size: int
    pending: int
    newest: int | None
    """Timestamp of the newest message."""
    readers: list[Reader]
    more_readers: bool
    configs: list[ConfigRow]
    changed: int
    """How many configs are not the defaults."""
    effects: dict[str, str]
    internal: bool


class Names:
    """Pages of names, found once."""

    def __init__(self, broker: Broker) -> None:
        self._table = broker.log.subjects
        self._state = (0, 0)
        self._pages: dict[tuple[str, str | None], tuple[list[str], bool]] = {}

    async def page(self, query: str, after: str | None) -> tuple[list[str], bool]:
        """Names that contain `query`, in order, behind `after`; and whether there are more."""
        state = self._table.next_id, len(self._table)
        if state != self._state:
            self._state, self._pages = state, {}
        key, pages = (query.lower(), after), self._pages
        if key not in pages:
            names = await self._matching(key[0])
            found = await page(names, after, PAGE)
            if len(pages) >= MOST_KEPT:
                del pages[next(iter(pages))]
            pages[key] = found  # not in those of a table that has changed meanwhile
        return pages[key]

    async def _matching(self, query: str) -> list[str]:
        names = list(self._table.by_name)
        if not query:
            return names
        found: list[str] = []
        turn = Turn()
        for start in range(0, len(names), AT_A_TIME):
            found += [name for name in names[start : start + AT_A_TIME] if query in name.lower()]
            if turn.over:
                await turn.give_way()
        return found


def rows(broker: Broker, names: list[str]) -> list[Row]:
    by_name = broker.log.subjects.by_name
    pending = broker.delay.pending_of
    found = [by_name.get(name) for name in names]
    return [
        Row(
            subject.name,
            subject.readable_end - subject.earliest,
            subject.earliest,
            subject.readable_end,
            subject.name in INTERNAL,
            pending(subject),
        )
        for subject in found
        if subject is not None
    ]


async def subject_view(broker: Broker, subject: Subject) -> SubjectView:
    (size,) = await broker.log.subject_bytes([subject])
    newest = await broker.log.max_timestamp(subject)
    readers, more = await _readers(broker, subject)
    configs = describe(broker.registry.configs(subject.id), broker.subjects.defaults)
    return SubjectView(
        subject=subject,
        size=size,
        pending=broker.delay.pending_of(subject),
        newest=None if newest is None else newest[0],
        readers=readers,
        more_readers=more,
        configs=sorted(configs, key=lambda row: (row.is_default, row.name)),
        changed=sum(not row.is_default for row in configs),
        effects={name: definition.effect for name, definition in DEFINITIONS.items()},
        internal=subject.name in INTERNAL,
    )


async def _readers(broker: Broker, subject: Subject) -> tuple[list[Reader], bool]:
    """The groups that have a position in it, those with the greatest lag first."""
    found: list[Reader] = []
    turn, more = Turn(), False
    for group in list(broker.coordinator.groups.by_id.values()):
        progress = group.progress.get(subject.id)
        if progress is not None and group.name != INTERNAL_GROUP:
            if len(found) >= MOST_READERS:
                more = True
                break
            members = sum(subject.id in member.holds for member in group.members.values())
            stands = standing(progress, subject)
            found.append(Reader(group.name, mode(progress), members, stands))
        if turn.over:
            await turn.give_way()
    found.sort(key=lambda reader: (-(reader.standing["lag"] or 0), reader.group))
    return found, more


def rate_of(snapshot: Snapshot, name: str) -> float | None:
    return next((busy.rate for busy in snapshot.busiest if busy.name == name), None)
