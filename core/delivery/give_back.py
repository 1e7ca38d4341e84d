"""Giving back: what becomes of leases that end without an ack. Decisions only.

    how it ends                                       attempt   next delivery
    a leave with a commit, a rebalance, a restart     same      at once (the action Release)
    a death, a session that ends, a leave without a   + 1       after a back-off
    commit, a release by the client, a lock that ends
    a share member closes or loses its connection     + 1       at once; a lost connection: at once for the
                                                                first attempt, then after a back-off

The back-off grows by a factor with each attempt, up to a maximum. After the last attempt that a group
allows, the message is doomed: it becomes a dead letter. A client may also reject it at once.

A client that shares by pull offsets, or reads plain ones, says which message failed with a command
(commands.py). `fail` finds the message that it names, and what is to be done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import ATTEMPTS, REJECTED
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.pull_log import Lease, PullLog, ShareLog, split_offset
from kumquat.core.delivery.state import Group, Groups


class RetryPolicy(NamedTuple):
    """A group's configs."""

    backoff_ms: int = 1000
    multiplier: float = 2.0
    max_ms: int = 600_000
    limit: int = 16
    """How often a message is delivered."""

    def backoff(self, attempt: int) -> int:
        """How long to wait after this delivery has failed, ms."""
        if not self.backoff_ms:
            return 0
        # 2.0 ** 2000 is no float: the exponent is bounded by where the maximum is reached in any case.
        grown = self.backoff_ms * self.multiplier ** min(attempt - 1, 64)
        return int(min(self.max_ms, grown))


class RetryConfig(Protocol):
    """The configs of a group that this is made of."""

    @property
    def retry_backoff_ms(self) -> int: ...
    @property
    def retry_backoff_multiplier(self) -> float: ...
    @property
    def retry_backoff_max_ms(self) -> int: ...
    @property
    def delivery_count_limit(self) -> int: ...
    @property
    def share_delivery_count_limit(self) -> int: ...


def policy_of(config: RetryConfig, group: Group) -> RetryPolicy:
    share = group.is_share
    return RetryPolicy(
        config.retry_backoff_ms,
        config.retry_backoff_multiplier,
        config.retry_backoff_max_ms,
        config.share_delivery_count_limit if share else config.delivery_count_limit,
    )


class Delay(Enum):
    """How long a message that is given back waits."""

    BACKOFF = "as the group's configs say"
    NONE = "not at all"
    LOST = "not at all after the first delivery, then as the configs say"


def give_back(
    gid: int,
    subject_id: int,
    slot: int,
    leases: Iterable[Lease],
    policy: RetryPolicy,
    now_ms: int,
    delay: Delay = Delay.BACKOFF,
) -> list[actions.Action]:
    """A delivery of these messages has failed."""
    again: list[list[int]] = []
    dead: list[list[int]] = []
    for lease in leases:
        if lease.attempt >= policy.limit:
            dead.append([lease.first, lease.size, lease.attempt])
        else:
            due = _due(policy, lease.attempt, now_ms, delay)
            again.append([lease.first, lease.size, lease.attempt + 1, due])
    made: list[actions.Action] = []
    if again:
        made.append(actions.Retry(gid, subject_id, slot, again))
    if dead:
        made.append(actions.Doom(gid, subject_id, slot, dead, ATTEMPTS, ""))
    return made


def _due(policy: RetryPolicy, attempt: int, now_ms: int, delay: Delay) -> int:
    if delay is Delay.NONE or (delay is Delay.LOST and attempt == 1):
        return 0
    backoff = policy.backoff(attempt)
    return now_ms + backoff if backoff else 0


class Refused(ValueError):
    """Why a command cannot be obeyed."""


