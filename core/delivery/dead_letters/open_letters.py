"""Which letters of a subject are open: neither sent back nor purged. And which ones somebody means. Pure.

The internal group `__kumquat_dlq` has a Progress for each subject that dead letters were written to: a
cursor, and what is open below it (progress.py). Nobody is ever a member of it, so nothing else happens to
it. A letter is open until it is settled for that group: by a frame of the message log when it is sent
back, by an action when it is purged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kumquat.core.delivery.actions import Action, Group, Share
from kumquat.core.delivery.dead_letters.letters import Origin, is_without_body, origin_of
from kumquat.core.delivery.state import Groups, Progress
from kumquat.core.records.records import Record
from kumquat.core.records.rewrite import Body, fields_of

INTERNAL_GROUP = "__kumquat_dlq"
"""Not to be joined, listed or expired."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it lies in its subject."""

    record: Record
    origin: Origin
    newest: int
    """The highest timestamp of its batch. That of a batch of letters is no lower than the time at which
    they were written."""

    @property
    def died(self) -> int:
        """When it was last delivered, or given up (ms); where that is not known, when it was written."""
        return self.origin.last_ms if self.origin.last_ms >= 0 else self.newest

    @property
    def empty(self) -> bool:
        """The message could not be read when it died."""
        return is_without_body(self.record, self.origin)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which letters are meant: those that fit all that is given."""

    origin: str | None = None
    """The subject that they come from."""
    group: str | None = None
    reason: str | None = None
    since: int | None = None
    """Died at this time (ms) or later."""
    until: int | None = None
    """Died before this time."""
    key: bytes | None = None
    header: tuple[str, bytes] | None = None

    def fits(self, letter: Letter) -> bool:
        record, origin = letter.record, letter.origin
        return (
            (self.origin is None or origin.subject == self.origin)
            and (self.group is None or origin.group == self.group)
            and (self.reason is None or origin.reason == self.reason)
            and (self.since is None or letter.died >= self.since)
            and (self.until is None or letter.died < self.until)
            and (self.key is None or record.key == self.key)
            and (self.header is None or self.header in record.headers)
        )


def letter_of(subject: str, sequence: int, body: Body) -> Letter | None:
    """The letter that lies there. None: a record that is no dead letter; somebody else has put it there."""
    record = Record(sequence, body.timestamp, *fields_of(body))
    origin = origin_of(record, subject)
    return Letter(record, origin, body.newest) if origin.subject else None


def adopt(groups: Groups, subject_id: int) -> list[Action]:
    """What makes a subject one for dead letters; nothing when it is."""
    group = groups.by_name.get(INTERNAL_GROUP)
    if group is None:
        return [Group(groups.next_id, INTERNAL_GROUP), Share(groups.next_id, subject_id, 0)]
    return [] if subject_id in group.progress else [Share(group.id, subject_id, 0)]


def progress_of(groups: Groups, subject_id: int) -> Progress | None:
    group = groups.by_name.get(INTERNAL_GROUP)
    return None if group is None else group.progress.get(subject_id)


def open_ranges(progress: Progress, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Where open letters may be, from `begin` to `end`."""
    for part in [*progress.redelivery]:
        first, behind = max(begin, part.first), min(end, part.end)
        if first < behind:
            yield first, behind
    first = max(begin, progress.cursor)
    if first < end:
        yield first, end


def count_open(progress: Progress, begin: int, end: int) -> int:
    return sum(behind - first for first, behind in open_ranges(progress, begin, end))
