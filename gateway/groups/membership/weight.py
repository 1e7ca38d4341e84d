"""What the members of all groups may hold together.

A member lives on after its connection, for as long as its session time-out says, and what it said is kept
in memory and in the action log. So there are bounds over all groups: MAX_MEMBERS, and MAX_BYTES of metadata
and assignments; `group.max.size` bounds each group. Both are far above what real groups come to. A member
that says no more than SMALL bytes is bounded by the number of members alone: nobody can lock out ordinary
groups with a few large ones. The sum is taken at most once a second: a few members more or less do not
matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.groups.errors import GroupFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kumquat.core.delivery.state import Group, Groups
    from kumquat.gateway.groups.membership.client_assigned_states import Participant
    from kumquat.gateway.wire import (
        ConsumerGroupHeartbeatRequest,
        JoinGroupRequest,
        ShareGroupHeartbeatRequest,
        SyncGroupRequest,
    )

MAX_MEMBERS = 50_000
MAX_BYTES = 16 << 20
SMALL = 4 << 10
MAX_CLIENT_ID = 255
"""Characters of a client id that are kept, and that a member id begins with."""


class Weight:
    def __init__(self, groups: Groups, joining: Callable[[Group], Iterable[Participant]]) -> None:
        self._groups = groups
        self._joining = joining
        """Who takes part in a group whose leader is a client, and is no member before it has synced."""
        self._taken_at: float | None = None
        self._members = self._bytes = 0

    def check_join(self, group: Group | None, request: JoinGroupRequest, now: float) -> None:
        """Raises GroupFull unless there is room for this member. One that comes again has its place."""
        size = sum(len(offered.metadata) for offered in request.protocols)
        member = None if group is None else group.members.get(request.member_id)
        before = 0 if member is None else _decoded(member.metadata) * len(request.protocols)
        self._add(int(member is None), size - before, now)

    def check_sync(self, group: Group, request: SyncGroupRequest, now: float) -> None:
        """Raises GroupFull unless there is room for a leader's assignments, which replace those before."""
        size = sum(len(given.assignment) for given in request.assignments)
        before = sum(_decoded(member.assignment) for member in group.members.values())
        self._add(0, size - before, now)

    def check_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest, now: float
    ) -> None:
        """Raises GroupFull unless there is room for a member that joins with a heartbeat."""
        self._add(1, sum(map(len, request.subscribed_topic_names or ())), now)

    def _add(self, members: int, size: int, now: float) -> None:
        if self._taken_at is None or now - self._taken_at > 1.0:
            self._take(now)
        size = max(size, 0)
        if members and self._members + members > MAX_MEMBERS:
            raise GroupFull(f"all groups together have {MAX_MEMBERS} members, which is the most")
        if size > SMALL and self._bytes + size > MAX_BYTES:
            raise GroupFull(
                f"with {size} bytes more of metadata or assignments, all groups would hold more "
                f"than {MAX_BYTES}"
            )
        self._members += members
        self._bytes += size

    def _take(self, now: float) -> None:
        self._taken_at = now
        self._members = self._bytes = 0
        for group in self._groups.by_id.values():
            self._members += len(group.members)
            for member in group.members.values():
                self._bytes += _decoded(member.metadata) + _decoded(member.assignment)
            for joining in self._joining(group):
                if joining.member.id not in group.members:
                    self._members += 1
                self._bytes += sum(map(len, joining.protocols.values()))


def _decoded(base64: str) -> int:
    return len(base64) * 3 // 4
