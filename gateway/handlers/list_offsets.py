"""ListOffsets: the offset at a time, or at an end of the log. Key 2, versions 1 to 10.

What each version added:
  v1  one offset and its timestamp
  v2  isolation level (ignored: there are no transactions, so all that is readable is committed)
  v4  leader epochs: see leader_epoch.py; the answer gives none
  v6  flexible
  v7  the record with the highest timestamp (-3)
  v8  the earliest offset on the local disk (-4): the earliest there is
  v9  the latest offset in remote storage (-5): there is none
  v10 a time-out (ignored)

A special timestamp that is unknown, or unknown in this version, is UNSUPPORTED_VERSION, as in Kafka.

Latest is the high watermark. A member that shares the subject, where it can be recognised, gets the
latest of its own pull log: see gateway/handlers/common/askers.py. The version helps to recognise it, so
this handler looks at the version. By timestamp, the answer is the first record that is not older,
exactly; -1 when there is none.

What was written when the request came counts: a client that has produced with acks=1 and asks for the end
must find it after its own message. So the answer waits for the sync that is under way, at most
SYNC_SECONDS: a slower disk must not block everything on the connection.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from kumquat.core.errors import StorageError
from kumquat.gateway.handlers.common import leader_epoch
from kumquat.gateway.handlers.common.askers import own_latest
from kumquat.gateway.handlers.common.lookup import find_partition
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
KNOWN_FROM = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""Special timestamp → the first version that has it."""
AT_THE_START = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)
SYNC_SECONDS = 5.0
NOWHERE = (-1, -1)


def _refuse(request: ListOffsetsRequest, code: int, message: str) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
    versions=range(1, 11),
    refuse=_refuse,
)
async def list_offsets(session: Session, request: ListOffsetsRequest) -> ListOffsetsResponse:
    await _wait_for_sync(session.broker, request)
    topics = []
    turn = Turn()
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            try:
                subject = find_partition(session.broker, topic.name, asked.partition_index)
                leader_epoch.check(asked.current_leader_epoch)
                _check_timestamp(asked.timestamp, session.version)
                answer.timestamp, answer.offset = await _find(session, subject, asked.timestamp)
            except ANSWERABLE as error:
                answer.error_code = error.error_code
            partitions.append(answer)
            if turn.over:
                await turn.give_way()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


async def _wait_for_sync(broker: Broker, request: ListOffsetsRequest) -> None:
    """Until what was written to one of these topics before is synced, if its end matters."""
    by_name = broker.log.subjects.by_name
    for topic in request.topics:
        subject = by_name.get(topic.name)
        if subject is None or subject.readable_end == subject.next_sequence:
            continue
        if any(asked.timestamp not in AT_THE_START for asked in topic.partitions):
            with trio.move_on_after(SYNC_SECONDS), broker.long_poll(), suppress(StorageError):
                await broker.log.wait_synced()
            return


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < KNOWN_FROM.get(timestamp, version + 1):
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {timestamp} has no meaning in version {version}",
        )


async def _find(session: Session, subject: Subject, timestamp: int) -> tuple[int, int]:
    """The timestamp and the offset of what is asked for."""
    broker = session.broker
    if timestamp == LATEST:
        own = own_latest(session, subject)
        return -1, subject.readable_end if own is None else own
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        session.asked_earliest = subject.id
        return -1, subject.earliest
    if timestamp == LATEST_TIERED:
        return NOWHERE
    if timestamp == MAX_TIMESTAMP:
        return await broker.log.max_timestamp(subject) or NOWHERE
    return await broker.log.offset_for_timestamp(subject, timestamp) or NOWHERE
