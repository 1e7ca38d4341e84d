"""Acknowledgements of share groups: message by message, each with a type. Decisions only.

    type         what becomes of the message
    0 GAP        there is no message at that offset: done
    1 ACCEPT     done
    2 RELEASE    given back: delivered again after a back-off, or doomed after the last attempt
    3 REJECT     doomed: it becomes a dead letter
    4 RENEW      held for longer

All acknowledgements of one subject in a request count, or none. Each message must be held by the member
(else INVALID_RECORD_STATE: never given, acked before, its lock has ended, or another member has it). What
lies behind the last message that the group was given is a fault of the client (INVALID_REQUEST). What lies
below the lowest that is not settled is passed over, as in Kafka: retention took it, or all of it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import REJECTED, Action
from kumquat.core.delivery.give_back import RetryPolicy, give_back
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.pull_log import Lease, ShareLog, Walk
from kumquat.core.errors import InvalidRecordState, InvalidRequest

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class AckBatch(NamedTuple):
    first: int
    last: int
    types: Sequence[int]
    """One for all, or one for each."""

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """First, end and type of each run of one type."""
        if len(self.types) == 1:
            yield self.first, self.last + 1, self.types[0]
            return
        at = self.first
        for kind, run in groupby(self.types):
            size = sum(1 for _ in run)
            yield at, at + size, kind
            at += size


class Acknowledged(NamedTuple):
    actions: list[Action]
    renewed: list[tuple[int, int]]
    """First and end of what is to be held for longer."""


def acknowledge(
    gid: int,
    subject_id: int,
    progress: Progress,
    log: ShareLog,
    batches: Iterable[AckBatch],
    policy: RetryPolicy,
    *,
    earliest: int,
    now_ms: int,
) -> Acknowledged:
    """The batches ascend. Raises InvalidRecordState or InvalidRequest. No more batches are taken than the
    member holds messages, and those that lie below: they may be an iterator over very many."""
    accepted: list[list[int]] = []
    released: list[Lease] = []
    rejected: list[list[int]] = []
    renewed: list[tuple[int, int]] = []
    floor: int | None = None
    walk = Walk(log.leases)
    for batch in batches:
        if batch.last >= progress.cursor:
            raise InvalidRequest(
                f"offset {batch.last} was never delivered: the group was given all below "
                f"{progress.cursor}"
            )
        for first, end, kind in batch.runs():
            held = _held(walk, first, end)
            if held is None:
                if floor is None:  # once: it looks at all that is leased, and batches may be many
                    floor = max(earliest, progress.lowest_unacked() or 0)
                first = max(first, min(end, floor))
                held = _held(walk, first, end)
            if held is None:
                raise InvalidRecordState(
                    f"member {log.member_id} does not hold all offsets from {first} to {end - 1}: they are "
                    "acked, their lock has ended, or they were never given to it"
                )
            if first == end:
                continue
            if kind <= ACCEPT:
                accepted.append([first, end - first])
            elif kind == RELEASE:
                released += held
            elif kind == REJECT:
                rejected += [[lease.first, lease.size, lease.attempt] for lease in held]
            else:
                renewed.append((first, end))
    made: list[Action] = []
    if accepted:
        made.append(actions.Accept(gid, subject_id, log.slot, accepted))
    made += give_back(gid, subject_id, log.slot, released, policy, now_ms)
    if rejected:
        made.append(actions.Doom(gid, subject_id, log.slot, rejected, REJECTED, ""))
    return Acknowledged(made, renewed)


def _held(walk: Walk, first: int, end: int) -> list[Lease] | None:
    """The leases of these messages; None: the member does not hold all of them."""
    held = walk.held(first, end)
    return held if sum(lease.size for lease in held) == end - first else None
