"""FindCoordinator: which broker looks after a group. It is always this one. Key 10, versions 0 to 6.

What each version added:
  v1  key types, throttle time, error messages
  v2  nothing a client sees
  v3  flexible
  v4  several keys at once, answered one by one
  v5, v6  new error codes; key type 2 (share groups' state), which is for brokers among themselves

Transactions are not served: their key type is refused. The code depends on the version, since clients show
the text of the answer with one code and retry for ever with another: see common/transactions.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.handlers.common.transactions import coordinator_refusal, tell
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session

GROUP, TRANSACTION = 0, 1
MOST_TOLD = 3
"""Transactional ids of one request that the log names."""


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
    refusal = _refusal(session, request)
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


def _refusal(session: Session, request: FindCoordinatorRequest) -> tuple[int, str] | None:
    if request.key_type == GROUP:
        return None
    if request.key_type == TRANSACTION:
        keys = [request.key] if session.version < 4 else request.coordinator_keys
        for key in keys[:MOST_TOLD]:
            tell(session, key)
        return coordinator_refusal(session.version)
    return ErrorCode.INVALID_REQUEST, f"key type {request.key_type} is not served"
