"""Where one message is for a group, now: read from its Progress, which is not changed.

state               what it means
in flight           a member has it, since a time
waiting for retry   given back; it comes again when it is `due` (0: to whoever asks next)
doomed              to become a dead letter, which is not durable yet
not delivered       above all that the group was given; with plain offsets, at or above its position:
                    a member may have read it, and has not committed it
below position      with plain offsets: the group has committed past it
acked               below the cursor, and nowhere: done, or its dead letter is durable
"""

from __future__ import annotations

from typing import NamedTuple

from kumquat.core.delivery.progress import Progress

IN_FLIGHT, WAITING, DOOMED = "in flight", "waiting for retry", "doomed"
NOT_DELIVERED, BELOW, ACKED = "not delivered", "below position", "acked"


class Whereabouts(NamedTuple):
    state: str
    member_id: str | None = None
    since: int | None = None
    """When it was handed to the member (ms)."""
    due: int | None = None
    attempt: int | None = None
    """Which delivery this is, or the next one will be."""
    reason: str | None = None
    """Why it is doomed."""


def whereabouts(progress: Progress, sequence: int) -> Whereabouts:
    for log in progress.pull_logs.values():
        for lease in log.leases:
            if lease.first <= sequence < lease.behind:
                since = lease.at or None
                return Whereabouts(IN_FLIGHT, log.member_id, since, attempt=lease.attempt)
    wait = progress.waiting.find(sequence)
    if wait is not None:
        return Whereabouts(WAITING, due=wait.due, attempt=wait.attempt)
    for doomed in progress.doomed.values():
        if doomed.first <= sequence < doomed.end:
            return Whereabouts(DOOMED, attempt=doomed.attempts, reason=doomed.reason)
    again = progress.redelivery.find(sequence)
    if again is not None:
        if again.attempt == 1 and not again.since:  # the cursor has passed it, nobody has had it
            return Whereabouts(NOT_DELIVERED)
        return Whereabouts(WAITING, due=0, attempt=again.attempt)
    if progress.shared:
        return Whereabouts(NOT_DELIVERED if sequence >= progress.cursor else ACKED)
    position = progress.position if progress.committed else None
    return Whereabouts(BELOW if position is not None and sequence < position else NOT_DELIVERED)
