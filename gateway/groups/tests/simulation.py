"""A broker of nothing but groups: subjects, a clock, an action log in a list, and a delivery that
hands out a few messages at a time. `restart` builds all of it again from the list. Its clients:
clients.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.give_back import RetryPolicy
from kumquat.core.delivery.ranges import Range
from kumquat.core.delivery.state import JUMP, Group, Groups, split_offset
from kumquat.core.errors import StorageError
from kumquat.core.logs.messages.subject import Subject, SubjectConfig, Subjects
from kumquat.gateway.groups.coordinator import Coordinator
from kumquat.gateway.groups.membership.members import Limits
from kumquat.gateway.groups.membership.roster import Step
from kumquat.gateway.groups.tests.checked import Checked, Twin, stored
from kumquat.meta.group_configs import GroupConfig, effective_group

GROUP = "g"
SESSION_MS, REBALANCE_MS, HEARTBEAT = 10_000, 30_000, 3.0
LIMITS = Limits(
    min_session_ms=1,
    max_session_ms=1_000_000,
    max_size=1_000,
    initial_delay_ms=0,
    consumer_session_ms=SESSION_MS,
    consumer_heartbeat_ms=5_000,
    offsets_retention_ms=7 * 86_400_000,
    offsets_check_ms=600_000,
)


class Simulation:
    def __init__(
        self, *topics: str, limits: Limits = LIMITS, mode: str = "auto", checked: bool = False
    ) -> None:
        """`checked`: see checked.py. It looks at everything with each request, too much for large
        groups."""
        self._checked = checked
        self.disk_is_full = False
        self.frames = 0
        """How many were written."""
        self.bindings: list[dict[str, str]] = []
        """Of all connections: see Caller."""
        self.now = 1000.0
        self._limits = limits
        self.subjects = Subjects(SubjectConfig(1, -1, -1))
        self.configs = {"auto.exclusive.after.ms": "20000", "consume.mode": mode}
        self.log: list[Action] = []
        self.times: list[int] = []
        """When each action in the log was done."""
        self.synced = 0
        self.handled: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.excused: defaultdict[str, set[int]] = defaultdict(set)
        """Messages that may be handled twice: who had read them was killed, or thrown out, or nobody who
        may share was left."""
        self._begin(Groups())
        for topic in topics:
            self.create(topic)

    # --- the world -------------------------------------------------------------------------------

    def config(self, group: str) -> GroupConfig:
        return effective_group(self.configs)

    def mode(self, group: str, subject_id: int) -> str:
        return self.config(group).consume_mode

    def share_start(self, group: str, subject: Subject) -> int:
        latest = self.config(group).share_auto_offset_reset == "latest"
        return subject.readable_end if latest else subject.earliest

    def retry_policy(self, group: Group) -> RetryPolicy:
        return RetryPolicy()

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def append(self, changes: Sequence[Action], allowed: object = None) -> int:
        if self.disk_is_full and changes:
            raise StorageError("the disk is full")
        self.frames += 1 if changes else 0
        self.groups.now_ms = self.now_ms()
        for action in changes:
            if isinstance(action, actions.Drop):
                self._excuse(action.gid, action.subject_id, 0)
            elif isinstance(action, actions.InOrder):
                self._excuse(action.gid, action.subject_id, action.sequence)
            self.groups.apply(action)
            self.log.append(action)
            self.times.append(self.now_ms())
            if self._checked:
                self._twin.write(action, self.now_ms())
        return len(self.log)

    def _excuse(self, gid: int, subject_id: int, first: int) -> None:
        """A group goes from shared to plain although something is unacked: what is above comes again."""
        progress = self.groups.by_id[gid].progress[subject_id]
        again = range(max(first, progress.lowest_unacked() or 0), progress.cursor)
        self.excused[self.subjects.by_id[subject_id].name].update(again)

    def _begin(self, groups: Groups) -> None:
        self.groups = groups
        self._twin = Twin()
        for action, now_ms in zip(self.log, self.times, strict=False):
            self._twin.write(action, now_ms)
        self.coordinator: Coordinator
        if self._checked:
            self.coordinator = Checked(groups, self, self._limits)
        else:
            self.coordinator = Coordinator(groups, self.append, self, self._limits)
        self.coordinator.start(self.now)

    # --- what happens ----------------------------------------------------------------------------

    def create(self, topic: str) -> Subject:
        subject_id = self.subjects.next_id
        subject = self.subjects.add(subject_id, subject_id.to_bytes(16, "big"), topic)
        self.coordinator.subject_added(subject, self.now)
        return subject

    def delete(self, topic: str) -> None:
        subject = self.subjects.by_name[topic]
        self.subjects.remove(subject)
        self.coordinator.subject_removed(subject.id, self.now)

    def produce(self, topic: str, count: int) -> None:
        subject = self.subjects.by_name[topic]
        subject.readable_end += count
        subject.next_sequence += count

    def restart(self) -> None:
        """As after kill -9."""
        groups = Groups()
        self.times += [self.now_ms()] * (len(self.log) + 1 - len(self.times))
        self.log.append(actions.Jump(JUMP))
        for action, groups.now_ms in zip(self.log, self.times, strict=False):
            groups.apply(action)
        self._begin(groups)

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while (following := self.coordinator.deadlines.next) <= until:
            self.now = max(self.now, following)
            self.coordinator.tick(self.now)
        self.now = until

    def set_mode(self, mode: str) -> None:
        self.configs["consume.mode"] = mode
        self.coordinator.config_changed(GROUP, None, self.now)

    # --- delivery --------------------------------------------------------------------------------

    def read(self, topic: str, offset: int, most: int) -> tuple[list[int], int]:
        """Sequences, and where the reader goes on."""
        subject = self.subjects.by_name[topic]
        slot, pull = split_offset(offset)
        if not slot:
            end = max(offset, min(offset + most, subject.readable_end))
            return list(range(offset, end)), end
        found = self.groups.slots.get(subject.id, {}).get(slot)
        if found is None or not engine.owns(found[1], pull):
            return [], offset
        group, log = found
        if not engine.leases_from(log, pull):
            self._hand_out(group.id, subject, slot, most)
        leases = engine.leases_from(log, pull)
        if not leases:
            return [], offset
        lease = leases[0]
        count = min(most, lease.size)
        sequences = list(range(lease.first, lease.first + count))
        return sequences, slot << 48 | (lease.pull + count)

    def _hand_out(self, gid: int, subject: Subject, slot: int, most: int) -> None:
        group = self.groups.by_id[gid]
        progress, step = group.progress[subject.id], self.coordinator.step(group, subject.id)
        given: list[Range] = []
        progress.wake(self.now_ms())
        if step in (Step.SHARING, Step.DRAINING):
            given = list(progress.redelivery.parts(most, 1))
        if not given and step is Step.SHARING and progress.cursor < subject.readable_end:
            left = subject.readable_end - progress.cursor
            given = [Range(progress.cursor, min(most, left), 1)]
        if given:
            log = progress.pull_logs[slot]
            self.append([engine.pull_action(gid, subject.id, log, given)])

    # --- what must always hold -------------------------------------------------------------------

    def check(self, kept: Container[str] = ()) -> None:
        """`kept`: members of share groups whose sessions are open: they may have left with a slot."""
        if self._checked:
            for groups in (self._twin.groups, self.groups):
                for group in groups.by_id.values():
                    for progress in group.progress.values():
                        progress.wake(self.now_ms())
            assert stored(self._twin.groups) == stored(self.groups)
        for group in self.groups.by_id.values():
            holders: defaultdict[int, list[int]] = defaultdict(list)
            for member in group.members.values():
                for subject_id, slot in member.holds.items():
                    holders[subject_id].append(slot)
                    if slot:
                        assert group.progress[subject_id].pull_logs[slot].member_id == member.id
            for subject_id, slots in holders.items():
                if 0 in slots:
                    assert slots == [0], f"subject {subject_id} is held as {slots}"
                    assert subject_id not in group.progress or not group.progress[subject_id].shared
            for subject_id, progress in group.progress.items():
                held = holders[subject_id]
                logs = [
                    slot
                    for slot, log in progress.pull_logs.items()
                    if slot in held or log.member_id not in kept
                ]
                assert sorted(logs) == sorted(s for s in holders[subject_id] if s), (
                    "a slot nobody holds"
                )
