"""Classic consumers of a served group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. There is no barrier.

    JoinGroup   a new generation for this member alone. The leader is a name that nobody has, so each
                client is a follower and takes its assignment from SyncGroup
    SyncGroup   the moment at which a member takes up what it may hold, and learns what it is to let go of
    Heartbeat   REBALANCE_IN_PROGRESS when the member should come: something is to be taken away, there is
                something for it, or a subject that it held is gone

A JoinGroup is held while another member is about to let go of a subject that the joiner will get, at
most for MAX_HOLD seconds and the member's rebalance time-out, and only if the joiner holds nothing that
would lie idle.

The safety net: a member that was given a pull log and never asks OffsetFetch for it reads at a position
of its own. Having sent UNASKED_BEATS heartbeats in UNASKED_SECONDS, it is made to let go and is given a new
one, each time with twice the patience, MAX_REPLACED times: an application that always seeks never asks.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kumquat.core.delivery.state import Member
from kumquat.gateway.groups.assignment.sharers import UNNAMED, software_of
from kumquat.gateway.groups.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from kumquat.gateway.groups.membership.members import (
    BELIEVED_BEATS,
    HOLD,
    check_group_id,
    new_member_id,
)
from kumquat.gateway.groups.membership.protocol import (
    CONSUMER,
    COOPERATIVE,
    KIP_848,
    Subscription,
    assignment_bytes,
    choose_standard,
    kind_of,
    manner_of,
    pack,
    read_subscription,
)
from kumquat.gateway.groups.membership.roster import (
    BEAT,
    CLAIMED,
    DROPPED,
    HOLDING,
    JOINED,
    TAKE,
    TAKING,
    TOLD,
    WITHOUT,
    Grant,
    Presence,
    Roster,
    Ticket,
)
from kumquat.gateway.wire import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.gateway.wire.errors import WireError

if TYPE_CHECKING:
    from kumquat.gateway.groups.membership.members import Caller, Members

LEADER = "kumquat"
MAX_HOLD = 30.0
TOLD_SECONDS = 3.0
UNASKED_BEATS = 3
UNASKED_SECONDS = 10.0
MAX_REPLACED = 4

logger = logging.getLogger(__name__)


class Classic:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._divisions = members.divisions
        self._draft = members.draft
        self._undo = members.draft.undo

    # --- JoinGroup -------------------------------------------------------------------------------

    def join(
        self, roster: Roster, request: JoinGroupRequest, caller: Caller, now: float
    ) -> JoinGroupResponse | Ticket:
        """`request.member_id` is that of a member, of a pending one, or empty for a new one."""
        subscription = self._subscription(request)
        presence = roster.presences.get(request.member_id)
        if presence is None:
            presence = self._enter(roster, request, subscription, caller, now)
        else:
            self._rejoin(roster, presence, request, subscription, caller, now)
        member = roster.group.members[presence.id]
        self._members.bind(caller, roster, member.id)
        self._members.met(roster, member)
        self._members.touch(roster, member, now)
        if not member.holds and self._divisions.awaits(roster, presence):
            return self._hold(roster, presence, member, now)
        return self._answer(roster, presence, now)

    def _subscription(self, request: JoinGroupRequest) -> Subscription:
        chosen = choose_standard(request.protocols)
        assert chosen is not None, "others are client-assigned"
        try:
            return read_subscription(chosen.metadata)
        except WireError as error:
            raise InconsistentGroupProtocol(f"metadata of {chosen.name!r}: {error}") from error

    def _member(
        self, roster: Roster, request: JoinGroupRequest, subscription: Subscription, caller: Caller
    ) -> Member:
        chosen = choose_standard(request.protocols)
        assert chosen is not None
        member_id = request.member_id or new_member_id(
            request.group_instance_id or caller.client_id
        )
        return Member(
            id=member_id,
            generation=roster.group.generation + 1,
            kind=kind_of(request.protocols),
            client_id=caller.client_id,
            host=caller.host,
            session_ms=request.session_timeout_ms,
            rebalance_ms=rebalance_ms(request),
            instance_id=request.group_instance_id,
            subscription=subscription.topics,
            protocol=chosen.name,
            software=_software(request, subscription, caller),
            metadata=pack(chosen.metadata),
        )

    def _enter(
        self,
        roster: Roster,
        request: JoinGroupRequest,
        subscription: Subscription,
        caller: Caller,
        now: float,
    ) -> Presence:
        member = self._member(roster, request, subscription, caller)
        before = roster.instances.get(request.group_instance_id or "")
        if before is not None:
            old = roster.group.members[before]
            return self._members.replace(roster, old, member, now)
        self._members.check_room(roster)
        return self._members.enter(roster, member, now)

    def _rejoin(
        self,
        roster: Roster,
        presence: Presence,
        request: JoinGroupRequest,
        subscription: Subscription,
        caller: Caller,
        now: float,
    ) -> None:
        divisions, before = self._divisions, roster.group.members[presence.id]
        self._undo.keep(presence)
        if presence.ticket is not None:
            again = RebalanceInProgress("the member has joined again")
            self._draft.answer(presence.ticket, again)
            presence.ticket = None
        kind, software = kind_of(request.protocols), _software(request, subscription, caller)
        if software == UNNAMED and before.software:
            software = before.software
        if kind != before.kind:  # another assignor: it begins from nothing
            divisions.drop(roster, presence, {*before.holds, *presence.phases}, now)
            presence.manner = manner_of(kind, software)
        else:
            presence.manner = manner_of(kind, software)
            self._joined(roster, presence, subscription, now)
        chosen = choose_standard(request.protocols)
        assert chosen is not None
        self._draft.put(
            roster.group,
            roster.group.members[presence.id],
            generation=roster.group.generation + 1,
            kind=kind,
            session_ms=request.session_timeout_ms,
            rebalance_ms=rebalance_ms(request),
            subscription=subscription.topics,
            pattern=None,
            protocol=chosen.name,
            metadata=pack(chosen.metadata),
        )
        self._members.recognise(roster, presence, software, now)
        self._members.resubscribe(roster, presence, now)
        self._drop_unsubscribed(roster, presence, subscription, now)

    def _drop_unsubscribed(
        self, roster: Roster, presence: Presence, subscription: Subscription, now: float
    ) -> None:
        """What it holds and no longer subscribes to, it has given up; unless it claims it still."""
        by_id = self._members.world.subjects.by_id
        holds = roster.group.members[presence.id].holds
        left = {subject_id for subject_id in holds if subject_id not in presence.topics}
        claimed = set()
        if presence.manner == COOPERATIVE:
            claimed = {
                subject_id
                for subject_id in left
                if by_id[subject_id].name in (subscription.owned or ())
            }
        self._divisions.drop(roster, presence, left - claimed, now)
        self._divisions.move(roster, presence, TAKE, claimed, now)

    def _joined(
        self, roster: Roster, presence: Presence, subscription: Subscription, now: float
    ) -> None:
        by_id, owned = self._members.world.subjects.by_id, subscription.owned
        subject_ids = {*roster.group.members[presence.id].holds, *presence.phases}
        if presence.manner != COOPERATIVE or owned is None:
            self._divisions.move(roster, presence, JOINED, subject_ids, now)
            return
        claimed = {subject_id for subject_id in subject_ids if by_id[subject_id].name in owned}
        self._divisions.move(roster, presence, CLAIMED, claimed, now)
        self._divisions.move(roster, presence, DROPPED, subject_ids - claimed, now)

    def _hold(self, roster: Roster, presence: Presence, member: Member, now: float) -> Ticket:
        until = now + min(MAX_HOLD, member.rebalance_ms / 1000)
        self._members.deadlines.set((HOLD, roster.group.id, member.id), until)
        self._undo.keep(presence)
        presence.ticket = Ticket()
        # Its session clock stands still: a client that waits for this answer sends no heartbeat.
        self._members.touch(roster, member, until)
        return presence.ticket

    def answer_held(
        self, roster: Roster, presence: Presence, now: float, *, late: bool = False
    ) -> None:
        """Answer a held JoinGroup if there is nothing more to wait for, or if it is late."""
        if presence.ticket is None or (not late and self._divisions.awaits(roster, presence)):
            return
        self._undo.keep(presence)
        ticket, presence.ticket = presence.ticket, None
        self._members.deadlines.drop((HOLD, roster.group.id, presence.id))
        self._draft.answer(ticket, self._answer(roster, presence, now))

    def _answer(self, roster: Roster, presence: Presence, now: float) -> JoinGroupResponse:
        member = roster.group.members[presence.id]
        self._undo.keep(presence)
        presence.syncing, presence.must_rejoin = True, False
        self._members.expect(roster, member, now)
        return JoinGroupResponse(
            generation_id=member.generation,
            protocol_type=CONSUMER,
            protocol_name=member.protocol,
            leader=LEADER,
            member_id=member.id,
        )

    # --- SyncGroup -------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, caller: Caller, now: float) -> SyncGroupResponse:
        roster, member, presence = self._known(request, now)
        if request.protocol_name not in (None, member.protocol) or request.protocol_type not in (
            None,
            CONSUMER,
        ):
            raise InconsistentGroupProtocol(f"the protocol is {member.protocol!r}")
        self._members.bind(caller, roster, member.id)
        self._undo.keep(presence)
        self._divisions.take_up(roster, presence, now)
        self._divisions.move(roster, presence, WITHOUT, list(presence.phases), now)
        presence.syncing = False
        self._members.met(roster, member)
        if TOLD in presence.phases.values():
            presence.told_at = now
            self._members.expect(roster, member, now)
        holds = roster.group.members[member.id].holds
        told = [subject_id for subject_id in holds if subject_id not in presence.phases]
        presence.expecting = {
            subject_id: BELIEVED_BEATS for subject_id in told if holds[subject_id]
        }
        by_id = self._members.world.subjects.by_id
        return SyncGroupResponse(
            protocol_type=CONSUMER,
            protocol_name=member.protocol,
            assignment=assignment_bytes(
                sorted(by_id[subject_id].name for subject_id in told if subject_id in by_id)
            ),
        )

    # --- Heartbeat -------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: float) -> HeartbeatResponse:
        roster, member, presence = self._known(request, now)
        self._members.bind(caller, roster, member.id)
        if presence.syncing:
            return HeartbeatResponse()
        if presence.phases:
            self._divisions.move(roster, presence, BEAT, list(presence.phases), now)
        beat(self._members, roster, presence, caller, now)
        if self._should_come(roster, presence, now):
            self._members.expect(roster, member, now)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._members.met(roster, member)
        return HeartbeatResponse()

    def _should_come(self, roster: Roster, presence: Presence, now: float) -> bool:
        phases = presence.phases.values()
        if presence.must_rejoin or TAKING in phases:
            return True
        if TOLD in phases and now - presence.told_at > TOLD_SECONDS:
            return True
        if presence.seen == roster.version:
            return False
        if any(
            self._divisions.awaited(roster, presence, subject_id) for subject_id in presence.topics
        ):
            return True
        self._undo.keep(presence)
        presence.seen = roster.version
        return False

    def _known(
        self, request: SyncGroupRequest | HeartbeatRequest, now: float
    ) -> tuple[Roster, Member, Presence]:
        check_group_id(request.group_id)
        roster, member = self._members.find(
            request.group_id, request.member_id, request.group_instance_id
        )
        if member.kind == KIP_848:
            raise UnknownMember(f"{member.id!r} speaks another protocol")
        if request.generation_id != member.generation:
            raise IllegalGeneration(f"the generation is {member.generation}")
        self._members.touch(roster, member, now)
        return roster, member, roster.presences[member.id]


def _software(request: JoinGroupRequest, subscription: Subscription, caller: Caller) -> str:
    return software_of(caller, [offered.name for offered in request.protocols], subscription)


def rebalance_ms(request: JoinGroupRequest) -> int:
    """Version 0 has none: the session time-out counts."""
    asked = request.rebalance_timeout_ms
    return asked if asked >= 0 else request.session_timeout_ms


def beat(members: Members, roster: Roster, presence: Presence, caller: Caller, now: float) -> None:
    """A heartbeat came: watch over pull logs that were given and not asked for."""
    if presence.via is caller.bound and not presence.expecting and not presence.grants:
        return  # as most do
    members.draft.undo.keep(presence)
    if presence.via is not caller.bound:
        presence.via = caller.bound
        presence.expecting = dict.fromkeys(presence.expecting, BELIEVED_BEATS)
    for subject_id, beats in list(presence.expecting.items()):
        if beats <= 1:
            del presence.expecting[subject_id]
        else:
            presence.expecting[subject_id] = beats - 1
    for subject_id, before in list(presence.grants.items()):
        grant = presence.grants[subject_id] = Grant(before.at, before.beats + 1)
        replaced = presence.replaced.get(subject_id, 0)
        if grant.beats < UNASKED_BEATS or now - grant.at < UNASKED_SECONDS * 2**replaced:
            continue
        del presence.grants[subject_id]
        if (
            replaced >= MAX_REPLACED
            or members.divisions.phase(roster, presence, subject_id) not in HOLDING
        ):
            continue
        presence.replaced[subject_id] = replaced + 1
        members.draft.note(
            *(logger, logging.WARNING),
            "member %s of group %s never asked where to begin: it is given its subject again",
            *(presence.id, roster.group.name),
        )
        members.divisions.move(roster, presence, TAKE, [subject_id], now)
