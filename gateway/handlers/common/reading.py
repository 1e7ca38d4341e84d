"""Reads many batches for one Fetch without making other clients wait.

A Fetch may ask for fifty megabytes, and that may be half a million small batches: each costs a few
microseconds to find. So a range is read in steps of STEP bytes, and after TURN_SECONDS others get their
turn. A large batch is one step. What has to come from the disk is read by the log in a thread, in larger
steps of COLD_STEP bytes: each costs two switches of threads.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import trio

from kumquat.core.errors import KumquatError, WouldBlock
from kumquat.core.records.batch import read_head

if TYPE_CHECKING:
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject

STEP = 256 << 10
COLD_STEP = 1 << 20
TURN_SECONDS = 0.002


async def read_batches(
    log: MessageService, subject: Subject, offset: int, limit: int, at_least_one: bool
) -> list[bytes | memoryview]:
    """Whole batches from `offset` on, of `limit` bytes at the most; `at_least_one`: or a larger one.

    An error after the first batches is left to the next read.
    """
    found: list[bytes | memoryview] = []
    began = perf_counter()
    while True:
        alone = at_least_one and not found
        try:
            some = await _read(log, subject, offset, limit, alone)
        except KumquatError:
            if found:
                return found
            raise
        size = sum(map(len, some))
        if not some or (size > limit and not alone):
            return found
        found += some
        limit -= size
        head = read_head(some[-1])
        offset = head.base_offset + head.last_offset_delta + 1
        if limit <= 0 or offset >= subject.readable_end:
            return found
        if perf_counter() - began > TURN_SECONDS:
            await trio.lowlevel.checkpoint()
            began = perf_counter()


async def _read(
    log: MessageService, subject: Subject, offset: int, limit: int, at_least_one: bool
) -> list[bytes | memoryview]:
    """One step of it, or a larger batch that fits the limit."""
    step = min(limit, STEP)
    try:
        return log.read_nowait(subject, offset, step, at_least_one or step < limit)
    except WouldBlock:
        step = min(limit, COLD_STEP)
        return await log.read(subject, offset, step, at_least_one or step < limit)
