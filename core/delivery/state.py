"""Groups as the action log knows them: members, positions, pull logs. Changes in `apply` alone.

What a group has of each subject is a Progress (progress.py). Here is whose it is, which slots are taken,
and which numbers were ever given out.

A slot is a number of 15 bits, so it is used again when all have been used; never while it is taken. What
must not come again is a pull offset. So a new pull log begins above all that any pull log of the subject
has reached, and above what one may have reached that an unclean stop has erased from the log: `_jump`
raises the floor, also for subjects of which nothing is known.

Two things are remembered for the sake of time (lifetimes.py says what comes of them): since when a group
has been empty and when it committed; and for how long a member has been silent since the broker started,
summed over starts, until it is heard.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.progress import Doomed, Progress
from kumquat.core.delivery.pull_log import (
    FIRST_PULL,
    JUMP,
    MAX_PULL,
    MAX_SLOT,
    SHARE_PULL,
    Lease,
    PullLog,
    ShareLog,
    pull_offset,
    split_offset,
)
from kumquat.core.delivery.ranges import Range
from kumquat.core.delivery.waiting import Waiting
from kumquat.core.errors import GroupMaxSizeReached

__all__ = [
    "FIRST_PULL",
    "JUMP",
    "MAX_SLOT",
    "SHARE",
    "Group",
    "Groups",
    "Lease",
    "Member",
    "Progress",
    "PullLog",
    "ShareLog",
    "SlotNumbers",
    "pull_offset",
    "split_offset",
]


SHARE = "share"
"""The kind of a member of a share group (KIP-932)."""


@dataclass(slots=True)
class Member:
    """A member of a group, as far as a restart of the broker must not forget it."""

    id: str
    generation: int
    """Of this member alone (a KIP-848 member's epoch): members need not agree."""
    kind: str
    """`eager`, `cooperative`, `consumer` (KIP-848), `share` (KIP-932), or `client` where a client
    assigns."""
    client_id: str
    host: str
    session_ms: int
    rebalance_ms: int
    instance_id: str | None = None
    subscription: list[str] = field(default_factory=list)
    pattern: str | None = None
    rack: str | None = None
    protocol_type: str = "consumer"
    protocol: str = ""
    software: str = ""
    """What its client is: its name, and its version if that is known. Empty where it was stored before
    that was."""
    metadata: str = ""
    """Base64 of what the member said in its JoinGroup, shown by DescribeGroups."""
    assignment: str = ""
    """Base64, where a client assigns."""
    leader: bool = False
    """Where a client assigns: it is this one."""
    holds: dict[int, int] = field(default_factory=dict)
    """Subject id → 0 for plain offsets, else the slot of its pull log."""


class Group:
    __slots__ = (
        "empty_since",
        "generation",
        "id",
        "last_kind",
        "last_protocol_type",
        "members",
        "name",
        "progress",
        "snapshot",
    )

    def __init__(self, group_id: int, name: str) -> None:
        self.id = group_id
        self.name = name
        self.members: dict[str, Member] = {}
        self.progress: dict[int, Progress] = {}
        self.generation = 0
        """The highest that a member was given."""
        self.snapshot = -1
        """The base of the last segment of the action log that holds this group's state."""
        self.last_kind = self.last_protocol_type = ""
        """Of the member that was the last to leave; empty: there was none yet."""
        self.empty_since = 0
        """When that was, ms since the epoch."""

    @property
    def dying(self) -> int:
        """How many messages are to become dead letters."""
        return sum(progress.dying for progress in self.progress.values() if progress.doomed)

    @property
    def is_share(self) -> bool:
        """Whether it is a share group; one without members stays what it was."""
        return next((m.kind for m in self.members.values()), self.last_kind) == SHARE


@dataclass(slots=True)
class SlotNumbers:
    """What a subject has given out: neither ever goes back."""

    given: int = 0
    """How many slots, those counted that were passed over because they were taken."""
    top: int = 0
    """No pull log that is gone has reached it."""


class Groups:
    """All groups, and which slots are taken. `apply` is the only way to change them."""

    def __init__(self) -> None:
        self.by_id: dict[int, Group] = {}
        self.by_name: dict[str, Group] = {}
        self.next_id = 1
        self.slots: dict[int, dict[int, tuple[Group, PullLog]]] = {}
        """Subject id → slot → whose it is."""
        self.numbers: dict[int, SlotNumbers] = {}
        """By subject id."""
        self.floor = FIRST_PULL
        """No pull log may begin below."""
        self.joined = 0
        """The frames of the message log below this position that settle something are applied."""
        self.clean = True
        """Whether the last action was a clean stop."""
        self.now_ms = 0
        """When what is being applied was done: the time in the header of its frame."""
        self.silent: dict[tuple[int, str], int] = {}
        """Group and member that was not heard since the last start → for how many ms of serving."""
        self._appliers: dict[type[Action], Callable[..., None]] = {
            actions.Group: self._group,
            actions.Forget: self._forget,
            actions.Member: self._member,
            actions.Left: self._left,
            actions.Commit: self._commit,
            actions.Share: self._share,
            actions.Unshare: self._unshare,
            actions.InOrder: self._in_order,
            actions.Slot: self._slot,
            actions.Pull: self._pull,
            actions.Ack: self._ack,
            actions.Accept: self._accept,
            actions.Retry: self._retry,
            actions.Doom: self._doom,
            actions.Settle: self._settle,
            actions.Joined: self._joined,
            actions.Release: self._release,
            actions.Expire: self._expire,
            actions.Lost: self._lost,
            actions.Holes: self._holes,
            actions.Drop: self._drop,
            actions.Gone: self._gone,
            actions.Heard: self._heard,
            actions.Silent: self._silent,
            actions.Jump: self._jump,
            actions.Numbers: self._numbers,
            actions.Slots: self._slots,
            actions.Again: self._again,
            actions.Waits: self._waits,
            actions.Doomed: self._doomed,
            actions.Expired: self._expired,
            actions.Emptied: self._emptied,
            actions.Committed: self._committed,
            actions.Silence: self._silence,
            actions.Log: self._log,
            actions.Stopped: self._stopped,
            actions.Unknown: self._unknown,
        }

    def apply(self, action: Action) -> None:
        """Raises, with nothing changed, when the action does not fit what is known."""
        kind = type(action)
        self.clean = kind is actions.Stopped
        self._appliers[kind](*action)

    # --- groups and members ----------------------------------------------------------------------

    def _group(self, gid: int, name: str, generation: int | None) -> None:
        """A new group; or one in a snapshot, which replaces what is known of it."""
        for known in (self.by_id.get(gid), self.by_name.get(name)):
            if known is not None and known.id in self.by_id:
                self._forget(known.id)
        group = self.by_id[gid] = self.by_name[name] = Group(gid, name)
        group.generation = generation or 0
        self.next_id = max(self.next_id, gid + 1)

    def _forget(self, gid: int) -> None:
        group = self.by_id.pop(gid)
        for subject_id in list(group.progress):
            self._free_slots(group, subject_id)
        for member_id in group.members:
            self.silent.pop((gid, member_id), None)
        del self.by_name[group.name]

    def _member(self, gid: int, fields: dict[str, Any]) -> None:
        group, member = self.by_id[gid], Member(**fields)
        member.holds = {int(subject): slot for subject, slot in member.holds.items()}
        group.members[member.id] = member
        group.generation = max(group.generation, member.generation)

    def _left(self, gid: int, member_id: str) -> None:
        group = self.by_id[gid]
        member = group.members.pop(member_id, None)
        self.silent.pop((gid, member_id), None)
        if member is not None and not group.members:
            self._emptied(gid, member.kind, member.protocol_type, self.now_ms)

    def _emptied(self, gid: int, kind: str, protocol_type: str, since: int) -> None:
        group = self.by_id[gid]
        group.last_kind, group.last_protocol_type, group.empty_since = kind, protocol_type, since

    # --- silence ---------------------------------------------------------------------------------

    def _heard(self, gid: int, member_id: str) -> None:
        self.silent.pop((gid, member_id), None)

    def _silent(self, milliseconds: int) -> None:
        for key in self.silent:
            self.silent[key] += milliseconds

    def _silence(self, gid: int, silences: dict[str, int]) -> None:
        self.silent.update({(gid, member_id): ms for member_id, ms in silences.items()})

    # --- positions -------------------------------------------------------------------------------

    def _progress(self, gid: int, subject_id: int) -> Progress:
        return self.by_id[gid].progress.setdefault(subject_id, Progress())

    def _commit(self, gid: int, subject_id: int, sequence: int, epoch: int, metadata: str) -> None:
        progress = self._progress(gid, subject_id)
        progress.commit(sequence, epoch, metadata)
        progress.committed_at = self.now_ms

    def _committed(self, gid: int, subject_id: int, at: int) -> None:
        self._progress(gid, subject_id).committed_at = at

    def _share(self, gid: int, subject_id: int, sequence: int) -> None:
        progress = self._progress(gid, subject_id)
        progress.begin_sharing(sequence)
        progress.committed_at = self.now_ms

    def _unshare(self, gid: int, subject_id: int, sequence: int | None) -> None:
        group, progress = self.by_id[gid], self._progress(gid, subject_id)
        if sequence is None and not progress.settled:
            raise ValueError(f"subject {subject_id} of group {gid} has unacked messages")
        self._free_slots(group, subject_id)
        progress.end_sharing(progress.cursor if sequence is None else sequence)
        if sequence is not None:
            progress.committed_at = self.now_ms

    def _in_order(self, gid: int, subject_id: int, sequence: int) -> None:
        progress = self._progress(gid, subject_id)
        for slot in list(progress.pull_logs):
            self._release(gid, subject_id, slot)
        progress.read_in_order(sequence)
        progress.committed_at = self.now_ms

    def _drop(self, gid: int, subject_id: int, doomed: int | None) -> None:
        group = self.by_id[gid]
        self._free_slots(group, subject_id)
        progress = group.progress.pop(subject_id, None)
        if progress is not None and doomed is not None:
            kept = Progress()
            kept.add_doomed_below(doomed, progress.doomed.values())
            if kept.doomed:
                group.progress[subject_id] = kept

    def _gone(self, subject_id: int) -> None:
        for group in self.by_id.values():
            group.progress.pop(subject_id, None)
            for member in group.members.values():
                member.holds.pop(subject_id, None)
        self.slots.pop(subject_id, None)
        self.numbers.pop(subject_id, None)

    def _expire(self, gid: int, subject_id: int, sequence: int) -> None:
        self._progress(gid, subject_id).expire(sequence)

    def _lost(self, gid: int, subject_id: int, first: int, size: int) -> None:
        self.by_id[gid].progress[subject_id].lose(first, first + size)

    def _holes(self, gid: int, subject_id: int, first: int, size: int) -> None:
        self.by_id[gid].progress[subject_id].pass_over(first, first + size)

    # --- pull logs -------------------------------------------------------------------------------

    def next_slot(self, subject_id: int) -> tuple[int, int]:
        """A free slot of a subject, and where a pull log in it begins."""
        numbers, taken = self.numbers.get(subject_id, SlotNumbers()), self.slots.get(subject_id, {})
        begin = max(numbers.top, self.floor)
        for given in range(numbers.given, numbers.given + MAX_SLOT):
            if given % MAX_SLOT + 1 not in taken and begin <= MAX_PULL // 2:
                return given % MAX_SLOT + 1, begin
        raise GroupMaxSizeReached(f"all {MAX_SLOT} slots of subject {subject_id} are taken")

    def _slot(self, gid: int, subject_id: int, slot: int, member_id: str, pull: int) -> None:
        self._open(self.by_id[gid], subject_id, _log_at(slot, member_id, pull))
        numbers = self.numbers[subject_id]
        numbers.given += (slot - 1 - numbers.given) % MAX_SLOT + 1

    def _open(self, group: Group, subject_id: int, log: PullLog) -> None:
        taken = self.slots.get(subject_id, {}).get(log.slot)
        if taken is not None:  # its release was lost with a damaged frame
            self._release(taken[0].id, subject_id, log.slot)
        self._progress(group.id, subject_id).pull_logs[log.slot] = log
        self.slots.setdefault(subject_id, {})[log.slot] = (group, log)
        self.numbers.setdefault(subject_id, SlotNumbers())

    def _pull(
        self, gid: int, subject_id: int, slot: int, pull: int, given: list[list[int]]
    ) -> None:
        progress = self.by_id[gid].progress[subject_id]
        progress.lease(progress.pull_logs[slot], pull, given, self.now_ms)

    def _ack(self, gid: int, subject_id: int, slot: int, pull: int) -> None:
        progress = self.by_id[gid].progress[subject_id]
        progress.pull_logs[slot].ack(pull)
        progress.committed_at = self.now_ms

    def _accept(self, gid: int, subject_id: int, slot: int, ranges: list[list[int]]) -> None:
        progress = self.by_id[gid].progress[subject_id]
        progress.accept(slot, ranges)
        progress.committed_at = self.now_ms

    def _retry(self, gid: int, subject_id: int, slot: int, ranges: list[list[int]]) -> None:
        self._progress(gid, subject_id).retry(slot, ranges, self.now_ms)

    def _doom(
        self, gid: int, subject_id: int, slot: int, ranges: list[list[int]], reason: str, text: str
    ) -> None:
        self._progress(gid, subject_id).doom(slot, ranges, reason, text, self.now_ms)

    def _settle(self, gid: int, subject_id: int, ranges: list[list[int]]) -> None:
        self._progress(gid, subject_id).settle(ranges)

    def _joined(self, position: int) -> None:
        self.joined = max(self.joined, position)

    def _release(self, gid: int, subject_id: int, slot: int) -> None:
        self._free(subject_id, self.by_id[gid].progress[subject_id].release(slot))

    def _free(self, subject_id: int, log: PullLog) -> None:
        """The slot is free for another pull log, which begins higher."""
        del self.slots[subject_id][log.slot]
        numbers = self.numbers[subject_id]
        numbers.top = max(numbers.top, log.next + 1)

    def _free_slots(self, group: Group, subject_id: int) -> None:
        progress = group.progress.get(subject_id)
        if progress is not None:
            for log in progress.pull_logs.values():
                self._free(subject_id, log)
            progress.pull_logs = {}

    # --- starts and stops ------------------------------------------------------------------------

    def _jump(self, distance: int) -> None:
        for group in self.by_id.values():
            for member_id in group.members:
                self.silent.setdefault((group.id, member_id), 0)
        self.floor += distance
        for numbers in self.numbers.values():
            numbers.top += distance
        for logs in self.slots.values():
            for _, log in logs.values():
                log.leap(distance)

    def _stopped(self) -> None:
        pass

    def _unknown(self, found: list[Any]) -> None:
        raise ValueError(f"{found} is no action")

    # --- snapshots -------------------------------------------------------------------------------

    def snapshot(self, group: Group) -> list[Action]:
        """The actions that make this group as it is, from nothing."""
        made: list[Action] = [actions.Group(group.id, group.name, group.generation)]
        made += [actions.Member(group.id, asdict(m)) for m in group.members.values()]
        silences = {
            m: self.silent[group.id, m] for m in group.members if (group.id, m) in self.silent
        }
        if silences:
            made.append(actions.Silence(group.id, silences))
        if group.last_kind:
            made.append(
                actions.Emptied(
                    group.id, group.last_kind, group.last_protocol_type, group.empty_since
                )
            )
        for subject_id, progress in group.progress.items():
            made += self._snapshot_progress(group.id, subject_id, progress)
            made.append(actions.Committed(group.id, subject_id, progress.committed_at))
        return made

    def _snapshot_progress(self, gid: int, subject_id: int, progress: Progress) -> list[Action]:
        made: list[Action] = []
        if progress.position is not None:
            made.append(
                actions.Commit(
                    gid, subject_id, progress.position, progress.epoch, progress.metadata
                )
            )
        if progress.done.total:
            made.append(actions.Settle(gid, subject_id, [[r.first, r.size] for r in progress.done]))
        if progress.shared:
            made.append(actions.Share(gid, subject_id, progress.cursor))
        if progress.expired:
            made.append(actions.Expired(gid, subject_id, progress.expired))
        made += [actions.Again(gid, subject_id, *r) for r in progress.redelivery]
        if len(progress.waiting):
            packed = b64encode(progress.waiting.pack()).decode()
            made.append(actions.Waits(gid, subject_id, packed))
        made += [actions.Doomed(gid, subject_id, *each) for each in progress.doomed.values()]
        for log in progress.pull_logs.values():
            leases = [list(lease) for lease in log.leases]
            numbers = [log.begin, log.acked, log.next]
            gaps = [list(gap) for gap in log.gaps]
            made.append(
                actions.Log(gid, subject_id, log.slot, log.member_id, numbers, gaps, leases)
            )
        return made

    def snapshot_slots(self, subject_id: int) -> Action:
        """What the subject has given out; pull logs that are alive count as if they ended now."""
        numbers = self.numbers[subject_id]
        live = [log.next + 1 for _, log in self.slots.get(subject_id, {}).values()]
        return actions.Slots(subject_id, numbers.given, max([numbers.top, *live]))

    def _numbers(self, next_id: int, floor: int, joined: int) -> None:
        self.next_id = max(self.next_id, next_id)
        self.floor = max(self.floor, floor)
        self._joined(joined)

    def _slots(self, subject_id: int, given: int, top: int) -> None:
        numbers = self.numbers.setdefault(subject_id, SlotNumbers())
        numbers.given = max(numbers.given, given)
        numbers.top = max(numbers.top, top)

    def _again(
        self, gid: int, subject_id: int, first: int, size: int, attempt: int, since: int
    ) -> None:
        self._progress(gid, subject_id).redelivery.add(Range(first, size, attempt, since))

    def _waits(self, gid: int, subject_id: int, packed: str) -> None:
        self._progress(gid, subject_id).waiting = Waiting.unpack(b64decode(packed))

    def _doomed(self, gid: int, subject_id: int, first: int, *rest: Any) -> None:
        self._progress(gid, subject_id).add_doomed(Doomed(first, *rest))

    def _expired(self, gid: int, subject_id: int, count: int) -> None:
        self._progress(gid, subject_id).expired = count

    def _log(
        self,
        gid: int,
        subject_id: int,
        slot: int,
        member_id: str,
        numbers: list[int],
        gaps: list[list[int]],
        leases: list[list[int]],
    ) -> None:
        log = _log_at(slot, member_id, numbers[0])
        for lease in leases:
            log.give(Lease(*lease))
        log.gaps = [(low, high) for low, high in gaps]
        _, log.acked, log.next = numbers
        self._open(self.by_id[gid], subject_id, log)


def _log_at(slot: int, member_id: str, begin: int) -> PullLog:
    return ShareLog(slot, member_id) if begin == SHARE_PULL else PullLog(slot, member_id, begin)
