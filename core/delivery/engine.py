"""The delivery engine: what is handed out, acked, released. Decisions only, on one group and subject.

A decision is an action to append (core/logs/actions/service.py); it counts when it is applied. The caller's
round for a Fetch at a pull offset, all of it without a pause in between:

    if not owns(log, pull): not this pull log's business; answer as for a slot that is gone
    again = leases_from(log, pull)                  given before and not acked: read, cut and sent once more
    if not again:
        expired = overtaken(gid, subject_id, progress, earliest)       append it first, loudly
        ranges = hand_out(progress, log, policy, …)             none: policy.nothing_given, and wait
        append pull_action(gid, subject_id, log, ranges); then leases_from(log, pull) are there to be sent

An answer need not wait until a pull is synced. A commit's must, for its ack.

What was delivered before is handed out in smaller and smaller parts: half as many, then still fewer with
each attempt, so that the last attempt is of one message. Such a message is handed out *alone*: to a member
that holds nothing else, and that is given nothing else while it has it. So a message that kills its
consumers does not take its neighbours along. That must not stop anybody who acks only after many messages:
a member that sits on one for long (ALONE_MS) is given others again, and a message that waited so long for
a member without others goes to any. Nor must it stop other messages: while there are any, one member at a
time has a message alone, and for half of the time at most (sharing/hand_outs.py).

Acks are cumulative within one pull log. What counts as one is `ack`'s to say, and None means that there is
nothing to write: the offset says nothing new, was never given, or lies in a gap that an unclean start has
left.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from kumquat.core.delivery import actions
from kumquat.core.delivery.policy import SharePolicy, waiting
from kumquat.core.delivery.pull_log import FIRST_PULL, SHARE_PULL
from kumquat.core.delivery.ranges import Range
from kumquat.core.delivery.state import Group, Groups, Lease, Progress, PullLog


class Allowed(Enum):
    """What may be handed out of a subject to a group: the gateway's groups decide it."""

    ALL = "all"
    AGAIN = "what waits to be delivered again, nothing new"
    NOTHING = "nothing"


MOST_RANGES = 64
"""In one hand-out: each must be looked up and cut on its own."""
LOOKED_AT = 256
"""Ranges of messages to be delivered again that are looked at for one hand-out."""
ALONE_MS = 10_000
FEW_ATTEMPTS = 5
"""With fewer, what is delivered for the second time is divided into more than two parts: few attempts are
left to find the message that fails."""


def open_pull_log(
    groups: Groups, group: Group, subject_id: int, member_id: str, *, share: bool = False
) -> actions.Slot:
    """`share`: the log of a member of a share group. GroupMaxSizeReached: the subject has no slot left."""
    slot, begin = groups.next_slot(subject_id)
    return actions.Slot(group.id, subject_id, slot, member_id, SHARE_PULL if share else begin)


# --- what a Fetch gets ---------------------------------------------------------------------------


def owns(log: PullLog, pull: int) -> bool:
    """Whether a pull sequence can be one of this pull log."""
    return FIRST_PULL <= log.begin <= pull <= log.next


def leases_from(log: PullLog, pull: int) -> list[Lease]:
    """What was given at `pull` and above and is not acked; from the first that is, if that is higher."""
    found: list[Lease] = []
    for lease in reversed(log.leases):  # what is asked for is mostly the last of many
        if lease.end <= pull:
            break
        found.append(
            lease if pull <= lease.pull else lease.part(pull - lease.pull, lease.end - pull)
        )
    found.reverse()
    return found


class Caution(NamedTuple):
    """How messages are handed out that were delivered before."""

    limit: int
    """How often a message is delivered."""
    most: int
    """How many of the first attempt are handed out at once."""
    strict: bool = True
    """A message that is to be handled alone waits for a member that holds nothing."""
    others_first: bool = False
    """Nothing is handed out alone now."""

    def part(self, attempt: int) -> int:
        """How many of this attempt are handed out at once; 1: alone, from the second attempt on."""
        if attempt <= 1:
            return self.most
        if attempt >= min(self.limit, 32):
            return 1
        first = 1 if self.limit < FEW_ATTEMPTS else 2
        part = (self.most / first) ** ((self.limit - attempt) / (self.limit - first))
        return max(1, min(int(part), self.most >> (attempt - 1)))

    def alone(self, attempt: int) -> bool:
        return attempt > 1 and self.part(attempt) == 1


