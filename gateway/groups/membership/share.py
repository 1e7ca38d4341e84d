"""Members of a share group (KIP-932): all through ShareGroupHeartbeat.

    epoch 0       joins; the client chooses its member id. With an id that is known it says all again, and
                  keeps what it has leased: a client that lost an answer, or was fenced, goes on with it
    epoch n       goes on; the current epoch or, where the answer was lost, the one before
    epoch -1      leaves. While its share session is open it keeps what it has leased: a client that
                  closes leaves and acknowledges at the same time, on two connections. The end of the
                  session, or of the lock, gives back what is left. Without a session that is done at once

Every member reads every subject of its subscription that exists (assignment/division.py: a share group is
always SHARING), so an assignment is complete in the answer to the join. It is told again when it has
changed, in a new epoch: with the next heartbeat after a subject was created or deleted, or at once when
the member changes its subscription. A member that waits for a subject is told a short heartbeat interval.

A subject that a member no longer reads stays in its `holds` until all that it has leased there is settled:
its client may still acknowledge it, as in Kafka.

A group is of one type. Who comes with a share heartbeat to a group that has members or positions of another
type is answered GROUP_ID_NOT_FOUND, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.core.delivery.state import SHARE, Member
from kumquat.gateway.groups.assignment.sharers import software_of
from kumquat.gateway.groups.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    InvalidRequest,
    UnknownMember,
)
from kumquat.gateway.groups.membership.members import check_group_id
from kumquat.gateway.wire import (
    ShareGroupAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareTopicPartitions,
)

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group
    from kumquat.gateway.groups.membership.members import Caller, Members
    from kumquat.gateway.groups.membership.roster import Presence, Roster

JOIN, LEAVE = 0, -1
MAX_MEMBER_ID = 36
"""Characters: a UUID as text."""
WAITING_MS = 500
"""The heartbeat interval of a member that is subscribed to a subject that does not exist yet."""

Request = ShareGroupHeartbeatRequest
Response = ShareGroupHeartbeatResponse


class Share:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._divisions = members.divisions
        self._draft = members.draft
        self._undo = members.draft.undo

    def heartbeat(
        self, request: Request, caller: Caller, now: float, *, in_session: bool = False
    ) -> Response:
        """`in_session`: the member has a share session."""
        _check(request)
        if request.member_epoch == LEAVE:
            return self._leave(request, now, in_session)
        if request.member_epoch == JOIN:
            roster, presence = self._join(request, caller, now)
        else:
            roster, presence = self._go_on(request, now)
        self._members.touch(roster, roster.group.members[presence.id], now)
        return self._answer(roster, presence, request, now)

    # --- coming, going on, going -----------------------------------------------------------------

    def _join(self, request: Request, caller: Caller, now: float) -> tuple[Roster, Presence]:
        check_type(self._members, self._draft.groups.by_name.get(request.group_id))
        group = self._draft.make_group(request.group_id)
        roster = self._members.roster(group)
        presence = roster.presences.get(request.member_id)
        if presence is None:
            self._members.check_room(roster)
            member = self._member(group, request, caller)
            return roster, self._members.enter(roster, member, now)
        self._undo.keep(presence)
        presence.told, presence.previous_epoch = None, -1
        said = {"client_id": caller.client_id, "host": caller.host, "software": software_of(caller)}
        self._update(roster, presence, request, now, generation=group.generation + 1, **said)
        return roster, presence

    def _member(self, group: Group, request: Request, caller: Caller) -> Member:
        return Member(
            id=request.member_id,
            generation=group.generation + 1,
            kind=SHARE,
            client_id=caller.client_id,
            host=caller.host,
            session_ms=self._members.world.config(group.name).share_session_timeout_ms,
            rebalance_ms=0,
            rack=request.rack_id,
            subscription=list(dict.fromkeys(request.subscribed_topic_names or ())),
            protocol_type=SHARE,
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
        return roster, presence

    def _find(self, request: Request) -> tuple[Roster, Member]:
        group = self._draft.groups.by_name.get(request.group_id)
        if group is None or not group.is_share:
            raise GroupIdNotFound(f"there is no share group {request.group_id!r}")
        roster = self._members.peek(group)
        member = group.members.get(request.member_id)
        if member is None or member.id not in roster.presences:
            raise UnknownMember(f"{request.member_id!r} is no member of {request.group_id!r}")
        return roster, member

    def _update(
        self, roster: Roster, presence: Presence, request: Request, now: float, **changes: Any
    ) -> None:
        """What a member says of itself, and the session time-out that its group's config has now."""
        member, group = roster.group.members[presence.id], roster.group
        changes["session_ms"] = self._members.world.config(group.name).share_session_timeout_ms
        if request.rack_id is not None:
            changes["rack"] = request.rack_id
        if request.subscribed_topic_names is not None:
            changes["subscription"] = list(dict.fromkeys(request.subscribed_topic_names))
        if all(getattr(member, name) == value for name, value in changes.items()):
            return
        before = member.subscription
        if self._draft.put(group, member, **changes).subscription != before:
            self._members.resubscribe(roster, presence, now)

    def _leave(self, request: Request, now: float, in_session: bool) -> Response:
        roster, member = self._find(request)
        self._members.leave(roster, member, now, "it left", keeps=in_session)
        return Response(member_id=member.id, member_epoch=LEAVE)

    # --- the answer ------------------------------------------------------------------------------

    def _answer(self, roster: Roster, presence: Presence, request: Request, now: float) -> Response:
        group = roster.group
        full = request.member_epoch == JOIN or request.subscribed_topic_names is not None
        if full or presence.told is None or presence.seen != roster.version:
            return self._look(roster, presence, full, request.member_epoch == JOIN, now)
        member = group.members[presence.id]
        usual = self._members.world.config(group.name).share_heartbeat_interval_ms
        return Response(
            member_id=member.id, member_epoch=member.generation, heartbeat_interval_ms=usual
        )

    def _look(
        self, roster: Roster, presence: Presence, full: bool, joins: bool, now: float
    ) -> Response:
        """The answer, when something may have changed since the last one."""
        self._undo.keep(presence)
        group = roster.group
        left = self._settle(roster, presence, now)
        self._divisions.take_up(roster, presence, now)
        member = group.members[presence.id]
        told = frozenset(subject_id for subject_id in member.holds if subject_id in presence.topics)
        if presence.told is not None and told != presence.told and not joins:
            presence.previous_epoch = member.generation
            member = self._draft.put(group, member, generation=group.generation + 1)
        usual = self._members.world.config(group.name).share_heartbeat_interval_ms
        by_name = self._members.world.subjects.by_name
        waits = any(name not in by_name for name in member.subscription)
        if not (left or waits):
            presence.seen = roster.version
        response = Response(
            member_id=member.id,
            member_epoch=member.generation,
            heartbeat_interval_ms=min(WAITING_MS, usual) if waits else usual,
        )
        if full or told != presence.told:
            response.assignment = self._assignment(told)
        presence.told = told
        return response

    def _settle(self, roster: Roster, presence: Presence, now: float) -> bool:
        """Let go of subjects that it no longer reads, where it has leased nothing; whether one is left."""
        group = roster.group
        holds = group.members[presence.id].holds
        unread = {
            subject_id: slot
            for subject_id, slot in holds.items()
            if subject_id not in presence.topics
        }
        free = [s for s, slot in unread.items() if not group.progress[s].pull_logs[slot].leases]
        if free:
            self._divisions.drop(roster, presence, free, now)
        return len(free) < len(unread)

    def _assignment(self, subject_ids: frozenset[int]) -> ShareGroupAssignment:
        by_id = self._members.world.subjects.by_id
        return ShareGroupAssignment(
            [
                ShareTopicPartitions(by_id[subject_id].topic_id, [0])
                for subject_id in sorted(subject_ids)
                if subject_id in by_id
            ]
        )


def check_type(members: Members, group: Group | None) -> None:
    """Raises GroupIdNotFound unless a group is a share group, or nothing yet that it could not become."""
    if group is None or group.is_share:
        return
    if group.progress or not members.is_empty(group):
        raise GroupIdNotFound(f"{group.name!r} is no share group: it has members or offsets")


def _check(request: Request) -> None:
    if not request.group_id:
        raise InvalidRequest("a group id cannot be empty")
    check_group_id(request.group_id)
    if not 0 < len(request.member_id) <= MAX_MEMBER_ID:
        raise InvalidRequest(
            f"a member chooses its id, of 1 to {MAX_MEMBER_ID} characters; "
            f"this one has {len(request.member_id)}"
        )
    if request.rack_id == "":
        raise InvalidRequest("a rack id cannot be empty")
    if request.member_epoch < LEAVE:
        raise InvalidRequest(f"{request.member_epoch} is no member epoch")
    if request.member_epoch == JOIN and not request.subscribed_topic_names:
        raise InvalidRequest("who joins must subscribe to a topic")
