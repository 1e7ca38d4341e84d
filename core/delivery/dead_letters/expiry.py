"""Messages that retention is about to take before their retry has come. Decisions only.

A message that failed and waits to be delivered again may be older than its subject keeps messages. It is
not to vanish: shortly before retention takes it, it becomes a dead letter, while its bytes are still there.
What was never delivered, or is leased just now, goes as in Kafka: it is counted, and logged.

A million may be about to go. So they are doomed some at a time: an action with all of them would stop the
broker for many seconds, and each one that is doomed takes ten times the memory of one that waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from kumquat.core.delivery.actions import EXPIRED, Doom
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.state import Groups

TEXT = "retention was about to delete the message before it could be delivered again"


def dooms(groups: Groups, earliest: Mapping[int, int], most: int) -> list[Doom]:
    """What is to become dead letters before all below these sequences is gone, by subject id; at most so
    many ranges."""
    made: list[Doom] = []
    for group in groups.by_id.values():
        for subject_id, progress in group.progress.items():
            if progress.retries and subject_id in earliest:
                ranges = list(islice(_failed_below(progress, earliest[subject_id]), most))
                if ranges:
                    made.append(Doom(group.id, subject_id, 0, ranges, EXPIRED, TEXT))
                    most -= len(ranges)
    return made


def pending(groups: Groups, earliest: Mapping[int, int]) -> int:
    """How many messages there are still below these sequences whose dead letters are not written."""
    return sum(
        min(doomed.end, earliest[subject_id]) - doomed.first
        for group in groups.by_id.values()
        for subject_id, progress in group.progress.items()
        if progress.doomed and subject_id in earliest
        for doomed in progress.doomed.values()
        if doomed.first < earliest[subject_id]
    )


def _failed_below(progress: Progress, earliest: int) -> Iterator[list[int]]:
    """First sequence, count, and how often they were delivered."""
    for parts in (progress.redelivery, progress.waiting):
        for part in parts:
            if part.first >= earliest:
                break
            if part.attempt > 1:
                yield [part.first, min(part.size, earliest - part.first), part.attempt - 1]
