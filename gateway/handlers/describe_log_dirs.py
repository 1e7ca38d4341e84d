"""DescribeLogDirs: what each subject holds on disk. Key 35, versions 1 to 4.

What each version added:
  v2  flexible
  v3  an error for the whole answer
  v4  size and free space of the volume

There is one folder. A subject's size is that of its readable batches in the shared message log.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import trio

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session

TOPICS_AT_A_TIME = 200


def _refuse(request: DescribeLogDirsRequest, code: int, message: str) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        error_code=code, results=[DescribeLogDirsResult(error_code=code)]
    )


@handles(
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    versions=range(1, 5),
    refuse=_refuse,
)
async def describe_log_dirs(
    session: Session, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    broker = session.broker
    volume = await trio.to_thread.run_sync(shutil.disk_usage, broker.log.directory)
    topics = []
    subjects = _asked(broker, request)
    for start in range(0, len(subjects), TOPICS_AT_A_TIME):
        some = subjects[start : start + TOPICS_AT_A_TIME]
        sizes = await broker.log.subject_bytes(some)
        for subject, size in zip(some, sizes, strict=True):
            partition = DescribeLogDirsPartition(partition_size=size)
            topics.append(DescribeLogDirsTopic(name=subject.name, partitions=[partition]))
    result = DescribeLogDirsResult(
        log_dir=str(broker.log.directory.absolute()),
        topics=topics,
        total_bytes=volume.total,
        usable_bytes=volume.free,
    )
    return DescribeLogDirsResponse(results=[result])


def _asked(broker: Broker, request: DescribeLogDirsRequest) -> list[Subject]:
    subjects = broker.log.subjects
    if request.topics is None:
        return list(subjects)
    found = (subjects.by_name.get(topic.topic) for topic in request.topics if 0 in topic.partitions)
    return [subject for subject in found if subject is not None]
