"""DeleteGroups: groups without members are forgotten, with all their positions. Key 42, versions 0 to 2.

What each version added:
  v1  nothing a client sees
  v2  flexible

A group with members is NON_EMPTY_GROUP, one that is not there GROUP_ID_NOT_FOUND. Answered when it is
durable. A group's configs belong to its name and stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.actions import Forget
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Groups
    from kumquat.gateway.net.dispatch import Session


def _refuse(request: DeleteGroupsRequest, code: int, message: str) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(name, code) for name in request.groups_names]
    )


@handles(
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    versions=range(3),
    refuse=_refuse,
)
async def delete_groups(session: Session, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    broker = session.broker
    groups = broker.coordinator.groups
    names = list(dict.fromkeys(request.groups_names))
    codes: dict[str, ErrorCode] = {}
    turn = Turn()
    for name in names:
        codes[name] = _check(groups, name)
        if turn.over:
            await turn.give_way()
    found = [name for name in names if codes[name] == ErrorCode.NONE]
    codes |= {name: _check(groups, name) for name in found}  # others had their turn meanwhile
    gone = [groups.by_name[name] for name in found if codes[name] == ErrorCode.NONE]
    if gone:
        await broker.coordinator.change([Forget(group.id) for group in gone])
    return DeleteGroupsResponse(results=[DeletableGroupResult(n, codes[n]) for n in names])


def _check(groups: Groups, name: str) -> ErrorCode:
    if not name:
        return ErrorCode.INVALID_GROUP_ID
    group = groups.by_name.get(name)
    if group is None or name == INTERNAL_GROUP:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE
