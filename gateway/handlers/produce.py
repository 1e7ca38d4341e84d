"""Produce: batches are staged in the log, and answered when they are as durable as acks asks. Key 0.

Served: versions 3 to 13; advertised from 0 (see api_versions.py). What each version added:
  v3  record batches of magic 2; transactional id
  v4  KAFKA_STORAGE_ERROR
  v5  log start offset in the answer
  v6  nothing a client sees
  v7  zstd may be sent; before, it is refused with UNSUPPORTED_COMPRESSION_TYPE
  v8  error message; errors of single records (never given: a batch is taken or refused as a whole)
  v9  flexible
  v10 leader and endpoints in the answer (left out: the leader is always this broker)
  v11, v12  transactions without AddPartitionsToTxn (no transactions are served)
  v13 topics by id
Ignored: the time-out. An answer to acks=all leaves when the sync is done, however long it takes.

A batch with records for later (or one that may hold some: it is compressed) has to be opened, which the log
refuses to do (MustOpen) and the delay service does. The rest of its request, from that batch on, is then
done in order by an `Opening`, which the connection awaits.
A batch that is all for later is answered with base offset -1: its records have no offset yet.

acks=0 has no answer: when such a request fails, its connection is closed and the log says why, as in Kafka.
What is refused otherwise is in the log too, once in a while for each subject and code: many clients hide
the text of the answer. Two kinds are not: a topic that is not there is part of a client's normal life, and
that the disk fails is told by the log itself.
Requests that repeat take a shorter way, past this handler: see common/produce_template.py, and think of
it when you change what happens here. A transactional id is refused: see find_coordinator.py. A subject
is never made here; Metadata does that.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kumquat.core.errors import InvalidRecord, MustOpen, UnsupportedCompression
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, read_head
from kumquat.gateway.handlers.common.produce_template import ALL, ZSTD_SINCE, make_template
from kumquat.gateway.net.dispatch import ANSWERABLE, Disconnect, Refused, handles
from kumquat.gateway.topics.table import INTERNAL
from kumquat.gateway.wire import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.logs.messages.writer import Appended
    from kumquat.gateway.net.dispatch import Answerable, Opening, Session, Staged
    from kumquat.gateway.wire import PartitionProduceData, TopicProduceData

NONE = 0
ZSTD = 4
LONGEST_ID = 100
UNTOLD = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


def _refuse(request: ProduceRequest, code: int, message: str) -> ProduceResponse | None:
    if request.acks == NONE:
        return None
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [_failed(partition.index, code, message) for partition in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _failed(index: int, code: int, message: str) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, error_message=message
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
    if request.transactional_id is not None or not -1 <= acks <= 1:
        refused = _refusal(request)
        _tell(session, ", ".join(topic.name for topic in request.topic_data[:3]), refused)
        raise refused
    log = session.broker.log
    append, by_name = log.append_nowait, log.subjects.by_name
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
                    raise _missing(topic, partition, subject)
                if session.version < ZSTD_SINCE:
                    _check_codec(partition.records)
                base, append_time, end = append(subject, partition.records)
            except MustOpen:
                done = [answer for before in topics for answer in before.partition_responses]
                return partial(_open_rest, session, request, done + partitions, position)
            except ANSWERABLE as error:
                partitions.append(_refused(session, request, topic, partition, error))
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


async def _open_rest(
    session: Session, request: ProduceRequest, done: list[PartitionProduceResponse], position: int
) -> Staged:
    """Produce from the first batch on that has to be opened; `done`: what those before are answered.

    Each batch is written before the next: nothing may stay staged over a wait."""
    subjects = session.broker.log.subjects
    answers = iter(done)
    topics = []
    for topic in request.topic_data:
        partitions = []
        subject = subjects.by_name.get(topic.name) or subjects.by_topic_id.get(topic.topic_id)
        for partition in topic.partition_data:
            answer = next(answers, None)
            if answer is None:
                try:
                    base, append_time, end = await _write(session, topic, partition, subject)
                except ANSWERABLE as error:
                    answer = _refused(session, request, topic, partition, error)
                else:
                    assert subject is not None
                    answer = PartitionProduceResponse(0, 0, base, append_time, subject.earliest)
                    position = max(position, end)
            partitions.append(answer)
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, partitions))
    if request.acks == NONE:
        return None, 0
    return ProduceResponse(topics), position if request.acks == ALL else 0


async def _write(
    session: Session,
    topic: TopicProduceData,
    partition: PartitionProduceData,
    subject: Subject | None,
) -> Appended:
    if subject is None or subject.deleted or partition.index or partition.records is None:
        raise _missing(topic, partition, subject)
    if subject.name in INTERNAL:
        raise _missing(topic, partition, subject)
    if session.version < ZSTD_SINCE:
        _check_codec(partition.records)
    log = session.broker.log
    try:
        appended = log.append_nowait(subject, partition.records)
    except MustOpen:
        return await session.broker.delay.produce(subject, partition.records)
    log.write_nowait()
    return appended


def _refused(
    session: Session,
    request: ProduceRequest,
    topic: TopicProduceData,
    partition: PartitionProduceData,
    error: Answerable,
) -> PartitionProduceResponse:
    name = topic.name or topic.topic_id.hex()
    if request.acks == NONE:
        raise Disconnect(f"Produce to {name!r} with acks=0 failed: {error}") from error
    _tell(session, name, error)
    return _failed(partition.index, error.error_code, str(error))


def _tell(session: Session, name: str, error: Answerable) -> None:
    code = ErrorCode(error.error_code)
    if code not in UNTOLD:
        session.broker.refusals.warning(
            f"{name} {code}",
            f"{session.peer} (client id {(session.client_id or '')[:LONGEST_ID]!r}): "
            f"a batch for {name!r} was refused with {code.name}: {error}",
        )


def _refusal(request: ProduceRequest) -> Refused:
    if request.transactional_id is not None:
        return Refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served yet"
        )
    return Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks} is none of -1, 0, 1")


def _check_codec(batch: memoryview) -> None:
    """For versions that are older than zstd: its readers may be as old."""
    if len(batch) > HEAD_SIZE and read_head(batch).attributes & CODEC_MASK == ZSTD:
        raise UnsupportedCompression(f"zstd may be sent from version {ZSTD_SINCE} of Produce on")


def _missing(
    topic: TopicProduceData, partition: PartitionProduceData, subject: Subject | None
) -> Refused | InvalidRecord:
    gone = subject is None or subject.deleted
    if gone and not topic.name:
        return Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic.topic_id.hex()}")
    if gone or subject is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name!r}")
    if partition.index:
        return Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {subject.name!r} has partition 0 only, not {partition.index}",
        )
    if subject.name in INTERNAL:
        return Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {subject.name!r} is internal: it is not written to",
        )
    return InvalidRecord("no records")
