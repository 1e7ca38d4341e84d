"""All groups: which sort a request is for, what happens when time passes, what the broker reports.
Decisions.

Every method takes `now` (seconds of any clock that does not go back), and neither waits nor blocks. What it
does goes to the draft (draft.py); coordinator.py carries it out, or takes all of it back when a method
raises. A JoinGroup or SyncGroup that cannot be answered yet gives a Ticket.

At start members are taken over, and their session clocks go on (members.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kumquat.core.delivery import actions, lifetimes
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.core.delivery.engine import Allowed
from kumquat.gateway.groups.assignment.division import Divisions, leave_to_strangers
from kumquat.gateway.groups.assignment.modes import TIMER, World
from kumquat.gateway.groups.deletion import Deletion
from kumquat.gateway.groups.errors import (
    FencedInstance,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    UnknownMember,
)
from kumquat.gateway.groups.failures import Failure, Failures
from kumquat.gateway.groups.membership.classic import Classic
from kumquat.gateway.groups.membership.client_assigned import BARRIER, ClientAssigned
from kumquat.gateway.groups.membership.consumer import Consumer
from kumquat.gateway.groups.membership.members import (
    HOLD,
    PENDING,
    REBALANCE,
    SESSION,
    SILENCE,
    Caller,
    Limits,
    Members,
    check_group_id,
    is_client_assigned,
)
from kumquat.gateway.groups.membership.protocol import (
    CONSUMER,
    STANDARD,
    choose_standard,
)
from kumquat.gateway.groups.membership.roster import HELD, TAKE, Roster, Step, Ticket
from kumquat.gateway.groups.membership.share import Share
from kumquat.gateway.groups.membership.weight import Weight
from kumquat.gateway.groups.offsets import Offsets
from kumquat.gateway.groups.repair import repair
from kumquat.gateway.wire import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.core.delivery.state import Group
    from kumquat.gateway.groups.deadlines import Deadlines, Key
    from kumquat.gateway.groups.draft import Draft, Pair
    from kumquat.gateway.groups.membership.client_assigned_states import Participant
    from kumquat.gateway.groups.offsets import Position

ADDED, REMOVED = "added", "removed"
"""Deadlines: (ADDED, subject id) and (REMOVED, …) when a change of subjects that could not be written is
tried again."""
ALLOWED = {Step.SHARING: Allowed.ALL, Step.DRAINING: Allowed.AGAIN}

logger = logging.getLogger(__name__)


class Decisions:
    def __init__(self, draft: Draft, deadlines: Deadlines, world: World, limits: Limits) -> None:
        self.groups = draft.groups
        self.deadlines = deadlines
        self._world = world
        self._limits = limits
        self._draft = draft
        self._divisions = Divisions(draft, world, deadlines)
        self._members = Members(draft, self._divisions, deadlines, world, limits)
        self._classic = Classic(self._members)
        self._consumer = Consumer(self._members)
        self._share = Share(self._members)
        self._offsets = Offsets(self._members)
        self._failures = Failures(self._members)
        self._deletion = Deletion(self._members)
        self.delete_offsets = self._deletion.delete_offsets
        self.delete_group = self._deletion.delete_group
        self._weight = Weight(draft.groups, self._joining)
        self.patterns = self._members.patterns

    # --- requests --------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        caller: Caller,
        now: float,
        *,
        needs_id: bool,
        can_skip: bool,
    ) -> JoinGroupResponse | Ticket:
        """`needs_id`: a client that comes without an id is sent back with one (version 4 on). `can_skip`:
        it may be told to lead without assigning (version 9 on)."""
        check_group_id(request.group_id)
        limits = self._limits
        if not limits.min_session_ms <= request.session_timeout_ms <= limits.max_session_ms:
            raise InvalidSessionTimeout(
                f"a session time-out of {limits.min_session_ms} to {limits.max_session_ms} ms, "
                f"not {request.session_timeout_ms}"
            )
        if not request.protocol_type or not request.protocols:
            raise InconsistentGroupProtocol("a member has to offer a protocol")
        group = self.groups.by_name.get(request.group_id)
        if group is not None and group.is_share:
            raise InconsistentGroupProtocol(f"{request.group_id!r} is a share group")
        client_assigned = self._is_client_assigned(group, request)
        self._check_member_id(group, request)
        if not request.member_id and request.group_instance_id is None and needs_id:
            prefix, session_ms = caller.client_id, request.session_timeout_ms
            member_id = self._members.give_id(request.group_id, prefix, session_ms, now)
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        self._weight.check_join(group, request, now)
        roster = self._members.roster(group or self._draft.make_group(request.group_id))
        if not client_assigned:
            return self._classic.join(roster, request, caller, now)
        if roster.client_assigned is None:
            self._unshare(roster.group)
            self._draft.undo.keep(roster)
            roster.client_assigned = ClientAssigned(self._members, roster, request.protocol_type)
        return roster.client_assigned.join(request, caller, now, can_skip=can_skip)

    def _joining(self, group: Group) -> Iterable[Participant]:
        client_assigned = self.client_assigned(group)
        return () if client_assigned is None else client_assigned.participants.values()

    def _is_client_assigned(self, group: Group | None, request: JoinGroupRequest) -> bool:
        client_assigned = self.client_assigned(group) if group is not None else None
        if client_assigned is not None:
            client_assigned.check_protocols(request)
            return True
        standard = choose_standard(request.protocols) if request.protocol_type == CONSUMER else None
        if group is not None and group.members:
            if standard is None:
                raise InconsistentGroupProtocol(
                    f"group {group.name!r} is served by the broker: {', '.join(sorted(STANDARD))}"
                )
            return False
        return standard is None or request.protocols[0].name not in STANDARD

    def _check_member_id(self, group: Group | None, request: JoinGroupRequest) -> None:
        """An id must be that of a member, or one that was given."""
        member_id = request.member_id
        if not member_id:
            return
        if group is not None:
            roster = self._members.peek(group)
            if request.group_instance_id is not None:
                known = roster.instances.get(request.group_instance_id)
                if known is not None and known != member_id:
                    raise FencedInstance(f"another one is {request.group_instance_id!r} now")
            if member_id in roster.presences or (
                roster.client_assigned is not None
                and member_id in roster.client_assigned.participants
            ):
                return
        if member_id not in self._members.pending.get(request.group_id, ()):
            raise UnknownMember(f"{member_id!r} is no member of {request.group_id!r}")

    def sync(
        self, request: SyncGroupRequest, caller: Caller, now: float
    ) -> SyncGroupResponse | Ticket:
        client_assigned = self._client_assigned(request.group_id)
        if client_assigned is not None and request.assignments:
            self._weight.check_sync(self.groups.by_name[request.group_id], request, now)
        return (client_assigned or self._classic).sync(request, caller, now)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: float) -> HeartbeatResponse:
        client_assigned = self._client_assigned(request.group_id)
        return (client_assigned or self._classic).heartbeat(request, caller, now)

    def leave(
        self, group_id: str, member_id: str, instance_id: str | None, caller: Caller, now: float
    ) -> None:
        check_group_id(group_id)
        if member_id in self._members.pending.get(group_id, ()):
            self._arrived(group_id, member_id, now)
            return
        group = self.groups.by_name.get(group_id)
        if group is None:
            raise UnknownMember(f"there is no group {group_id!r}")
        roster = self._members.peek(group)
        if not member_id and instance_id is not None:  # an admin asks: whoever that is
            member_id = roster.instances.get(instance_id, "")
        if caller.bound.get(group_id) == member_id:
            self._members.unbind(caller, group_id)
        if roster.client_assigned is not None:
            roster.client_assigned.check_member(member_id, instance_id)
            roster.client_assigned.remove(member_id, now, "it left")
        else:
            roster, member = self._members.find(group_id, member_id, instance_id)
            self._members.leave(roster, member, now, "it left")

    def relieve(
        self, group_id: str, member_id: str, instance_id: str | None, *, share: bool
    ) -> bool:
        """Before a member leaves: have it give back some of what it holds. False: there is nothing to do,
        or nobody of that id, as the leave will say. `share`: it leaves as the member of a share group."""
        group = self.groups.by_name.get(group_id)
        if group is None or group.is_share != share:
            return False
        roster = self._members.peek(group)
        if not member_id and instance_id is not None:
            member_id = roster.instances.get(instance_id, "")
        known = instance_id is None or roster.instances.get(instance_id) == member_id
        if not known or member_id not in roster.presences:
            return False
        return self._members.relieve(roster, group.members[member_id])

    def _arrived(self, group_id: str, member_id: str, now: float) -> None:
        """An id that was given is no longer waited for."""
        self._members.arrived(group_id, member_id)
        client_assigned = self._client_assigned(group_id)
        if client_assigned is not None:
            client_assigned.check_joined(now)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: float
    ) -> ConsumerGroupHeartbeatResponse:
        group = self.groups.by_name.get(request.group_id)
        if self._client_assigned(request.group_id) is not None or (
            group is not None and group.is_share
        ):
            raise GroupIdNotFound(f"{request.group_id!r} is no group of consumers")
        if request.member_epoch == 0:
            self._weight.check_heartbeat(request, now)
        return self._consumer.heartbeat(request, caller, now)

    def share_heartbeat(
        self,
        request: ShareGroupHeartbeatRequest,
        caller: Caller,
        now: float,
        *,
        in_session: bool = False,
    ) -> ShareGroupHeartbeatResponse:
        if request.member_epoch == 0:
            self._weight.check_heartbeat(request, now)
        return self._share.heartbeat(request, caller, now, in_session=in_session)

    def commit(self, request: OffsetCommitRequest, caller: Caller, now: float) -> list[int]:
        """A code per partition, in the order of the request. GroupError: for all of it."""
        return self._offsets.commit(request, caller, now)

    def reset(self, group: Group, subject_id: int, sequence: int, now: float) -> None:
        """Have a group without members go on there, as if it had never read the subject before."""
        self._offsets.reset(group, subject_id, sequence, now)

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        epoch: int,
        topics: Iterable[tuple[str, Iterable[int]]] | None,
        caller: Caller,
    ) -> list[Position]:
        """Positions in the order asked; `topics` None: all that there are. GroupError: for all of it."""
        return self._offsets.fetch(group_id, member_id, epoch, topics, caller)

    def _client_assigned(self, group_id: str) -> ClientAssigned | None:
        check_group_id(group_id)
        group = self.groups.by_name.get(group_id)
        return None if group is None else self.client_assigned(group)

    def _unshare(self, group: Group) -> None:
        """A client-assigned group reads plain offsets."""
        for subject_id, progress in list(group.progress.items()):
            if progress.shared:
                leave_to_strangers(self._draft, group, subject_id, self._world.now_ms())

    def fail(self, failure: Failure, now: float) -> None:
        """A client says which message it could not handle. Raises Refused."""
        self._failures.fail(failure, now)

    # --- time ------------------------------------------------------------------------------------

    def passed(self, key: Key, now: float) -> None:
        """A deadline has passed."""
        kind = key[0]
        if kind == PENDING:
            self._arrived(key[1], key[2], now)
            return
        if kind == SILENCE:
            self._members.count_silence(now)
            return
        if kind in (ADDED, REMOVED):
            self._subject_changed(kind, key[1], now)
            return
        roster = self._members.rosters.get(key[1])
        if roster is None:
            return
        if self.groups.by_id.get(key[1]) is not roster.group:
            self._members.drop(roster)
            return
        if kind == TIMER:
            if key[2] in roster.divisions:
                self._divisions.advance(roster, key[2], now)
                self._members.tidy(roster)
        elif roster.client_assigned is not None:
            if kind == BARRIER:
                roster.client_assigned.time_out(now)
            elif kind == SESSION:
                roster.client_assigned.expire(key[2], now)
        elif key[-1] in roster.presences:
            self._member_passed(kind, roster, key[2], now)

    def _member_passed(self, kind: str, roster: Roster, member_id: str, now: float) -> None:
        member, presence = roster.group.members[member_id], roster.presences[member_id]
        if kind == HOLD:
            self._classic.answer_held(roster, presence, now, late=True)
        elif self._members.relieve(roster, member, failed=True):
            self.deadlines.set((kind, roster.group.id, member_id), now)  # and the rest at once
        elif kind == SESSION:
            why = "it was silent for its session time-out"
            self._members.leave(roster, member, now, why, failed=True)
        elif kind == REBALANCE:
            why = "it did not rejoin within its time-out"
            self._members.leave(roster, member, now, why, failed=True)

    # --- what the rest of the broker tells -------------------------------------------------------

    def start(self, now: float) -> None:
        """Take over what the action log knows."""
        repair(self._draft, self._world.subjects)
        for group in list(self.groups.by_id.values()):
            shares = any(progress.shared for progress in group.progress.values())
            if is_client_assigned(group):
                roster = self._members.roster(group)
                self._draft.undo.keep(roster)
                roster.client_assigned = ClientAssigned.restored(self._members, roster, now)
            elif group.name == INTERNAL_GROUP:
                continue
            elif group.members or (shares and not group.is_share):
                self._members.resume(self._members.roster(group), now)
        self._members.count_silence(now)

    def expire(self, group_ids: Iterable[int]) -> int:
        """Forget offsets past their retention, and groups that are nothing any more; how many of both.
        Share groups stay until they are deleted, as in Kafka."""
        count = 0
        for gid in group_ids:
            group = self.groups.by_id.get(gid)
            if group is None or group.is_share or group.name == INTERNAL_GROUP:
                continue
            if self.client_assigned(group) is None:
                count += self._expire(group)
        return count

    def _expire(self, group: Group) -> int:
        roster, limits = self._members.peek(group), self._limits
        in_use = {
            subject_id for subject_id, division in roster.divisions.items() if division.in_use
        }
        now_ms, retention_ms = self._world.now_ms(), limits.offsets_retention_ms
        changes = lifetimes.expired(group, in_use, now_ms, retention_ms, limits.offsets_check_ms)
        self._draft.append(changes)
        for change in changes:
            if isinstance(change, actions.Forget):
                self._members.drop(roster)
                self._info("group %s: expired with its offsets", group.name)
            else:
                self._divisions.forget(roster, change.subject_id)
                self._info(
                    "group %s: its offset of subject %d expired", group.name, change.subject_id
                )
        return len(changes)

    def _info(self, text: str, *arguments: object) -> None:
        self._draft.note(logger, logging.INFO, text, *arguments)

    def _subject_changed(self, kind: str, subject_id: int, now: float) -> None:
        """A new subject is told to those who are subscribed to it. One that was deleted is forgotten by all
        groups, and members that held it are told."""
        subject = self._world.subjects.by_id.get(subject_id)
        if kind == REMOVED:
            self._draft.append([actions.Gone(subject_id)])
            self._members.subject_removed(subject_id)
        elif subject is not None:
            self._members.subject_added(subject, now)

    def config_changed(self, group_id: str | None, subject_id: int | None, now: float) -> None:
        """The config of a group, or of a subject for all groups, was altered."""
        for roster in list(self._members.rosters.values()):
            if group_id is None or roster.group.name == group_id:
                for division in [subject_id] if subject_id is not None else list(roster.divisions):
                    if division in roster.divisions:
                        self._divisions.advance(roster, division, now)

    def request_rebalance(self, group: Group, member_id: str, now: float) -> None:
        """Take all pull logs from a member and give it new ones: what it had not acked is shared again."""
        roster = self._members.roster(group)
        presence, member = roster.presences.get(member_id), group.members.get(member_id)
        if presence is None or member is None or group.is_share:
            return
        held = [
            subject_id
            for subject_id, slot in member.holds.items()
            if slot and self._divisions.phase(roster, presence, subject_id) is HELD
        ]
        self._divisions.move(roster, presence, TAKE, held, now)

    # --- afterwards ------------------------------------------------------------------------------

    def answer_held(self, pairs: Iterable[Pair], now: float) -> None:
        """Answer the JoinGroups that waited for a change of these subjects, if there is nothing more to
        wait for."""
        for gid, subject_id in pairs:
            roster = self._members.rosters.get(gid)
            if roster is None:
                continue
            division = roster.divisions.get(subject_id)  # None: the subject was deleted
            concerned = roster.presences if division is None else division.subscribers
            for presence in list(concerned.values()):
                if presence.ticket is not None:
                    self._classic.answer_held(roster, presence, now)

    def adopt(self, gid: int) -> None:
        """A group that a decision has made exists now: its roster was built on the draft of it."""
        roster = self._members.rosters.get(gid)
        if roster is not None:
            roster.group = self.groups.by_id[gid]

    def allowed(self, pairs: Iterable[Pair]) -> dict[Pair, Allowed]:
        """What may be handed out there."""
        found = {}
        for gid, subject_id in pairs:
            roster = self._members.rosters.get(gid)
            division = None if roster is None else roster.divisions.get(subject_id)
            step = None if division is None else division.step
            found[gid, subject_id] = (
                Allowed.NOTHING if step is None else ALLOWED.get(step, Allowed.NOTHING)
            )
        return found

    # --- for those who look ----------------------------------------------------------------------

    def step(self, group: Group, subject_id: int) -> Step | None:
        """Where the division of a subject stands; None: nobody is subscribed to it."""
        roster = self._members.rosters.get(group.id)
        division = None if roster is None else roster.divisions.get(subject_id)
        return None if division is None else division.step

    def sharers(self, group: Group, subject_id: int) -> int:
        roster = self._members.rosters.get(group.id)
        division = None if roster is None else roster.divisions.get(subject_id)
        return 0 if division is None else len(division.pull)

    def why_exclusive(self, group: Group) -> str:
        """Why a group with several members does not share, where that is for their clients; or nothing."""
        roster = self._members.rosters.get(group.id)
        divisions = () if roster is None else roster.divisions.values()
        return next((division.reason for division in divisions if division.reason), "")

    def client_assigned(self, group: Group) -> ClientAssigned | None:
        roster = self._members.rosters.get(group.id)
        return None if roster is None else roster.client_assigned
