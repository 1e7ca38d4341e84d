"""FindCoordinator: which broker looks after a group. It is always this one. Key 10, versions 0 to 6.

What each version added:
  v1  key types, throttle time, error messages
  v2  nothing a client sees
  v3  flexible
  v4  several keys at once, answered one by one
  v5, v6  new error codes; key type 2 (share groups' state), which is for brokers among themselves

Transactions are not served: their key type is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one
code that all clients take as final. With other codes they would retry for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session

GROUP, TRANSACTION = 0, 1


def _refuse(request: FindCoordinatorRequest, code: int, message: str) -> FindCoordinatorResponse:
    return _refuse_one(code, message) if request.key else _refuse_each(request, code, message)


def _refuse_one(code: int, message: str) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, port=-1)


def _refuse_each(
    request: FindCoordinatorRequest, code: int, message: str
) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )


@handles(
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    versions=range(7),
    refuse=_refuse,
)
async def find_coordinator(
    session: Session, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    refusal = _refusal(request.key_type)
    if refusal is None:
        await session.broker.subjects.make_internal()
    node_id, endpoint = session.broker.node_id, session.endpoint
    if session.version < 4:  # an empty key looks like no key at all
        if refusal is not None:
            return _refuse_one(*refusal)
        return FindCoordinatorResponse(node_id=node_id, host=endpoint.host, port=endpoint.port)
    if refusal is not None:
        return _refuse_each(request, *refusal)
    found = []
    turn = Turn()
    for key in request.coordinator_keys:
        found.append(Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port))
        if turn.over:
            await turn.give_way()
    return FindCoordinatorResponse(coordinators=found)


def _refusal(key_type: int) -> tuple[int, str] | None:
    if key_type == GROUP:
        return None
    if key_type == TRANSACTION:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return code, "transactions are not served yet"
    return ErrorCode.INVALID_REQUEST, f"key type {key_type} is not served"
