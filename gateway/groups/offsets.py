"""OffsetCommit and OffsetFetch: positions, for members each in its own space, for all others in sequences.

Commits
- Who may: a member, in its generation (else UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH);
  anybody without a generation, while the group has no members. A member id is then no matter: librdkafka
  with `group.protocol=consumer` and `assign()` sends one. Such a commit sets the group back (or forward):
  what it had leased or was to be delivered again is forgotten, but not what is doomed (see
  core/delivery/progress.py).
- By a member that holds a pull log: acks it up to there. In the wrong space, for another's slot, below
  what is acked, or past what was given: no error (clients would give up or drop everything), and no
  change.
- By a member of a group that does not share the subject: the group's position, as in Kafka.
- Of a share group: GROUP_ID_NOT_FOUND, as in Kafka; nor does it have positions to be fetched.
- A negative offset is stored and told again, as in Kafka. It is no position: KafkaJS commits -2 (earliest)
  or -1 (latest) to begin there, and reads it back. A member that shares and is alone in the group begins so
  at that end of the subject. Among several it would take from the others what they have leased, so it
  changes nothing.
- A commit that accepts no partition makes no group.
- A commit that changes nothing writes nothing, unless the last one is REFRESH_MS old: a reader without a
  group that commits the same position again and again must not see it expire.

Positions
- A member that holds a pull log is told the first pull offset that is not acked, with leader epoch -1.
- Everybody else is told the lowest sequence that is not acked.
- Who asks is known by the member id in the request or by the connection, bound by every request that
  names a member. An unbound connection that may be a member's is told COORDINATOR_LOAD_IN_PROGRESS
  until a heartbeat binds it: so is a member that is about to be given the subject, and a connection
  whose member is gone. Given a plain position, it would read everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.state import pull_offset, split_offset
from kumquat.gateway.groups.assignment.division import DRAINING
from kumquat.gateway.groups.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownMember,
)
from kumquat.gateway.groups.membership.members import check_group_id
from kumquat.gateway.groups.membership.protocol import KIP_848
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.state import Group, Member, Progress
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.groups.membership.members import Caller, Members
    from kumquat.gateway.groups.membership.roster import Roster
    from kumquat.gateway.wire import OffsetCommitRequest, OffsetCommitRequestPartition

MAX_METADATA = 4096
REFRESH_MS = 3_600_000
NONE = -1
"""The offset of a group that has committed nothing."""
LATEST, EARLIEST = -1, -2
ENDS = (LATEST, EARLIEST)
"""Commits that mean an end of the subject, as ListOffsets names them."""


class Position(NamedTuple):
    topic: str
    partition: int
    offset: int = NONE
    epoch: int = -1
    metadata: str = ""
    error_code: int = ErrorCode.NONE


@dataclass(slots=True)
class Commit:
    """What a commit comes to: an error code per partition, in the order of the request."""

    codes: list[int]
    changes: list[Action]
    touched: set[int]
    """Subjects whose division is to be looked at again."""
    begun: list[int]
    """Subjects of which all may be handed out again."""


class Offsets:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._draft = members.draft

    # --- commits ---------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, caller: Caller, now: float) -> list[int]:
        """A code per partition, in the order of the request. GroupError: for all of it."""
        check_group_id(request.group_id, may_be_empty=True)
        group = self._draft.groups.by_name.get(request.group_id)
        if group is not None and group.is_share:
            raise GroupIdNotFound(f"{request.group_id!r} is a share group")
        member = self._committer(group, request, caller, now)
        done = Commit([], [], set(), [])
        for topic in request.topics:
            subject = self._members.world.subjects.by_name.get(topic.name)
            for asked in topic.partitions:
                code = _refusal(subject, asked)
                done.codes.append(code)
                if subject is not None and not code:
                    group = group or self._draft.make_group(request.group_id)
                    self._commit_one(done, group, member, subject, asked)
        if group is None:
            return done.codes
        for subject_id in done.begun:
            self._draft.touch(group.id, subject_id)
        self._append(group, done.changes, done.touched, now)
        return done.codes

    def reset(self, group: Group, subject_id: int, sequence: int, now: float) -> None:
        """Have a group without members go on there. All else that it knew of the subject is forgotten, but
        for doomed messages below."""
        if not self._members.is_empty(group):
            raise UnknownMember(f"group {group.name!r} has members: only they may commit")
        changes: list[Action] = [actions.Drop(group.id, subject_id, sequence)]
        if group.is_share:
            changes.append(actions.Share(group.id, subject_id, sequence))
        else:
            changes.append(actions.Commit(group.id, subject_id, sequence, -1, ""))
        self._append(group, changes, {subject_id}, now)

    def _append(
        self, group: Group, changes: Sequence[Action], touched: set[int], now: float
    ) -> None:
        """Write changes, and look again at how these subjects are divided."""
        roster = self._members.rosters.get(group.id) if touched else None
        divided = touched & roster.divisions.keys() if roster is not None else ()
        if roster is None or not divided:
            self._draft.append_last(changes)
            return
        self._draft.append(changes)
        for subject_id in divided:
            self._members.divisions.advance(roster, subject_id, now)

    def _committer(
        self, group: Group | None, request: OffsetCommitRequest, caller: Caller, now: float
    ) -> Member | None:
        """The member that commits; None: nobody in particular, and that is fine."""
        generation = request.generation_id_or_member_epoch
        if generation < 0 and (group is None or self._members.is_empty(group)):
            return None
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            raise UnknownMember(f"group {request.group_id!r} has members: only they may commit")
        if group is None:
            raise IllegalGeneration(f"there is no group {request.group_id!r}")
        client_assigned = self._members.peek(group).client_assigned
        if client_assigned is not None:
            client_assigned.check_commit(request, now)
            return None
        roster, member = self._members.find(
            request.group_id, request.member_id, request.group_instance_id
        )
        if generation != member.generation:
            if member.kind == KIP_848:
                raise StaleMemberEpoch(f"the epoch is {member.generation}")
            raise IllegalGeneration(f"the generation is {member.generation}")
        self._members.bind(caller, roster, member.id)
        if member.kind != KIP_848:
            self._members.touch(roster, member, now)
        return member

    def _commit_one(
        self,
        done: Commit,
        group: Group,
        member: Member | None,
        subject: Subject,
        asked: OffsetCommitRequestPartition,
    ) -> None:
        progress = group.progress.get(subject.id)
        shared = progress is not None and progress.shared
        slot, pull = split_offset(max(asked.committed_offset, 0))
        if slot:
            if shared and member is not None and member.holds.get(subject.id) == slot:
                self._ack(done, group, subject.id, slot, pull)
                presence = self._members.peek(group).presences.get(member.id)
                if presence is not None:
                    self._draft.undo.item(presence.commits, subject.id)
                    presence.commits[subject.id] = self._members.world.now_ms()
            return
        if shared and member is not None:
            if asked.committed_offset in ENDS and member.holds.get(subject.id):
                self._begin_again(done, group, subject, asked.committed_offset)
            return
        metadata = asked.committed_metadata or ""
        wanted = (asked.committed_offset, asked.committed_leader_epoch, metadata)
        if progress is None or shared or wanted != _stored(progress) or self._is_old(progress):
            if shared:
                # A negative offset names no place: nobody knows what is read again.
                below = wanted[0] if wanted[0] >= 0 else actions.EVERY
                done.changes.append(actions.Drop(group.id, subject.id, below))
            done.changes.append(actions.Commit(group.id, subject.id, *wanted))
            if shared or progress is None or not progress.committed:
                done.touched.add(subject.id)

    def _begin_again(self, done: Commit, group: Group, subject: Subject, end: int) -> None:
        """A member that shares and is alone begins at an end of the subject."""
        if len(group.members) == 1:
            sequence = subject.earliest if end == EARLIEST else subject.readable_end
            done.changes.append(actions.Share(group.id, subject.id, sequence))
            done.begun.append(subject.id)

    def _is_old(self, progress: Progress) -> bool:
        age = self._members.world.now_ms() - progress.committed_at
        return age >= min(REFRESH_MS, self._members.limits.offsets_retention_ms // 4)

    def _ack(self, done: Commit, group: Group, subject_id: int, slot: int, pull: int) -> None:
        log = group.progress[subject_id].pull_logs[slot]
        action = engine.ack(group.id, subject_id, log, pull)
        if action is not None:
            done.changes.append(action)
            division = self._members.peek(group).divisions.get(subject_id)
            if division is not None and division.step is DRAINING:
                done.touched.add(subject_id)

    # --- positions -------------------------------------------------------------------------------

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        epoch: int,
        topics: Iterable[tuple[str, Iterable[int]]] | None,
        caller: Caller,
    ) -> list[Position]:
        """Positions in the order asked; `topics` None: all that there are. GroupError: for all of it."""
        check_group_id(group_id, may_be_empty=True)
        group = self._draft.groups.by_name.get(group_id)
        if group is None or group.is_share:
            return [Position(topic, index) for topic, indexes in topics or () for index in indexes]
        roster = self._members.peek(group)
        member = self._asker(roster, member_id, epoch, caller)
        if topics is None:
            by_id = self._members.world.subjects.by_id
            topics = [
                (by_id[subject_id].name, (0,))
                for subject_id, progress in group.progress.items()
                if subject_id in by_id and (progress.shared or progress.position is not None)
            ]
        return [
            self._position(roster, member, topic, index, caller)
            for topic, indexes in topics
            for index in indexes
        ]

    def _asker(
        self, roster: Roster, member_id: str | None, epoch: int, caller: Caller
    ) -> Member | None:
        members = roster.group.members
        if not member_id:
            return members.get(caller.bound.get(roster.group.name, ""))
        member = members.get(member_id)
        if member is None and epoch < 0 and self._members.is_empty(roster.group):
            return None
        if member is None:
            raise UnknownMember(f"{member_id!r} is no member of {roster.group.name!r}")
        if epoch >= 0 and epoch != member.generation:
            raise StaleMemberEpoch(f"the epoch of {member_id!r} is {member.generation}")
        return member

    def _position(
        self, roster: Roster, member: Member | None, topic: str, index: int, caller: Caller
    ) -> Position:
        subject = self._members.world.subjects.by_name.get(topic)
        progress = None if subject is None else roster.group.progress.get(subject.id)
        if subject is None or progress is None or index != 0:
            return Position(topic, index)
        if member is not None:
            slot = member.holds.get(subject.id)
            if slot:
                self._asked(roster, member, subject.id)
                log = progress.pull_logs[slot]
                return Position(topic, index, pull_offset(slot, log.position))
        if progress.shared and self._could_be_sharing(roster, member, subject.id, caller):
            code = CoordinatorLoadInProgress.error_code
            return Position(topic, index, error_code=code)
        lowest = progress.lowest_unacked()
        if lowest is None:
            return Position(topic, index)
        epoch = -1 if progress.shared else progress.epoch
        return Position(topic, index, lowest, epoch, progress.metadata)

    def _asked(self, roster: Roster, member: Member, subject_id: int) -> None:
        presence = roster.presences.get(member.id)
        if presence is not None:
            presence.expecting.pop(subject_id, None)
            presence.grants.pop(subject_id, None)
            presence.replaced.pop(subject_id, None)

    def _could_be_sharing(
        self, roster: Roster, member: Member | None, subject_id: int, caller: Caller
    ) -> bool:
        """Whether a plain position might make a sharing member read everything."""
        if member is not None:
            presence = roster.presences.get(member.id)
            return presence is not None and subject_id in presence.topics
        if roster.group.name in caller.bound:
            return True
        return any(
            roster.group.members[presence.id].client_id == caller.client_id
            for presence in roster.presences.values()
            if subject_id in presence.expecting
        )


def _refusal(subject: Subject | None, asked: OffsetCommitRequestPartition) -> int:
    if subject is None or asked.partition_index != 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(asked.committed_metadata or "") > MAX_METADATA:
        return OffsetMetadataTooLarge.error_code
    return ErrorCode.NONE


def _stored(progress: Progress) -> tuple[int | None, int, str]:
    return progress.position, progress.epoch, progress.metadata
