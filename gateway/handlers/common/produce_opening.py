"""The part of a Produce that has to wait, and what both parts say when a batch is refused.

A batch that asks something of the broker, or that is too large to be inflated on the event loop, takes time
(core/wheel/intake). So do commands (retry_commands.py). From the first such batch on, the rest of its
request is done here, batch by batch and in order; the connection awaits it as an `Opening`. The look at
that first batch is handed over, so no batch is looked at twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.commands import TOPIC as RETRY
from kumquat.core.errors import InvalidRecord, UnsupportedCompression
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, read_head
from kumquat.core.records.frames import ZSTD
from kumquat.core.records.look import PLAIN
from kumquat.gateway.handlers.common.retry_commands import obey
from kumquat.gateway.net.dispatch import ANSWERABLE, Disconnect, Refused
from kumquat.gateway.topics.table import INTERNAL
from kumquat.gateway.wire import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.logs.messages.writer import Appended
    from kumquat.core.records.look import Look
    from kumquat.gateway.net.dispatch import Answerable, Session, Staged
    from kumquat.gateway.wire import PartitionProduceData, ProduceRequest, TopicProduceData

ALL = -1
NONE = 0
ZSTD_SINCE = 7
"""From this version on zstd may be sent."""
LONGEST_ID = 100
NOT_LOGGED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


async def open_rest(
    session: Session,
    request: ProduceRequest,
    done: list[PartitionProduceResponse],
    position: int,
    look: Look | None = None,
) -> Staged:
    """Produce from the first batch on that has to wait. `done`: the answers for those before it, which end
    at `position`; `look`: the look at that batch, unless it holds commands.

    Each batch is written before the next: nothing may stay staged over a wait."""
    subjects = session.broker.log.subjects
    answers = iter(done)
    first = look
    topics = []
    for topic in request.topic_data:
        partitions = []
        subject = subjects.by_name.get(topic.name) or subjects.by_topic_id.get(topic.topic_id)
        for partition in topic.partition_data:
            answer = next(answers, None)
            if answer is None:
                try:
                    if subject is not None and is_for_commands(subject, partition):
                        partitions.append(await _obey(session, request, topic, partition))
                        continue
                    base, append_time, end = await _write(session, topic, partition, subject, first)
                except ANSWERABLE as error:
                    answer = refused(session, request, topic, partition, error)
                else:
                    assert subject is not None
                    answer = PartitionProduceResponse(0, 0, base, append_time, subject.earliest)
                    position = max(position, end)
                first = None
            partitions.append(answer)
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, partitions))
    if request.acks == NONE:
        return None, 0
    return ProduceResponse(topics), position if request.acks == ALL else 0


def is_for_commands(subject: Subject | None, partition: PartitionProduceData) -> bool:
    """Whether the records of this batch are commands."""
    return (
        subject is not None
        and subject.name == RETRY
        and not partition.index
        and partition.records is not None
    )


async def _obey(
    session: Session,
    request: ProduceRequest,
    topic: TopicProduceData,
    partition: PartitionProduceData,
) -> PartitionProduceResponse:
    """Do what the records of a batch say; durable when it returns."""
    assert partition.records is not None
    if session.version < ZSTD_SINCE:
        check_codec(partition.records)
    errors = await obey(session.broker, partition.records)
    if not errors:
        return PartitionProduceResponse(partition.index, 0, base_offset=-1)
    first, text = next(iter(errors.items()))
    text = f"record {first}: {text}"
    if len(errors) > 1:
        text = f"{len(errors)} records are refused. The first: {text}"
    answer = refused(session, request, topic, partition, InvalidRecord(text))
    answer.record_errors = [BatchIndexAndErrorMessage(*error) for error in errors.items()]
    return answer


async def _write(
    session: Session,
    topic: TopicProduceData,
    partition: PartitionProduceData,
    subject: Subject | None,
    look: Look | None,
) -> Appended:
    """Store one batch, written when it returns; `look` if it was looked at before."""
    if subject is None or subject.deleted or partition.index or partition.records is None:
        raise missing(topic, partition, subject)
    if subject.name in INTERNAL:
        raise missing(topic, partition, subject)
    log, batch = session.broker.log, partition.records
    if look is None:
        if session.version < ZSTD_SINCE:
            check_codec(batch)
        look = subject.look(batch, log.inflation.limit)
    if look.verdict is not PLAIN:
        return await session.broker.delay.produce(subject, batch, look)
    appended = log.append_nowait(subject, batch, look.head)
    log.write_nowait()
    return appended


def refused(
    session: Session,
    request: ProduceRequest,
    topic: TopicProduceData,
    partition: PartitionProduceData,
    error: Answerable,
) -> PartitionProduceResponse:
    """The answer for a batch that is refused."""
    session.broker.traffic.produce_failures += 1
    name = topic.name or topic.topic_id.hex()
    if request.acks == NONE:
        raise Disconnect(f"Produce to {name!r} with acks=0 failed: {error}") from error
    log_refusal(session, name, error)
    return failed(partition.index, error.error_code, str(error))


def failed(index: int, code: int, message: str) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, error_message=message
    )


def log_refusal(session: Session, name: str, error: Answerable) -> None:
    code = ErrorCode(error.error_code)
    if code not in NOT_LOGGED:
        session.broker.refusals.warning(
            f"{name} {code}",
            f"{session.peer} (client id {(session.client_id or '')[:LONGEST_ID]!r}): "
            f"a batch for {name!r} was refused with {code.name}: {error}",
        )


def check_codec(batch: memoryview) -> None:
    """For versions that are older than zstd: consumers of that age cannot read it."""
    if len(batch) > HEAD_SIZE and read_head(batch).attributes & CODEC_MASK == ZSTD:
        raise UnsupportedCompression(f"zstd may be sent from version {ZSTD_SINCE} of Produce on")


def missing(
    topic: TopicProduceData, partition: PartitionProduceData, subject: Subject | None
) -> Refused | InvalidRecord:
    """Why there is no place for a batch, or no batch."""
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