def fail(
    groups: Groups,
    group: Group,
    subject_id: int,
    offset: int,
    *,
    readable_end: int,
    reject: bool,
    after_ms: int | None,
    reason: str,
    policy: RetryPolicy,
    now_ms: int,
) -> list[actions.Action]:
    """A client says that it could not handle a message, by the offset that it saw. Nothing to do: it has
    said so before. Raises Refused."""
    slot, lease = _find(groups, group, subject_id, offset, readable_end)
    if lease is None:
        return []
    if reject or lease.attempt >= policy.limit:
        progress = group.progress.get(subject_id)
        if progress is not None and progress.done.holds(lease.first):
            return []
        ranges = [[lease.first, 1, lease.attempt]]
        why = REJECTED if reject else ATTEMPTS
        return [actions.Doom(group.id, subject_id, slot, ranges, why, reason)]
    wait = policy.backoff(lease.attempt) if after_ms is None else after_ms
    # Without a pull log it has to wait, at least until now: sharing begins without redeliveries.
    due = now_ms + wait if wait or not slot else 0
    return [actions.Retry(group.id, subject_id, slot, [[lease.first, 1, lease.attempt + 1, due]])]


def _find(
    groups: Groups, group: Group, subject_id: int, offset: int, readable_end: int
) -> tuple[int, Lease | None]:
    """The slot and the one message that an offset names; None: it was given back before."""
    progress, (slot, pull) = group.progress.get(subject_id), split_offset(offset)
    if slot:
        return slot, _find_pull(groups, group, subject_id, slot, pull, offset)
    if progress is None or not progress.shared:
        return 0, _find_plain(progress, offset, readable_end)
    for log in progress.pull_logs.values():
        if isinstance(log, ShareLog):
            for lease in log.find(offset, offset + 1):
                return log.slot, lease.part(offset - lease.first, 1)
    if _is_given_back(progress, offset):
        return 0, None
    if any(not isinstance(log, ShareLog) for log in progress.pull_logs.values()):
        raise Refused(
            f"the group shares the subject: {offset} is not an offset that one of its members saw. Use "
            "the offset of the record as the consumer got it"
        )
    raise Refused(f"no member of the group holds {offset}: it is acked, or was never delivered")


def _find_pull(
    groups: Groups, group: Group, subject_id: int, slot: int, pull: int, offset: int
) -> Lease | None:
    owner, log = groups.slots.get(subject_id, {}).get(slot, (None, None))
    if owner is not group or log is None or pull < log.begin or isinstance(log, ShareLog):
        raise Refused(
            f"{offset} is of a member that has left or rebalanced since: what it had not acked is "
            "delivered again in any case"
        )
    if pull >= log.next:
        raise Refused(f"{offset} was never delivered")
    found = _lease_at(log, pull)
    if found is None and pull < log.acked:
        raise Refused(f"{offset} is acked already. Wait for the answer before you commit past it")
    return found


def _lease_at(log: PullLog, pull: int) -> Lease | None:
    i = bisect_right(log.leases, pull, key=_pull) - 1
    if i < 0 or pull >= log.leases[i].end:
        return None
    return log.leases[i].part(pull - log.leases[i].pull, 1)


def _pull(lease: Lease) -> int:
    return lease.pull


def _find_plain(progress: Progress | None, offset: int, readable_end: int) -> Lease | None:
    """Nobody knows which messages were read with plain offsets: a Fetch does not say for which group it is.
    So a client is believed that names any message from the group's position on."""
    if offset >= readable_end:
        raise Refused(f"{offset} was never delivered: the subject ends at {readable_end}")
    if progress is None:
        return Lease(0, offset, 1, 1)
    if _is_given_back(progress, offset):
        return None
    if progress.committed and offset < (progress.position or 0):
        raise Refused(f"{offset} is acked already. Wait for the answer before you commit past it")
    return Lease(0, offset, 1, 1)


def _is_given_back(progress: Progress, sequence: int) -> bool:
    """Whether a message waits to be delivered again, or to become a dead letter."""
    return (
        progress.waiting.holds(sequence)
        or progress.redelivery.holds(sequence)
        or progress.is_doomed(sequence)
    )
