"""Transactions are not served yet. What a producer with a transactional id is told, and what the log says.

No code says "not served", so the codes are chosen by what clients make of them. A producer asks for its
coordinator first (FindCoordinator, key type 1). Up to version 2 of that request the answer is
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: librdkafka, which stays below version 3, takes it as final, and
asks again until its time-out with INVALID_REQUEST. Its error ends with the broker's text. From version 3 on
the answer is INVALID_REQUEST: it is final for Java and others, and Java shows the broker's text with it
(with the other code Java shows its own, "Transactional Id authorization failed").

InitProducerId and Produce have no such choice of versions: TRANSACTIONAL_ID_AUTHORIZATION_FAILED ends every
client. Clients come there only if they found their coordinator earlier, on another broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import Refused
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session

TEXT_SHOWN_SINCE = 3
"""The version of FindCoordinator."""
LONGEST_ID = 100

NOT_SERVED = (
    "Kumquat does not serve transactions yet. Leave transactional.id unset (enable.idempotence=true "
    "works); Flink: DeliveryGuarantee.AT_LEAST_ONCE; Streams: processing.guarantee=at_least_once"
)


def refuse_transaction(session: Session, transactional_id: str) -> Refused:
    """For InitProducerId and Produce; the log says it too."""
    tell(session, transactional_id)
    return Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_SERVED)


def coordinator_refusal(version: int) -> tuple[ErrorCode, str]:
    """For FindCoordinator."""
    if version < TEXT_SHOWN_SINCE:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NOT_SERVED
    return ErrorCode.INVALID_REQUEST, NOT_SERVED


def tell(session: Session, transactional_id: str) -> None:
    """At most one line a minute for each client id and transactional id: clients start again and again."""
    client_id, name = (session.client_id or "")[:LONGEST_ID], transactional_id[:LONGEST_ID]
    session.broker.refusals.warning(
        ("transaction", client_id, name),
        f"{session.peer} (client id {client_id!r}): transactional id {name!r} was refused: {NOT_SERVED}",
    )
