"""Looks up the messages that cancels and moves are about: in memory, then in the schedule files.

Files are searched in a thread, and time passes meanwhile. A caller decides by the state when it has the
result: if a fill came in between, the lookup is repeated, since what was in memory is in a file now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.pools import QUERY, in_thread
from kumquat.core.wheel.files.message_finder import MessageFinder
from kumquat.core.wheel.intake.cancels import WAITING, Target
from kumquat.core.wheel.schedule.model import Named
from kumquat.core.wheel.schedule.schedule import Schedule

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SubjectGone(KumquatError):
    """The subject was deleted while something was done for it."""

    error_code = 3  # UNKNOWN_TOPIC_OR_PARTITION


def check_alive(subject: Subject) -> None:
    if subject.deleted:
        raise SubjectGone(f"the subject {subject.name!r} has been deleted")


async def search_in_thread(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Search on disk. StorageError: the client is told why that fails."""
    try:
        return await in_thread(QUERY, work, *args)
    except OSError as error:
        raise StorageError(f"schedule files cannot be read: {error}") from error


class Lookup:
    def __init__(self, schedule: Schedule, finder: MessageFinder) -> None:
        self._schedule = schedule
        self._finder = finder

    async def find(self, subject: Subject, delay_id: bytes, with_record: bool) -> Target:
        """The message that a delay id names, with its record if that is wanted."""
        return (await self._find(subject, {delay_id: with_record}))[delay_id]

    async def find_all(self, subject: Subject, moves: dict[bytes, bool]) -> dict[bytes, Target]:
        """The messages that delay ids name; `moves`: whether each is to be moved. To move a message, its
        record must be read: if another message got the id meanwhile, it is looked up again."""
        while True:
            targets = await self._find(subject, moves)
            known = {delay_id: self._schedule.look_up((subject.id, delay_id)) for delay_id in moves}
            named = {delay_id: known[delay_id] or targets[delay_id].named for delay_id in moves}
            if all(named[one] == targets[one].named for one, is_move in moves.items() if is_move):
                return targets

    async def _find(self, subject: Subject, moves: dict[bytes, bool]) -> dict[bytes, Target]:
        """The messages that delay ids name, with the record where that is wanted."""
        schedule = self._schedule
        while True:
            filled = schedule.filled
            known = {delay_id: schedule.look_up((subject.id, delay_id)) for delay_id in moves}
            if None not in known.values() and True not in moves.values():
                return {delay_id: Target(named, None) for delay_id, named in known.items()}
            targets = await search_in_thread(self._search, subject.id, known, moves, filled)
            if schedule.filled == filled:
                return targets

    def _search(
        self,
        subject_id: int,
        known: dict[bytes, Named | None],
        moves: dict[bytes, bool],
        filled: int,
    ) -> dict[bytes, Target]:
        """Blocks."""
        targets = {}
        for delay_id, found in known.items():
            named = found or self._finder.name(subject_id, delay_id)
            record = None
            if moves[delay_id] and named is not None and named.status in WAITING:
                record = self._finder.record(subject_id, named.schedule_id, named.due, filled)
            targets[delay_id] = Target(named, record)
        return targets
