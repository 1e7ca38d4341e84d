"""Which dead letters are written next, and what became of those that could not be. Decisions only.

What is doomed is in the groups' Progress, by group and subject (a *pair*); here is only where to look,
and what failed. A pair that fails (its letters' subject cannot be made, the disk is full) is left alone
for one second, then two, four, up to a minute; the others go on. A single message that cannot be written
(it is larger than the letters' subject takes) is left alone the same way, and does not hold up its own
pair either.

One line in the broker's log says that a pair fails, or fails for another reason, and one that it is over.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from kumquat.core.delivery.progress import Doomed, Progress
from kumquat.core.delivery.state import Groups
from kumquat.core.logs.messages.settles import Settled

log = logging.getLogger("kumquat.dead_letters")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
MOST_MESSAGES = 1_000
"""Of one pair, before it is another's turn."""

Pair = tuple[int, int]
"""Group id and subject id."""


class Failure(NamedTuple):
    reason: str
    tries: int
    due: float
    """When it is tried again, on the clock of the task."""


def again(before: Failure | None, reason: str, now: float) -> Failure:
    """It failed, perhaps once more."""
    tries = before.tries + 1 if before is not None else 1
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 10))
    return Failure(reason, tries, now + pause)


class Backlog:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._pairs: dict[Pair, None] = {}
        """Where something may be doomed; whose turn it is comes first."""
        self._failed: dict[Pair, Failure] = {}
        self._stuck: dict[Pair, dict[int, Failure]] = {}
        """By the sequence of the message."""

    def find_all(self) -> None:
        """Look through all groups: after a start."""
        for gid, group in self._groups.by_id.items():
            for subject_id, progress in group.progress.items():
                if progress.doomed:
                    self._pairs[gid, subject_id] = None

    def add(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self._pairs.setdefault(pair)

    def ready(self, now: float) -> list[Pair]:
        """Pairs that can be worked on, in turn."""
        self._forget_done()
        return [
            pair
            for pair in self._pairs
            if (failure := self._failed.get(pair)) is None or failure.due <= now
            if self.pick(pair, now, 1)
        ]

    def pick(self, pair: Pair, now: float, most: int = MOST_MESSAGES) -> list[Doomed]:
        """The next messages of a pair, without those that are left alone for now."""
        progress = self._progress(pair)
        if progress is None:
            return []
        stuck = {at for at, failure in self._stuck.get(pair, {}).items() if failure.due > now}
        picked: list[Doomed] = []
        for doomed in islice(progress.doomed.values(), most + len(stuck)):
            for part in _without(doomed, stuck):
                taken = part.cut(part.first, min(part.end, part.first + most))
                picked.append(taken)
                most -= taken.size
                if not most:
                    return picked
        return picked

    def holds(self, pair: Pair, items: Iterable[Settled]) -> bool:
        """Whether all of these are still doomed. While they were read, a reset may have taken them back:
        then they are delivered again."""
        progress = self._progress(pair)
        return progress is not None and all(
            progress.is_doomed(item.first, item.size) for item in items
        )

    def worked(self, pair: Pair) -> None:
        """A part of it was written: the others are next."""
        if pair in self._pairs:
            del self._pairs[pair]
            self._pairs[pair] = None
        if self._failed.pop(pair, None) is not None:
            log.warning("%s: dead letters are written again", self.name(pair))

    def failed(self, pair: Pair, reason: str, now: float) -> None:
        before = self._failed.get(pair)
        if before is None or before.reason != reason:
            log.error("%s: dead letters cannot be written: %s", self.name(pair), reason)
        self._failed[pair] = again(before, reason, now)

    def stuck(self, pair: Pair, sequence: int, reason: str, now: float) -> None:
        """This one message cannot be written."""
        messages = self._stuck.setdefault(pair, {})
        before = messages.get(sequence)
        if not messages:  # there may be thousands, each of another size
            log.error(
                "%s: message %d cannot become a dead letter: %s", self.name(pair), sequence, reason
            )
        messages[sequence] = again(before, reason, now)

    def unstuck(self, pair: Pair, first: int, end: int) -> None:
        """These were written."""
        messages = self._stuck.get(pair)
        if messages is None:
            return
        for sequence in range(first, end) if end - first <= len(messages) else list(messages):
            if first <= sequence < end:
                messages.pop(sequence, None)
        if not messages:
            del self._stuck[pair]

    def next_due(self) -> float | None:
        """When something that failed is to be tried again, if nothing is ready."""
        dues = {pair: failure.due for pair, failure in self._failed.items()}
        for pair, messages in self._stuck.items():
            first = min(failure.due for failure in messages.values())
            dues[pair] = max(first, dues.get(pair, first))
        return min(dues.values(), default=None)

    def waiting(self) -> int:
        """How many messages are doomed."""
        return sum(
            progress.dying for pair in self._pairs if (progress := self._progress(pair)) is not None
        )

    def reasons(self) -> dict[tuple[str, int], str]:
        """Why letters are not written, by the group's name and the subject's id."""
        found: dict[tuple[str, int], str] = {}
        for (gid, subject_id), messages in self._stuck.items():
            if (group := self._groups.by_id.get(gid)) is not None:
                sequence, failure = next(iter(messages.items()))
                more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
                found[group.name, subject_id] = f"message {sequence}{more}: {failure.reason}"
        for (gid, subject_id), failure in self._failed.items():
            if (group := self._groups.by_id.get(gid)) is not None:
                found[group.name, subject_id] = failure.reason
        return found

    def name(self, pair: Pair) -> str:
        group = self._groups.by_id.get(pair[0])
        return f"group {group.name if group else pair[0]}, subject {pair[1]}"

    def _progress(self, pair: Pair) -> Progress | None:
        group = self._groups.by_id.get(pair[0])
        return group.progress.get(pair[1]) if group is not None else None

    def _forget_done(self) -> None:
        for pair in list(self._pairs):
            progress = self._progress(pair)
            if progress is None or not progress.doomed:
                del self._pairs[pair]
                self._failed.pop(pair, None)
                self._stuck.pop(pair, None)
        for pair, messages in list(self._stuck.items()):
            progress = self._progress(pair)
            # A reset of the group may have taken them back: nobody would ever write them.
            for at in [at for at in messages if progress is None or not progress.is_doomed(at)]:
                del messages[at]
            if not messages:
                del self._stuck[pair]


def _without(doomed: Doomed, sequences: set[int]) -> list[Doomed]:
    """The parts of it that are none of these sequences. Either may be many: the fewer are gone through."""
    if doomed.size <= len(sequences):
        inside = [at for at in range(doomed.first, doomed.end) if at in sequences]
    else:
        inside = sorted(at for at in sequences if doomed.first <= at < doomed.end)
    parts, begin = list[Doomed](), doomed.first
    for at in inside:
        if begin < at:
            parts.append(doomed.cut(begin, at))
        begin = at + 1
    if begin < doomed.end:
        parts.append(doomed.cut(begin, doomed.end))
    return parts
