"""Share groups: members take messages, hold them until they ack them one by one, or until the lock ends.

What is handed out, and how much, is decided as for all sharing members (hand_outs.py). Three things differ:
the member sees sequences; what was handed out and did not fit into the answer is given back at once, since
nobody would ask for it again; and a member holds a message no longer than its lock lasts (locks.py).

    acquire        lease messages and read them
    acknowledge    accept, release, reject, renew; see core/delivery/acknowledge.py
    give_back_all  a member closes its session, or its connection is lost
    give_back_kept likewise, of a member that has left its group: its logs end too
    resume         after a start of the broker nobody holds anything: the sessions of all members ended
                   with their connections. That is not their fault, so no attempt counts
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.complaints import Complaints
from kumquat.core.delivery import actions
from kumquat.core.delivery.acknowledge import AckBatch, acknowledge
from kumquat.core.delivery.give_back import Delay, give_back
from kumquat.core.delivery.pull_log import Lease, ShareLog
from kumquat.core.delivery.sharing.hand_outs import HandOuts, Waiter
from kumquat.core.delivery.sharing.lease_reader import UNREADABLE, Loading
from kumquat.core.delivery.sharing.locks import Locks
from kumquat.core.errors import KumquatError, StorageError, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.sharing.locks import Ended
    from kumquat.core.delivery.sharing.service import Sharing
    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject

RETRY_MS = 1000
"""After the disk could not be read or written."""
LOCKS_AT_ONCE = 50
"""Runs of messages whose locks end in one step, before others have their turn."""

logger = logging.getLogger(__name__)


class Acquired(NamedTuple):
    records: list[bytes | memoryview]
    size: int
    ranges: list[tuple[int, int, int]]
    """First and last sequence, and which delivery it is."""
    waiter: Waiter | None = None
    """Where to wait for more, if there was nothing."""


NOT_NOW = Acquired([], 0, [])
"""The disk does not give it for now."""


class Shares:
    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._locks = Locks()
        self._complaints = Complaints(logger)
        self.expired_locks = 0
        self._from_before: list[tuple[int, int, ShareLog, int]] = []
        """Group, subject, log and its next pull sequence at the start of the broker: see `resume`."""

    # --- taking ----------------------------------------------------------------------------------

    async def acquire(
        self, subject: Subject, group: Group, log: ShareLog, *, most: int, limit: int, whole: bool
    ) -> Acquired:
        """Lease at most so many messages, of about so many bytes, and read them. `whole`: a few more, where
        that saves a batch from being cut."""
        hand_outs = self._sharing.hand_outs_of(group, subject)
        hand_outs.reads(log)
        while most > 0:
            given = _unread(log)  # it may have been given some while it waited
            if not given:
                if not hand_outs.give(log, limit, most, whole=whole):
                    break
                given = _unread(log)
            log.read = log.next
            few, more = _cut(given, most)
            if more and whole:
                few, more = _cut(given, most + _to_batch_end(hand_outs, few[-1], more[0]))
            if more:  # while it waited it could have taken them, if there were none elsewhere
                self._return_unread(group, subject, log, more, failed=False)
            acquired = await self._read(subject, group, log, few, limit)
            if acquired is NOT_NOW:
                break  # what comes next could not be read either
            if acquired is not None:
                return acquired
        return Acquired([], 0, [], Waiter(hand_outs, log, limit, most, whole))

    def return_unsent(self, waiter: Waiter) -> None:
        """A fetch has ended: what the member was given here while it waited, and is not sent, is for
        others. Its lock would run although nobody has it."""
        log, hand_outs = waiter.log, waiter.hand_outs
        if not isinstance(log, ShareLog) or log.read >= log.next:
            return
        unsent = [(lease.first, lease.behind) for lease in _unread(log)]
        log.read = log.next
        self._return_unread(hand_outs.group, hand_outs.subject, log, unsent, failed=False)

    def lock(self, pull: actions.Pull) -> None:
        """Messages were handed out."""
        group, log = self._sharing.groups.slots[pull.subject_id][pull.slot]
        assert isinstance(log, ShareLog)
        duration = self._sharing.config(group.name).share_record_lock_duration_ms
        until, at = self._sharing.now() + duration / 1000, pull.pull
        for first, size, _ in pull.ranges:
            self._locks.add(group.id, pull.subject_id, log, at, first, size, until)
            at += size
        self._set_timer()

    async def _read(
        self, subject: Subject, group: Group, log: ShareLog, given: list[Lease], limit: int
    ) -> Acquired | None:
        """None: there was no message among them."""
        sharing = self._sharing
        pulls = range(min(lease.pull for lease in given), max(lease.end for lease in given))
        loading = Loading(sharing.reader, subject, 0, given, limit)
        failed = False
        try:
            loading.run()
        except (WouldBlock, *UNREADABLE):
            try:
                await sharing.reader.finish(loading)
            except KumquatError as error:
                failed = True
                text = f"share group {group.name} cannot read {subject.name} for now: {error}"
                self._complaints.error((group.id, subject.id), text)
        if sharing.groups.slots.get(subject.id, {}).get(log.slot, (None, None))[1] is not log:
            return Acquired([], 0, [])  # the member is gone, or the subject
        if loading.lost:
            sharing.lose(group, subject, loading.lost)
        sharing.pass_over(group, subject, loading.holes)
        self._return_unread(group, subject, log, loading.unread(), failed or loading.stopped)
        if not loading.size:
            return NOT_NOW if failed or loading.stopped else None
        sharing.reader.weigh(subject, loading)
        ranges = [
            (lease.first, lease.behind - 1, lease.attempt)
            for lease in log.leases
            if lease.pull in pulls
        ]
        return Acquired(loading.buffers, loading.size, ranges)

    def _return_unread(
        self,
        group: Group,
        subject: Subject,
        log: ShareLog,
        unread: Iterable[tuple[int, int]],
        failed: bool,
    ) -> None:
        """What did not fit, or cannot be read for now, was not delivered."""
        due = self._sharing.now_ms() + RETRY_MS if failed else 0
        ranges = [
            [lease.first, lease.size, lease.attempt, due]
            for first, end in unread
            for lease in log.held(first, end)
        ]
        if ranges:
            self._sharing.append_soon([actions.Retry(group.id, subject.id, log.slot, ranges)])
            self._sharing.hand_outs_of(group, subject).feed_safely()

    # --- acks ------------------------------------------------------------------------------------

    def acknowledge(
        self, group: Group, subject: Subject, log: ShareLog, batches: Iterable[AckBatch]
    ) -> int:
        """All of them, or none; gives the position up to which the action log must be synced before the
        answer. Raises InvalidRecordState, InvalidRequest, StorageError."""
        sharing, progress = self._sharing, group.progress[subject.id]
        done = acknowledge(
            group.id,
            subject.id,
            progress,
            log,
            batches,
            sharing.retry_policy(group),
            earliest=subject.earliest,
            now_ms=sharing.now_ms(),
        )
        position = sharing.append(done.actions)
        if done.renewed:
            duration = sharing.config(group.name).share_record_lock_duration_ms
            until = self._sharing.now() + duration / 1000
            for first, end in done.renewed:
                self._locks.renew(log, first, end, until)
        return position

    def give_back_all(self, group: Group, member_id: str, *, lost: bool) -> int:
        """A member closes its session; `lost`: its connection broke. Gives the position to be synced."""
        changes: list[Action] = []
        member = group.members.get(member_id)
        self._sharing.policies.stop(group.id, member_id)
        delay = Delay.LOST if lost else Delay.NONE
        for subject_id, slot in member.holds.items() if member is not None else ():
            progress = group.progress.get(subject_id)
            log = None if progress is None else progress.pull_logs.get(slot)
            if log is not None and log.leases:
                changes += self._failed(group, subject_id, log, log.leases, delay)
        return self._sharing.append(changes)

    def give_back_kept(self, kept: Mapping[int, ShareLog], *, lost: bool) -> None:
        """A member that has left its group closes its session, or loses it: its logs end. By subject id."""
        changes: list[Action] = []
        delay = Delay.LOST if lost else Delay.NONE
        for subject_id, log in kept.items():
            group = self._left_by(subject_id, log)
            if group is not None:
                changes += self._failed(group, subject_id, log, log.leases, delay)
                changes.append(actions.Release(group.id, subject_id, log.slot))
        self._sharing.append(changes)

    def release(self, kept: Mapping[int, ShareLog]) -> None:
        """The broker stops, and nobody will come back to what a member kept that has left."""
        changes: list[Action] = [
            actions.Release(group.id, subject_id, log.slot)
            for subject_id, log in kept.items()
            if (group := self._left_by(subject_id, log)) is not None
        ]
        if changes:
            self._sharing.append_soon(changes)

    def owner(self, subject_id: int, log: ShareLog) -> Group | None:
        """The group that a log belongs to; None: the log has ended."""
        group, found = self._sharing.groups.slots.get(subject_id, {}).get(log.slot, (None, None))
        return group if found is log else None

    def _left_by(self, subject_id: int, log: ShareLog) -> Group | None:
        """The group of a log that no member has."""
        group = self.owner(subject_id, log)
        member = None if group is None else group.members.get(log.member_id)
        is_held = member is not None and member.holds.get(subject_id) == log.slot
        return None if is_held else group

    def _failed(
        self, group: Group, subject_id: int, log: object, leases: Iterable[Lease], delay: Delay
    ) -> list[Action]:
        assert isinstance(log, ShareLog)
        sharing = self._sharing
        policy, now_ms = sharing.retry_policy(group), sharing.now_ms()
        return give_back(group.id, subject_id, log.slot, leases, policy, now_ms, delay)

    # --- time ------------------------------------------------------------------------------------

    def feed(self) -> None:
        """Locks have ended (timers.py)."""
        if self._from_before:
            self._release_from_before()
        now = self._sharing.now()
        for ended in self._locks.end(now, LOCKS_AT_ONCE):
            try:
                self._give_back(ended)
            except StorageError as error:
                text = f"locks of share groups have ended, and that cannot be written: {error}"
                self._complaints.error("locks", text)
                self._locks.postpone(ended, now + RETRY_MS / 1000)
            except Exception:  # of one group; the locks of all must still end
                logger.exception("the end of locks of group %d failed", ended.gid)
                self._locks.postpone(ended, now + RETRY_MS / 1000)
        self._set_timer()

    def _give_back(self, ended: Ended) -> None:
        group = self._sharing.groups.by_id.get(ended.gid)
        progress = None if group is None else group.progress.get(ended.subject_id)
        if group is None or progress is None:
            return
        if progress.pull_logs.get(ended.log.slot) is ended.log:
            changes = self._failed(group, ended.subject_id, ended.log, ended.leases, Delay.BACKOFF)
            self._sharing.append(changes)
            self.expired_locks += sum(lease.size for lease in ended.leases)

    def _set_timer(self) -> None:
        if self._locks.next is not None:
            left = max(0.0, self._locks.next - self._sharing.now())
            self._sharing.timers.set(self, self._sharing.now_ms() + int(left * 1000) + 1)

    def resume(self) -> None:
        """The broker has started."""
        self._from_before = [
            (group.id, subject_id, log, log.next)
            for group in self._sharing.groups.by_id.values()
            for subject_id, progress in group.progress.items()
            for log in progress.pull_logs.values()
            if isinstance(log, ShareLog) and log.leases
        ]
        self._release_from_before()

    def _release_from_before(self) -> None:
        """Give back what members held before the start: they do not know of it. If that cannot be written,
        it is tried again, since no lock ends for it."""
        changes: list[Action] = []
        for gid, subject_id, log, end in self._from_before:
            if self._sharing.groups.slots.get(subject_id, {}).get(log.slot, (None, None))[1] is log:
                ranges = [
                    [one.first, one.size, one.attempt, 0] for one in log.leases if one.pull < end
                ]
                if ranges:
                    changes.append(actions.Retry(gid, subject_id, log.slot, ranges))
        if changes and not self._sharing.append_soon(changes):
            self._sharing.timers.set(self, self._sharing.now_ms() + RETRY_MS)
        else:
            self._from_before = []


def _cut(given: list[Lease], most: int) -> tuple[list[Lease], list[tuple[int, int]]]:
    """The first so many messages, and the others: first and end of each run."""
    kept: list[Lease] = []
    more: list[tuple[int, int]] = []
    for lease in given:
        size = min(lease.size, most)
        most -= size
        if size:
            kept.append(lease if size == lease.size else lease.part(0, size))
        if size < lease.size:
            more.append((lease.first + size, lease.behind))
    return kept, more


def _to_batch_end(hand_outs: HandOuts, last: Lease, more: tuple[int, int]) -> int:
    """How many messages more complete the batch in which `last` ends, if the next run has them all."""
    end = hand_outs.batch_end(last.behind - 1)
    if end is None or more[0] != last.behind or end > more[1]:
        return 0
    return end - last.behind


def _unread(log: ShareLog) -> list[Lease]:
    """What the member was given and has not been sent."""
    return [lease for lease in log.leases if lease.pull >= log.read]
