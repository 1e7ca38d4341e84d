"""Groups in which a client assigns: Kafka's own protocol, with a leader and the full barrier.

States, events and where they lead: membership/client_assigned_states.py.

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members, and
again as long as some come.

A generation is durable when it is STABLE, and not before. After a restart members go on in the last stable
generation; those of one that was not complete join again.

Positions are plain; the group is always exclusive.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from kumquat.core.delivery import actions
from kumquat.core.delivery.state import Member
from kumquat.gateway.groups.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from kumquat.gateway.groups.membership.classic import rebalance_ms
from kumquat.gateway.groups.membership.client_assigned_states import (
    COMPLETING,
    EMPTY,
    GONE,
    JOIN,
    JOINED,
    LAST,
    LATE,
    PREPARING,
    STABLE,
    SYNC,
    TRANSITIONS,
    Participant,
    State,
)
from kumquat.gateway.groups.membership.members import SESSION, new_member_id
from kumquat.gateway.groups.membership.protocol import CLIENT_ASSIGNED, pack, unpack
from kumquat.gateway.groups.membership.roster import Roster, Ticket
from kumquat.gateway.wire import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    OffsetCommitRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.delivery.undo import Undo
    from kumquat.gateway.groups.membership.members import Caller, Members

BARRIER = "barrier"
"""Deadlines: (BARRIER, group id)."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ClientAssigned:
    KEPT: ClassVar = ("participants",)
    """Containers that change in place: see core/delivery/undo.py."""
    members: Members
    roster: Roster
    protocol_type: str
    state: State = EMPTY
    generation: int = 0
    leader: str | None = None
    protocol: str = ""
    participants: dict[str, Participant] = field(default_factory=dict)
    extendable_until: float | None = None
    """Until then the first rebalance may wait for more members."""
    newcomers: bool = False

    @property
    def _undo(self) -> Undo:
        return self.members.draft.undo

    # --- starting --------------------------------------------------------------------------------

    @classmethod
    def restored(cls, members: Members, roster: Roster, now: float) -> ClientAssigned:
        """As it was when the broker stopped."""
        group = roster.group
        first = next(iter(group.members.values()))
        restored = cls(members, roster, first.protocol_type, STABLE, group.generation)
        for member in group.members.values():
            offered = {member.protocol: unpack(member.metadata)}
            joined = Participant(member, offered, synced=True, assignment=unpack(member.assignment))
            restored.participants[member.id] = joined
            restored.protocol = member.protocol
            if member.leader:
                restored.leader = member.id
            if member.instance_id is not None:
                members.draft.undo.item(roster.instances, member.instance_id)
                roster.instances[member.instance_id] = member.id
            members.resume_clock(roster, member, now)
        return restored

    # --- JoinGroup -------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, caller: Caller, now: float, *, can_skip: bool
    ) -> JoinGroupResponse | Ticket:
        self.check_protocols(request)
        offered = {protocol.name: protocol.metadata for protocol in request.protocols}
        caller_known = self.participants.get(request.member_id)
        before = self.roster.instances.get(request.group_instance_id or "")
        if caller_known is None and before is not None:
            return self._return_static(before, request, offered, caller, now, can_skip)
        if caller_known is None:
            if len(self.participants) >= self.members.limits.max_size:
                raise GroupFull(f"group.max.size={self.members.limits.max_size} reached")
            known = self._enter(request, offered, caller)
            self.newcomers = True
            return self._rejoin(known, caller, now)
        known = caller_known
        same = offered == known.protocols or offered.get(self.protocol) == known.protocols.get(
            self.protocol
        )
        settled = self.state is COMPLETING or (
            self.state is STABLE and known.member.id != self.leader
        )
        self._refresh(known, request, offered)
        if settled and same:
            self.members.touch(self.roster, known.member, now)
            return self._joined(known)
        return self._rejoin(known, caller, now)

    def check_protocols(self, request: JoinGroupRequest) -> None:
        """Raises unless all members could go on with what is offered."""
        others = [p for p in self.participants.values() if p.member.id != request.member_id]
        if request.group_instance_id is not None:
            replaced = self.roster.instances.get(request.group_instance_id)
            others = [p for p in others if p.member.id != replaced]
        if others and request.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(f"this group's type is {self.protocol_type!r}")
        if not any(all(p.name in o.protocols for o in others) for p in request.protocols):
            raise InconsistentGroupProtocol("no protocol is offered that all members offer")
        if not others:
            self._undo.keep(self)
            self.protocol_type = request.protocol_type

    def _enter(
        self, request: JoinGroupRequest, offered: dict[str, bytes], caller: Caller
    ) -> Participant:
        member = Member(
            id=request.member_id or new_member_id(request.group_instance_id or caller.client_id),
            generation=0,
            kind=CLIENT_ASSIGNED,
            client_id=caller.client_id,
            host=caller.host,
            session_ms=request.session_timeout_ms,
            rebalance_ms=rebalance_ms(request),
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
        )
        self._undo.keep(self)
        known = self.participants[member.id] = Participant(member, offered)
        if member.instance_id is not None:
            self._undo.item(self.roster.instances, member.instance_id)
            self.roster.instances[member.instance_id] = member.id
        self.members.arrived(self.roster.group.name, member.id)
        return known

    def _return_static(
        self,
        before: str,
        request: JoinGroupRequest,
        offered: dict[str, bytes],
        caller: Caller,
        now: float,
        can_skip: bool,
    ) -> JoinGroupResponse | Ticket:
        """A static member comes with another id: whoever had it is fenced."""
        self._undo.keep(self)
        old = self.participants.pop(before)
        self._fail(old, FencedInstance("its static member came again"))
        self.members.deadlines.drop((SESSION, self.roster.group.id, before))
        known = self._enter(request, offered, caller)
        known.assignment, known.synced = old.assignment, old.synced
        was_leader = self.leader == before
        if was_leader:
            self.leader = known.member.id
        if self.state is not STABLE or offered != old.protocols:
            return self._rejoin(known, caller, now)
        gone = actions.Left(self.roster.group.id, before)
        self.members.draft.append([gone, self._durable(known)])
        self.members.bind(caller, self.roster, known.member.id)
        self.members.touch(self.roster, known.member, now)
        answer = self._joined(known)
        if was_leader and can_skip:
            answer.skip_assignment = True
        elif was_leader:  # it may not assign: nobody else would ask for what it says
            answer.leader, answer.members = before, []
        return answer

    def _refresh(
        self, known: Participant, request: JoinGroupRequest, offered: dict[str, bytes]
    ) -> None:
        self._undo.keep(known)
        known.protocols = offered
        known.member = replace(
            known.member,
            session_ms=request.session_timeout_ms,
            rebalance_ms=rebalance_ms(request),
        )

    def _rejoin(self, known: Participant, caller: Caller, now: float) -> Ticket:
        self.members.bind(caller, self.roster, known.member.id)
        self._undo.keep(known)
        if known.join is not None:
            again = RebalanceInProgress("the member has joined again")
            self.members.draft.answer(known.join, again)
        ticket = known.join = Ticket()
        self.members.touch(self.roster, known.member, now)
        self._enter_state(JOIN, now)
        self.check_joined(now)
        return ticket

    def _enter_state(self, event: str, now: float) -> None:
        before = self.state
        self._undo.keep(self)
        self.state = TRANSITIONS[before, event]
        if self.state is not PREPARING or before is PREPARING:
            return
        for known in self.participants.values():
            self._undo.keep(known)
            known.synced = False
            if known.sync is not None:
                self.members.draft.answer(known.sync, RebalanceInProgress("a rebalance began"))
                known.sync = None
                self.members.touch(self.roster, known.member, now)
        longest = self._longest()
        delay = self.members.limits.initial_delay_ms / 1000
        if before is EMPTY and delay:
            self.extendable_until, self.newcomers = now + longest, False
            self._set_deadline(now + min(delay, longest))
        else:
            self.extendable_until = None
            self._set_deadline(now + longest)

    def check_joined(self, now: float) -> None:
        """Complete the barrier if nobody is missing."""
        if self.state is not PREPARING or self.extendable_until is not None:
            return
        if self.roster.group.name not in self.members.pending and all(
            known.join is not None for known in self.participants.values()
        ):
            self._complete(now)

    def time_out(self, now: float) -> None:
        """The barrier's deadline is over."""
        if self.state is COMPLETING:
            late = [known for known in self.participants.values() if not known.synced]
            self._enter_state(LATE, now)
            for known in late:
                self.remove(known.member.id, now, "it did not send its SyncGroup in time")
        elif self.state is PREPARING:
            self._undo.keep(self)
            until = self.extendable_until
            if until is not None and self.newcomers and now < until:
                self.newcomers = False
                delay = self.members.limits.initial_delay_ms / 1000
                self._set_deadline(min(now + delay, until))
            else:
                self.extendable_until = None
                self._complete(now)

    def _complete(self, now: float) -> None:
        self._undo.keep(self)
        for known in list(self.participants.values()):
            if known.join is None and known.member.instance_id is None:
                self._forget(known, "it did not rejoin in time")
        joined = [known for known in self.participants.values() if known.join is not None]
        if not joined:
            self._set_deadline(now + self._longest()) if self.participants else self._end(now)
            return
        self.state = TRANSITIONS[self.state, JOINED]
        self.generation = max(self.generation, self.roster.group.generation) + 1
        self.protocol = self._vote()
        if self.leader not in [known.member.id for known in joined]:
            self.leader = joined[0].member.id
        self._set_deadline(now + self._longest())
        for known in joined:
            self.members.touch(self.roster, known.member, now)
            self._undo.keep(known)
            ticket, known.join = known.join, None
            assert ticket is not None
            self.members.draft.answer(ticket, self._joined(known))

    def _vote(self) -> str:
        """The protocol that most prefer among those that all offer."""
        everyone = list(self.participants.values())
        common = [n for n in everyone[0].protocols if all(n in p.protocols for p in everyone)]
        votes = [next(n for n in p.protocols if n in common) for p in everyone]
        return max(common, key=votes.count)

    def _joined(self, known: Participant) -> JoinGroupResponse:
        answer = JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=known.member.id,
        )
        if known.member.id == self.leader:
            answer.members = [
                JoinGroupResponseMember(
                    p.member.id, p.member.instance_id, p.protocols.get(self.protocol, b"")
                )
                for p in self.participants.values()
            ]
        return answer

    # --- SyncGroup, Heartbeat, commits -----------------------------------------------------------

    def sync(
        self, request: SyncGroupRequest, caller: Caller, now: float
    ) -> SyncGroupResponse | Ticket:
        known = self._known(request.member_id, request.group_instance_id, request.generation_id)
        for said, is_so in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol),
        ):
            if said not in (None, is_so):
                raise InconsistentGroupProtocol(f"{said!r} should be {is_so!r}")
        if self.state is PREPARING:
            raise RebalanceInProgress("members are joining")
        self.members.bind(caller, self.roster, known.member.id)
        self.members.touch(self.roster, known.member, now)
        if self.state is STABLE:
            return self._synced(known)
        self._undo.keep(known)
        known.synced = True
        if known.sync is not None:
            again = RebalanceInProgress("the member asked again")
            self.members.draft.answer(known.sync, again)
        ticket = known.sync = Ticket()
        if known.member.id == self.leader:
            self._settle({a.member_id: a.assignment for a in request.assignments}, now)
        return ticket

    def _settle(self, assignments: dict[str, bytes], now: float) -> None:
        self._undo.keep(self)
        for known in self.participants.values():
            self._undo.keep(known)
            known.assignment = assignments.get(known.member.id, b"")
        group = self.roster.group
        gone = [actions.Left(group.id, m) for m in group.members if m not in self.participants]
        self.members.draft.append([*gone, *map(self._durable, self.participants.values())])
        self.state = TRANSITIONS[self.state, SYNC]
        self.members.draft.note(
            *(logger, logging.INFO),
            "group %s: generation %d of %d members, led by %s",
            *(group.name, self.generation, len(self.participants), self.leader),
        )
        for known in self.participants.values():
            if known.sync is not None:
                self.members.touch(self.roster, known.member, now)
                self.members.draft.answer(known.sync, self._synced(known))
                known.sync = None

    def _durable(self, known: Participant) -> actions.Member:
        """Its member as it is stored, in this generation."""
        self._undo.keep(known)
        known.member = replace(
            known.member,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            metadata=pack(known.protocols.get(self.protocol, b"")),
            assignment=pack(known.assignment),
            leader=known.member.id == self.leader,
        )
        return self.members.draft.member_action(self.roster.group, known.member)

    def _synced(self, known: Participant) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=known.assignment,
        )

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: float) -> HeartbeatResponse:
        known = self._known(request.member_id, request.group_instance_id, request.generation_id)
        self.members.bind(caller, self.roster, known.member.id)
        self.members.touch(self.roster, known.member, now)
        if self.state is PREPARING:  # no refusal: the session clock has been set
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def check_commit(self, request: OffsetCommitRequest, now: float) -> None:
        """Raises unless this is a member that may commit now."""
        generation = request.generation_id_or_member_epoch
        known = self._known(request.member_id, request.group_instance_id, generation)
        if self.state is COMPLETING:
            raise RebalanceInProgress("the assignment is not known yet")
        self.members.touch(self.roster, known.member, now)

    def _known(self, member_id: str, instance_id: str | None, generation: int) -> Participant:
        known = self.check_member(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration(f"the generation is {self.generation}")
        return known

    def check_member(self, member_id: str, instance_id: str | None) -> Participant:
        if instance_id is not None:
            mapped = self.roster.instances.get(instance_id)
            if mapped is not None and mapped != member_id:
                raise FencedInstance(f"another one is static member {instance_id!r} now")
        known = self.participants.get(member_id)
        if known is None:
            raise UnknownMember(f"{member_id!r} is no member of {self.roster.group.name!r}")
        return known

    # --- going -----------------------------------------------------------------------------------

    def expire(self, member_id: str, now: float) -> None:
        """A session clock has run out."""
        known = self.participants.get(member_id)
        if known is None:
            return
        if known.join is not None or known.sync is not None:  # it waits for us
            self.members.touch(self.roster, known.member, now)
        else:
            self.remove(member_id, now, "it was silent for its session time-out")

    def remove(self, member_id: str, now: float, why: str) -> None:
        known = self.participants.get(member_id)
        if known is None:
            return
        self._forget(known, why)
        if not self.participants:
            self._end(now)
        else:
            self._enter_state(GONE, now)
            self.check_joined(now)

    def _forget(self, known: Participant, why: str) -> None:
        member, group = known.member, self.roster.group
        self._undo.keep(self)
        del self.participants[member.id]
        if self.leader == member.id:
            self.leader = None
        self._fail(known, UnknownMember(why))
        self.members.deadlines.drop((SESSION, group.id, member.id))
        if member.instance_id and self.roster.instances.get(member.instance_id) == member.id:
            self._undo.item(self.roster.instances, member.instance_id)
            del self.roster.instances[member.instance_id]
        if member.id in group.members:
            self.members.draft.append([actions.Left(group.id, member.id)])
        self.members.draft.note(
            *(logger, logging.INFO, "member %s left group %s: %s"), *(member.id, group.name, why)
        )

    def _end(self, now: float) -> None:
        """Nobody is left: the group is of no sort until the next member joins."""
        self._undo.keep(self)
        self._undo.keep(self.roster)
        if self.state is not EMPTY:
            self.state = TRANSITIONS[self.state, LAST]
        self.members.deadlines.drop((BARRIER, self.roster.group.id))
        self.roster.client_assigned = None
        self.members.tidy(self.roster)

    def _fail(self, known: Participant, error: Exception) -> None:
        self._undo.keep(known)
        for ticket in (known.join, known.sync):
            if ticket is not None:
                self.members.draft.answer(ticket, error)
        known.join = known.sync = None

    def _longest(self) -> float:
        return max((p.member.rebalance_ms for p in self.participants.values()), default=0) / 1000

    def _set_deadline(self, when: float) -> None:
        self.members.deadlines.set((BARRIER, self.roster.group.id), when)
