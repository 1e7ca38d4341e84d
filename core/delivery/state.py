"""Groups as the action log knows them: members, positions, pull logs. Changes in `apply` alone.

Per group and subject there is a Progress. While the group reads with plain offsets it is a position and
no more. While it shares, `cursor` is the next sequence never delivered; below it everything is acked,
except what is leased (in a pull log) or waits to be delivered again (`redelivery`). So its size grows
with unacked ranges, never with what was consumed.

A pull log numbers what one member was given: pull sequences grow by one with each message, and each
lease maps a run of them onto a run of sequences. Slots number the pull logs of a subject, over all its
groups: `slot << 48 | pull sequence` is the offset that the member sees.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from core.delivery import actions
from core.delivery.actions import Action
from core.delivery.ranges import Range, Ranges

SLOT_SHIFT = 48
MAX_SLOT = (1 << 15) - 1
FIRST_PULL = 1 << 24
"""Pull logs begin here: the base offset of a cut batch may lie below its first record."""
JUMP = 1 << 24
ROUND_SHIFT = 40
"""When all slots of a subject were used once, pull logs begin this much higher in the next round."""


def pull_offset(slot: int, pull: int) -> int:
    return slot << SLOT_SHIFT | pull


def split_offset(offset: int) -> tuple[int, int]:
    """Slot and pull sequence; slot 0 is a plain offset."""
    return offset >> SLOT_SHIFT, offset & (1 << SLOT_SHIFT) - 1


class Lease(NamedTuple):
    """Messages `first` … of the subject, given as pull sequences `pull` …"""

    pull: int
    first: int
    size: int
    attempt: int


@dataclass(slots=True)
class Member:
    """A member of a group, as far as a restart of the broker must not forget it."""

    id: str
    generation: int
    """Of this member alone (a KIP-848 member's epoch): members need not agree."""
    kind: str
    """`eager`, `cooperative`, `consumer` (KIP-848), or `client` where a client assigns."""
    client_id: str
    host: str
    session_ms: int
    rebalance_ms: int
    instance_id: str | None = None
    subscription: list[str] = field(default_factory=list)
    pattern: str | None = None
    protocol: str = ""
    metadata: str = ""
    """Base64 of what the member said in its JoinGroup, shown by DescribeGroups."""
    assignment: str = ""
    """Base64, where a client assigns."""
    holds: dict[int, int] = field(default_factory=dict)
    """Subject id → 0 for plain offsets, else the slot of its pull log."""


class PullLog:
    __slots__ = ("acked", "leases", "member_id", "next", "slot")

    def __init__(self, slot: int, member_id: str, pull: int) -> None:
        self.slot = slot
        self.member_id = member_id
        self.acked = pull
        """The first pull sequence that is not acked."""
        self.next = pull
        self.leases: deque[Lease] = deque()
        """Unacked, by pull sequence; after an unclean start there may be gaps between them."""

    @property
    def unacked(self) -> int:
        return sum(lease.size for lease in self.leases)


class Progress:
    __slots__ = ("cursor", "epoch", "metadata", "position", "pull_logs", "redelivery", "shared")

    def __init__(self) -> None:
        self.position: int | None = None
        """What was committed with plain offsets; None when nothing ever was."""
        self.epoch = -1
        self.metadata = ""
        self.shared = False
        self.cursor = 0
        self.pull_logs: dict[int, PullLog] = {}
        self.redelivery = Ranges()

    def lowest_unacked(self) -> int | None:
        """The group's position in sequences: what lag tools are told."""
        if not self.shared:
            return self.position
        lowest = [lease.first for log in self.pull_logs.values() for lease in log.leases]
        if self.redelivery.lowest is not None:
            lowest.append(self.redelivery.lowest)
        return min(lowest, default=self.cursor)

    @property
    def settled(self) -> bool:
        """Nothing below the cursor is unacked."""
        return not len(self.redelivery) and not any(log.leases for log in self.pull_logs.values())


class Group:
    __slots__ = ("generation", "id", "members", "name", "progress", "snapshot")

    def __init__(self, group_id: int, name: str) -> None:
        self.id = group_id
        self.name = name
        self.members: dict[str, Member] = {}
        self.progress: dict[int, Progress] = {}
        self.generation = 0
        """The highest that a member was given."""
        self.snapshot = 0
        """The last segment of the action log that holds this group's state."""


class Groups:
    """All groups, and which slots are taken. `apply` is the only way to change them."""

    def __init__(self) -> None:
        self.by_id: dict[int, Group] = {}
        self.by_name: dict[str, Group] = {}
        self.next_id = 1
        self.slots: dict[int, dict[int, tuple[Group, PullLog]]] = {}
        """Subject id → slot → whose it is."""
        self.slots_given: dict[int, int] = {}
        """Subject id → how many slots it ever gave: no pull offset may name two messages, ever."""
        self.clean = True
        """Whether the last action was a clean stop."""

    def apply(self, action: Action) -> None:
        self.clean = action[0] == actions.STOPPED
        getattr(self, f"_{action[0]}")(*action[1:])

    # --- groups and members ----------------------------------------------------------------------

    def _group(self, group_id: int, name: str) -> None:
        if group_id in self.by_id:  # a snapshot's word on a group that is known
            self._forget(group_id)
        group = self.by_id[group_id] = self.by_name[name] = Group(group_id, name)
        self.next_id = max(self.next_id, group.id + 1)

    def _forget(self, group_id: int) -> None:
        group = self.by_id.pop(group_id)
        for subject_id in list(group.progress):
            self._free_slots(group, subject_id)
        if self.by_name.get(group.name) is group:
            del self.by_name[group.name]

    def _member(self, group_id: int, fields: dict[str, Any]) -> None:
        member = Member(**fields)
        member.holds = {int(subject): slot for subject, slot in member.holds.items()}
        group = self.by_id[group_id]
        group.members[member.id] = member
        group.generation = max(group.generation, member.generation)

    def _left(self, group_id: int, member_id: str) -> None:
        self.by_id[group_id].members.pop(member_id, None)

    # --- positions -------------------------------------------------------------------------------

    def _progress(self, group_id: int, subject_id: int) -> Progress:
        return self.by_id[group_id].progress.setdefault(subject_id, Progress())

    def _commit(self, gid: int, sid: int, sequence: int, epoch: int, metadata: str) -> None:
        progress = self._progress(gid, sid)
        progress.position, progress.epoch, progress.metadata = sequence, epoch, metadata

    def _share(self, gid: int, sid: int, sequence: int) -> None:
        progress = self._progress(gid, sid)
        progress.shared = True
        progress.cursor = sequence

    def _unshare(self, gid: int, sid: int) -> None:
        group, progress = self.by_id[gid], self._progress(gid, sid)
        assert progress.settled
        self._free_slots(group, sid)
        progress.shared = False
        progress.position, progress.epoch = progress.cursor, -1

    def _drop(self, gid: int, sid: int) -> None:
        group = self.by_id[gid]
        self._free_slots(group, sid)
        group.progress.pop(sid, None)

    def _expire(self, gid: int, sid: int, sequence: int) -> None:
        progress = self._progress(gid, sid)
        if progress.position is not None:
            progress.position = max(progress.position, sequence)
        progress.cursor = max(progress.cursor, sequence)
        progress.redelivery.remove_below(sequence)
        for log in progress.pull_logs.values():
            log.leases = deque(
                _above(lease, sequence)
                for lease in log.leases
                if lease.first + lease.size > sequence
            )

    # --- pull logs -------------------------------------------------------------------------------

    def _slot(self, gid: int, sid: int, slot: int, member_id: str, pull: int) -> None:
        group = self.by_id[gid]
        log = self._progress(gid, sid).pull_logs[slot] = PullLog(slot, member_id, pull)
        self.slots.setdefault(sid, {})[slot] = (group, log)
        self.slots_given[sid] = max(self.slots_given.get(sid, 0), _ordinal(slot, pull))

    def _pull(self, gid: int, sid: int, slot: int, pull: int, given: list[list[int]]) -> None:
        progress = self.by_id[gid].progress[sid]
        log = progress.pull_logs[slot]
        for first, size, attempt in given:
            if first >= progress.cursor:
                progress.cursor = first + size
            else:
                progress.redelivery.remove(first, size)
            log.leases.append(Lease(pull, first, size, attempt))
            pull += size
        log.next = pull

    def _ack(self, gid: int, sid: int, slot: int, pull: int) -> None:
        log = self.by_id[gid].progress[sid].pull_logs[slot]
        log.acked = max(log.acked, pull)
        leases = log.leases
        while leases and leases[0].pull < pull:
            lease = leases.popleft()
            left = lease.pull + lease.size - pull
            if left > 0:
                done = lease.size - left
                leases.appendleft(Lease(pull, lease.first + done, left, lease.attempt))

    def _release(self, gid: int, sid: int, slot: int) -> None:
        progress = self.by_id[gid].progress[sid]
        log = progress.pull_logs.pop(slot)
        for lease in log.leases:
            progress.redelivery.add(Range(lease.first, lease.size, lease.attempt + 1))
        del self.slots[sid][slot]

    def _free_slots(self, group: Group, subject_id: int) -> None:
        progress = group.progress.get(subject_id)
        if progress is not None:
            for slot in progress.pull_logs:
                del self.slots[subject_id][slot]
            progress.pull_logs = {}

    # --- starts and stops ------------------------------------------------------------------------

    def _jump(self, distance: int) -> None:
        for group in self.by_id.values():
            for progress in group.progress.values():
                for log in progress.pull_logs.values():
                    log.next += distance

    def _slots(self, sid: int, given: int) -> None:
        """In snapshots: how many slots a subject has given."""
        self.slots_given[sid] = given

    def _stopped(self) -> None:
        pass

    # --- snapshots -------------------------------------------------------------------------------

    def snapshot(self, group: Group) -> list[Action]:
        """The actions that make this group as it is, from nothing."""
        made: list[Action] = [(actions.GROUP, group.id, group.name)]
        made += [(actions.MEMBER, group.id, asdict(m)) for m in group.members.values()]
        for sid, progress in group.progress.items():
            made += self._snapshot_progress(group.id, sid, progress)
        return made

    def _snapshot_progress(self, gid: int, sid: int, progress: Progress) -> list[Action]:
        made: list[Action] = []
        if progress.position is not None:
            made.append(
                (actions.COMMIT, gid, sid, progress.position, progress.epoch, progress.metadata)
            )
        if not progress.shared:
            return made
        made.append((actions.SHARE, gid, sid, progress.cursor))
        made += [(actions.AGAIN, gid, sid, *r) for r in progress.redelivery]
        for log in progress.pull_logs.values():
            leases = [list(lease) for lease in log.leases]
            made.append(
                (actions.LOG, gid, sid, log.slot, log.member_id, log.acked, log.next, leases)
            )
        return made

    def _again(self, gid: int, sid: int, first: int, size: int, attempt: int) -> None:
        """In snapshots: messages that wait to be delivered again."""
        self._progress(gid, sid).redelivery.add(Range(first, size, attempt))

    def _log(
        self,
        gid: int,
        sid: int,
        slot: int,
        member_id: str,
        acked: int,
        following: int,
        leases: list[list[int]],
    ) -> None:
        """In snapshots: a pull log as it is."""
        self._slot(gid, sid, slot, member_id, acked)
        log = self.by_id[gid].progress[sid].pull_logs[slot]
        log.next = following
        log.leases = deque(Lease(*lease) for lease in leases)


def next_slot(given: int) -> tuple[int, int]:
    """The slot after that many, and where its pull log begins: higher in each round over the slots."""
    return given % MAX_SLOT + 1, FIRST_PULL + (given // MAX_SLOT << ROUND_SHIFT)


def _ordinal(slot: int, pull: int) -> int:
    """How many slots had been given with this one."""
    return (pull - FIRST_PULL >> ROUND_SHIFT) * MAX_SLOT + slot


def _above(lease: Lease, sequence: int) -> Lease:
    gone = max(0, sequence - lease.first)
    return Lease(lease.pull + gone, lease.first + gone, lease.size - gone, lease.attempt)
