"""KIP-848 consumers of a served group: all through ConsumerGroupHeartbeat.

    epoch 0       joins; with an id that is known, it begins from nothing
    epoch n       goes on; the current epoch or, where the answer was lost, the one before
    epoch -1      leaves; -2: a static member leaves for a while, and keeps what it holds

A subject is taken away by an assignment without it in the same epoch. When the member reports what it
owns and it is not in there, it has let go, and has committed before. A member that was told to let go
before it had taken up what it was given has nothing new to report: SILENT_BEATS heartbeats without a
report will do. What it may hold is given with a new epoch. A member that waits for something, or has
yet to confirm, is told a short heartbeat interval, which clients obey.

The whole assignment is told when it has changed, when the member joins, says all about itself (as it
does after an error), or is in the epoch before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.state import Member
from kumquat.gateway.groups.assignment.pattern import Pattern
from kumquat.gateway.groups.assignment.sharers import software_of
from kumquat.gateway.groups.errors import (
    FencedMemberEpoch,
    InvalidRequest,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from kumquat.gateway.groups.membership.classic import beat
from kumquat.gateway.groups.membership.members import (
    BELIEVED_BEATS,
    check_group_id,
    new_member_id,
)
from kumquat.gateway.groups.membership.protocol import KIP_848
from kumquat.gateway.groups.membership.roster import (
    CONFIRM,
    TAKE,
    TAKING,
    TOLD,
    WITHOUT,
    Presence,
    Roster,
)
from kumquat.gateway.wire import (
    AssignedTopicPartitions,
    ConsumerGroupAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kumquat.gateway.groups.membership.members import Caller, Members

JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2
ASSIGNORS = ("uniform", "range")
WAITING_MS = 500
SILENT_BEATS = 3
SILENT_SECONDS = 5.0

Request = ConsumerGroupHeartbeatRequest
Response = ConsumerGroupHeartbeatResponse


class Consumer:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._divisions = members.divisions
        self._draft = members.draft
        self._undo = members.draft.undo

    def heartbeat(self, request: Request, caller: Caller, now: float) -> Response:
        _check(request)
        if request.member_epoch in (LEAVE, LEAVE_STATIC):
            return self._leave(request, caller, now)
        if request.member_epoch == JOIN:
            roster, presence = self._join(request, caller, now)
        else:
            roster, presence = self._go_on(request, now)
        member = roster.group.members[presence.id]
        self._members.bind(caller, roster, member.id)
        self._members.touch(roster, member, now)
        self._members.recognise(roster, presence, software_of(caller), now)
        beat(self._members, roster, presence, caller, now)
        return self._answer(roster, presence, request, now)

    # --- coming and going on ---------------------------------------------------------------------

    def _join(self, request: Request, caller: Caller, now: float) -> tuple[Roster, Presence]:
        group = self._draft.make_group(request.group_id)
        roster = self._members.roster(group)
        presence = roster.presences.get(request.member_id)
        if presence is not None and presence.manner == KIP_848:
            self._begin_again(roster, presence, request, now)
        else:
            presence = self._enter(roster, request, caller, now)
        self._undo.keep(presence)
        presence.owned = frozenset()
        return roster, presence

    def _begin_again(
        self, roster: Roster, presence: Presence, request: Request, now: float
    ) -> None:
        group, member = roster.group, roster.group.members[presence.id]
        self._divisions.drop(roster, presence, {*member.holds, *presence.phases}, now)
        self._members.met(roster, member)
        self._update(roster, presence, request, now, generation=group.generation + 1)
        self._undo.keep(presence)
        presence.told, presence.away = None, False

    def _enter(self, roster: Roster, request: Request, caller: Caller, now: float) -> Presence:
        member = self._member(roster, request, caller)
        before = roster.instances.get(request.instance_id or "")
        if before is None and member.id in roster.presences:
            before = member.id
        if before is None:
            self._members.check_room(roster)
            return self._members.enter(roster, member, now)
        old = roster.group.members[before]
        if old.kind == KIP_848 and not roster.presences[before].away:
            raise UnreleasedInstance(f"{before!r} is still static member {member.instance_id!r}")
        return self._members.replace(roster, old, member, now)

    def _member(self, roster: Roster, request: Request, caller: Caller) -> Member:
        if request.subscribed_topic_regex:
            Pattern.of(request.subscribed_topic_regex)
        return Member(
            id=request.member_id or new_member_id(caller.client_id),
            generation=roster.group.generation + 1,
            kind=KIP_848,
            client_id=caller.client_id,
            host=caller.host,
            session_ms=self._members.limits.consumer_session_ms,
            rebalance_ms=request.rebalance_timeout_ms,
            instance_id=request.instance_id,
            rack=request.rack_id,
            subscription=list(dict.fromkeys(request.subscribed_topic_names or ())),
            pattern=request.subscribed_topic_regex or None,
            protocol=request.server_assignor or ASSIGNORS[0],
            software=software_of(caller),
        )

    def _go_on(self, request: Request, now: float) -> tuple[Roster, Presence]:
        roster, member = self._find(request)
        presence = roster.presences[member.id]
        if request.member_epoch not in (member.generation, presence.previous_epoch):
            raise FencedMemberEpoch(f"the epoch of {member.id!r} is {member.generation}")
        if request.member_epoch != member.generation:
            self._undo.keep(presence)
            presence.told = None
        self._update(roster, presence, request, now)
        self._confirm(roster, presence, request, now)
        return roster, presence

    def _find(self, request: Request) -> tuple[Roster, Member]:
        roster, member = self._members.find(
            request.group_id, request.member_id, request.instance_id
        )
        if member.kind != KIP_848:
            raise UnknownMember(f"{member.id!r} speaks another protocol")
        return roster, member

    def _update(
        self, roster: Roster, presence: Presence, request: Request, now: float, **changes: object
    ) -> None:
        member = roster.group.members[presence.id]
        if request.rebalance_timeout_ms >= 0:
            changes["rebalance_ms"] = request.rebalance_timeout_ms
        if request.server_assignor is not None:
            changes["protocol"] = request.server_assignor
        if request.subscribed_topic_names is not None:
            changes["subscription"] = list(dict.fromkeys(request.subscribed_topic_names))
        if request.subscribed_topic_regex is not None:
            if request.subscribed_topic_regex:
                Pattern.of(request.subscribed_topic_regex)
            changes["pattern"] = request.subscribed_topic_regex or None
        if not changes or all(getattr(member, name) == value for name, value in changes.items()):
            return
        resubscribed = any(
            name in changes and getattr(member, name) != changes[name]
            for name in ("subscription", "pattern")
        )
        self._draft.put(roster.group, member, **changes)
        if resubscribed:
            self._members.resubscribe(roster, presence, now)
            holds = roster.group.members[presence.id].holds
            left = [subject_id for subject_id in holds if subject_id not in presence.topics]
            self._divisions.move(roster, presence, TAKE, left, now)

    def _confirm(self, roster: Roster, presence: Presence, request: Request, now: float) -> None:
        by_topic_id = self._members.world.subjects.by_topic_id
        reports = request.topic_partitions is not None
        if reports or presence.silent_beats or TOLD in presence.phases.values():
            self._undo.keep(presence)
        if request.topic_partitions is not None:
            presence.silent_beats = 0
            presence.owned = frozenset(
                by_topic_id[part.topic_id].id
                for part in request.topic_partitions
                if part.partitions and part.topic_id in by_topic_id
            )
        elif TOLD not in presence.phases.values() or presence.owned is None:
            presence.silent_beats = 0
            return
        else:
            presence.silent_beats += 1
            if presence.silent_beats < SILENT_BEATS or now - presence.told_at < SILENT_SECONDS:
                return
        member = roster.group.members[presence.id]
        self._divisions.move(roster, presence, CONFIRM, member.holds.keys() - presence.owned, now)
        if not presence.phases:
            self._members.met(roster, member)

    def _leave(self, request: Request, caller: Caller, now: float) -> Response:
        roster, member = self._find(request)
        if request.member_epoch == LEAVE_STATIC and member.instance_id is not None:
            self._undo.keep(roster.presences[member.id])
            roster.presences[member.id].away = True
        else:
            self._members.leave(roster, member, now, "it left")
        self._members.unbind(caller, request.group_id)
        return Response(member_id=member.id, member_epoch=request.member_epoch)

    # --- the answer ------------------------------------------------------------------------------

    def _answer(self, roster: Roster, presence: Presence, request: Request, now: float) -> Response:
        group = roster.group
        full = request.member_epoch == JOIN or request.subscribed_topic_names is not None
        if presence.seen == roster.version and presence.told is not None and not full:
            member = group.members[presence.id]
            usual = self._members.limits.consumer_heartbeat_ms
            return Response(
                member_id=member.id, member_epoch=member.generation, heartbeat_interval_ms=usual
            )
        self._undo.keep(presence)
        taken = [subject_id for subject_id, phase in presence.phases.items() if phase is TAKING]
        if taken:
            presence.told_at, presence.silent_beats = now, 0
            self._divisions.move(roster, presence, WITHOUT, taken, now)
        if self._divisions.take_up(roster, presence, now):
            member = group.members[presence.id]
            if request.member_epoch != JOIN:
                presence.previous_epoch = member.generation
                self._draft.put(group, member, generation=group.generation + 1)
        member = group.members[presence.id]
        if TOLD in presence.phases.values():
            self._members.expect(roster, member, now)
        told = frozenset(
            subject_id for subject_id in member.holds if subject_id not in presence.phases
        )
        response = Response(
            member_id=member.id,
            member_epoch=member.generation,
            heartbeat_interval_ms=self._interval(roster, presence),
        )
        if told != presence.told or full:
            fresh = told - (presence.told or frozenset())
            presence.expecting.update(
                {subject_id: BELIEVED_BEATS for subject_id in fresh if member.holds[subject_id]}
            )
            presence.told, presence.must_rejoin = told, False
            response.assignment = self._assignment(told)
        return response

    def _interval(self, roster: Roster, presence: Presence) -> int:
        usual = self._members.limits.consumer_heartbeat_ms
        if presence.phases or self._divisions.awaits(roster, presence):
            return min(WAITING_MS, usual)
        presence.seen = roster.version
        return usual

    def _assignment(self, subject_ids: frozenset[int]) -> ConsumerGroupAssignment:
        by_id = self._members.world.subjects.by_id
        return ConsumerGroupAssignment(
            topic_partitions=[
                AssignedTopicPartitions(by_id[subject_id].topic_id, [0])
                for subject_id in sorted(subject_ids)
                if subject_id in by_id
            ]
        )


def _check(request: Request) -> None:
    check_group_id(request.group_id)
    epoch = request.member_epoch
    if epoch < LEAVE_STATIC:
        raise InvalidRequest(f"{epoch} is no member epoch")
    if epoch != JOIN and not request.member_id:
        raise InvalidRequest("only who joins may have no member id")
    if request.instance_id == "":
        raise InvalidRequest("an instance id cannot be empty")
    if epoch == LEAVE_STATIC and request.instance_id is None:
        raise InvalidRequest("only a static member can leave for a while")
    if epoch == JOIN:
        if request.rebalance_timeout_ms < 0:
            raise InvalidRequest("who joins must give a rebalance time-out")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest("who joins must subscribe to something")
        if request.topic_partitions:
            raise InvalidRequest("who joins owns nothing yet")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise UnsupportedAssignor(f"the assignors are {', '.join(ASSIGNORS)}")
