"""DeleteGroups: groups without members are forgotten, with all their positions. Key 42, versions 0 to 2.

What each version added:
  v1  nothing a client sees
  v2  flexible

A group with members is NON_EMPTY_GROUP, one that is not there GROUP_ID_NOT_FOUND. A group with messages
whose dead letters are not written yet is deleted when they are; if that takes longer than PATIENCE, it is
NON_EMPTY_GROUP too, and the broker's log says why. Answered when it is durable. A group's configs belong to
its name and stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session

PATIENCE = 5.0
"""How long a request waits for dead letters, seconds. As a rule they are written in milliseconds."""


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
    names = list(dict.fromkeys(request.groups_names))
    await broker.dead_letters.wait_written(names, PATIENCE)
    codes = await broker.coordinator.delete_groups(names)
    results = [DeletableGroupResult(n, code) for n, code in zip(names, codes, strict=True)]
    return DeleteGroupsResponse(results=results)
