"""InitProducerId: an identity for an idempotent producer. Key 22, versions 0 to 5.

What each version added:
  v1  nothing a client sees
  v2  flexible
  v3  the producer's present id and epoch, to have the epoch raised
  v4, v5  new error codes

Without an id a new one is given, which no producer ever had (the log sees to that). With one, the same id
is given with the next epoch, or a new id when there is no next epoch. Nothing is remembered of it here: the
log takes a higher epoch from the batches themselves.

A transactional id is refused: see common/transactions.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.handlers.common.transactions import refuse_transaction
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.wire import InitProducerIdRequest, InitProducerIdResponse
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session

LAST_EPOCH = 32767


@handles(request=InitProducerIdRequest, response=InitProducerIdResponse, versions=range(6))
async def init_producer_id(
    session: Session, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        raise refuse_transaction(session, request.transactional_id)
    producer_id, epoch = request.producer_id, request.producer_epoch
    if (producer_id < 0) != (epoch < 0):
        raise Refused(ErrorCode.INVALID_REQUEST, "producer id and epoch go together")
    if 0 <= epoch < LAST_EPOCH - 1:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch + 1)
    new_id = await session.broker.log.new_producer_id()
    return InitProducerIdResponse(producer_id=new_id, producer_epoch=0)