def hand_out(
    progress: Progress,
    log: PullLog,
    policy: SharePolicy,
    *,
    earliest: int,
    readable_end: int,
    sharers: int,
    max_records: int,
    caution: Caution,
    now: float,
    everything: bool = False,
) -> list[Range]:
    """What this member is to get now: what waits to be delivered again first, then from the cursor.
    `everything`: there is nobody to leave a part to."""
    at_hand = waiting(progress, readable_end)
    if not at_hand:
        return []
    most = max_records
    if not everything:
        room = policy.room(progress, log, readable_end, sharers, now)
        known = bool(policy.pace(log.member_id).rate)
        most = min(most, room, portion(at_hand, sharers, known))
    if most <= 0:
        return []
    given: list[Range] = []
    if progress.redelivery.total:
        given = _again(progress, log, earliest, most, caution)
        if given and caution.alone(given[0].attempt):
            return given
        most -= sum(part.size for part in given)
    first = max(progress.cursor, earliest)
    fresh = min(most, readable_end - first)
    if fresh > 0 and len(given) < MOST_RANGES:
        given.append(Range(first, fresh, 1))
    return given


def _again(
    progress: Progress, log: PullLog, earliest: int, most: int, caution: Caution
) -> list[Range]:
    """What the member is to get of what was delivered before."""
    given: list[Range] = []
    for part in progress.redelivery.parts(progress.redelivery.total, LOOKED_AT):
        if part.first < earliest:
            continue
        if caution.alone(part.attempt):
            if not given and not caution.others_first and not (log.unacked and caution.strict):
                return [part._replace(size=1)]
            continue
        most = min(most, caution.part(part.attempt) - sum(each.size for each in given))
        if most <= 0 or len(given) == MOST_RANGES:
            break
        given.append(part._replace(size=min(part.size, most)))
        most -= given[-1].size
    return given


def holds_alone(log: PullLog, caution: Caution, now_ms: int) -> bool:
    """Whether a member has a message that it is to handle alone."""
    if log.unacked != 1:
        return False
    lease = log.leases[0]
    return caution.alone(lease.attempt) and now_ms - lease.at < ALONE_MS


def awaits_alone(progress: Progress, caution: Caution) -> tuple[bool, bool]:
    """Whether a message waits for a member that holds nothing else; and whether one waits that was
    delivered before and may go to any."""
    parts = progress.redelivery.parts(progress.redelivery.total, LOOKED_AT)
    found = {caution.alone(part.attempt) for part in parts}
    return True in found, False in found


def portion(at_hand: int, sharers: int, known: bool) -> int:
    """How much of what is left a member is given at once: a share, so that the last ones are small; half of
    one while its pace is not known, since it may be slow."""
    return max(1, at_hand // ((1 if known else 2) * max(1, sharers)))


def pull_action(gid: int, subject_id: int, log: PullLog, ranges: Iterable[Range]) -> actions.Pull:
    return actions.Pull(gid, subject_id, log.slot, log.next, [list(part[:3]) for part in ranges])


# --- acks ----------------------------------------------------------------------------------------


def ack(gid: int, subject_id: int, log: PullLog, pull: int) -> actions.Ack | None:
    """All below `pull` is done."""
    if not log.leases or not log.leases[0].pull < pull <= log.next or log.in_gap(pull):
        return None
    return actions.Ack(gid, subject_id, log.slot, pull)


# --- what retention took ----------------------------------------------------------------------------


def overtaken(
    gid: int, subject_id: int, progress: Progress, earliest: int
) -> actions.Expire | None:
    """When messages that the group has not had are gone from the subject. Say it loudly: `missed`."""
    lowest = progress.lowest_due() if progress.shared else progress.position
    if lowest is None or lowest >= earliest:
        return None
    return actions.Expire(gid, subject_id, earliest)


def missed(progress: Progress, earliest: int) -> int:
    """How many messages below `earliest` the group has not acked."""
    if not progress.shared:
        return max(0, earliest - (progress.position or 0)) if progress.committed else 0
    unacked = [(r.first, r.size) for r in progress.redelivery]
    for log in progress.pull_logs.values():
        unacked += [(lease.first, lease.size) for lease in log.leases]
    below = sum(max(0, min(first + size, earliest) - first) for first, size in unacked)
    below += progress.waiting.count_below(earliest)
    return below + max(0, earliest - progress.cursor)
