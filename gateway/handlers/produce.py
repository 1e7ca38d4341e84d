"""Produce: batches are staged in the log, and answered when they are as durable as acks asks. Key 0.

Served: versions 3 to 13; advertised from 0 (see api_versions.py). What each version added:
  v3  record batches of magic 2; transactional id
  v4  KAFKA_STORAGE_ERROR
  v5  log start offset in the answer
  v6  nothing a client sees
  v7  zstd may be sent; before, it is refused with UNSUPPORTED_COMPRESSION_TYPE
  v8  error message; errors of single records (of commands alone: else a batch is taken or refused as a
      whole)
  v9  flexible
  v10 leader and endpoints in the answer (left out: the leader is always this broker)
  v11, v12  transactions without AddPartitionsToTxn (no transactions are served)
  v13 topics by id
Ignored: the time-out. An answer to acks=all leaves when the sync is done, however long it takes.

Each batch is looked at once (core/records/look.py). A plain one is staged. A batch that asks something of
the broker, or is too large to be inflated on the event loop, has to wait: from there on the request, in
order, is an `Opening`, which the connection awaits (common/produce_opening.py).
A batch that is all for later is answered with base offset -1: its records have no offset yet.
So is a batch for `__kumquat_retry`, which is obeyed and not stored (common/retry_commands.py).

acks=0 has no answer: when such a request fails, its connection is closed and the log says why, as in Kafka.
What is refused otherwise is in the log too, once in a while for each subject and code: many clients hide
the text of the answer. Two kinds are not: a topic that does not exist is part of a client's normal life,
and a failing disk is reported by the log itself.
Requests that repeat take a shorter way, past this handler: see common/produce_template.py, and remember it
when you change what happens here. A transactional id is refused: see common/transactions.py. A subject
is never created here; Metadata does that.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kumquat.core.records.look import PLAIN
from kumquat.gateway.handlers.common.produce_opening import (
    ALL,
    NONE,
    ZSTD_SINCE,
    check_codec,
    failed,
    is_for_commands,
    log_refusal,
    missing,
    open_rest,
    refused,
)
from kumquat.gateway.handlers.common.produce_template import make_template
from kumquat.gateway.handlers.common.transactions import refuse_transaction
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.topics.table import INTERNAL
from kumquat.gateway.wire import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Opening, Session, Staged


def _refuse(request: ProduceRequest, code: int, message: str) -> ProduceResponse | None:
    if request.acks == NONE:
        return None
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [failed(partition.index, code, message) for partition in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


@handles(
    request=ProduceRequest,
    response=ProduceResponse,
    versions=range(3, 14),
    advertised=range(14),
    appends=True,
    refuse=_refuse,
    template=make_template,
)
def produce(session: Session, request: ProduceRequest) -> Staged | Opening:
    acks = request.acks
    if request.transactional_id is not None:
        raise refuse_transaction(session, request.transactional_id)
    if not -1 <= acks <= 1:
        refusal = Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is none of -1, 0, 1")
        log_refusal(session, ", ".join(topic.name for topic in request.topic_data[:3]), refusal)
        raise refusal
    log = session.broker.log
    append, by_name, limit = log.append_nowait, log.subjects.by_name, log.inflation.limit
    position = 0
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        partitions: list[PartitionProduceResponse] = []
        subject = by_name.get(topic.name) or log.subjects.by_topic_id.get(topic.topic_id)
        for partition in topic.partition_data:
            try:
                if (
                    subject is None
                    or partition.index
                    or partition.records is None
                    or subject.name in INTERNAL
                ):
                    if is_for_commands(subject, partition):
                        done = [answer for t in topics for answer in t.partition_responses]
                        return partial(open_rest, session, request, done + partitions, position)
                    raise missing(topic, partition, subject)
                if session.version < ZSTD_SINCE:
                    check_codec(partition.records)
                look = subject.look(partition.records, limit)
                if look.verdict is not PLAIN:
                    done = [answer for before in topics for answer in before.partition_responses]
                    return partial(open_rest, session, request, done + partitions, position, look)
                base, append_time, end = append(subject, partition.records, look.head)
            except ANSWERABLE as error:
                partitions.append(refused(session, request, topic, partition, error))
            else:
                partitions.append(
                    PartitionProduceResponse(0, 0, base, append_time, subject.earliest)
                )
                if end > position:
                    position = end
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, partitions))
    if acks == NONE:
        return None, 0
    return ProduceResponse(topics), position if acks == ALL else 0
