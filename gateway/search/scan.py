"""The search: slice after slice, each in a thread, within bounds. The event loop only counts.

A request reads MOST_BYTES at the most, takes SEARCH_SECONDS, and holds ANSWER_BYTES of messages; then
it ends early, and `next` says where to go on. One search at a time is in the thread (core/pools.py), so
that many of them cannot hold up anything else, nor hold more than one read and one batch that is being
inflated. A search whose client has gone is cancelled: between slices, and inside a batch of very many
records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kumquat.core.pools import SCAN, in_thread
from kumquat.gateway.search.query import Found
from kumquat.gateway.search.slices import Slicer

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.search.query import Query

MOST_BYTES = 64 << 20
SEARCH_SECONDS = 2.0
ANSWER_BYTES = 1 << 20
"""The event loop makes JSON of it: of so much in 5 to 20 ms."""
MOST_UNREADABLE = 100


async def search(broker: Broker, query: Query) -> Found:
    """What matches, up to `query.limit` messages. StorageError: an index of batches cannot be read now."""
    await trio.lowlevel.checkpoint()
    log, check = broker.log, trio.from_thread.check_cancelled
    slicer = Slicer(query, log.reader, broker.keys.files, log.inflation.limit, check)
    found, at, held = Found(), slicer.begin, 0
    began, ends = at, trio.current_time() + SEARCH_SECONDS
    while (
        not slicer.is_over(at)
        and len(found.messages) < query.limit
        and len(found.unreadable) < MOST_UNREADABLE
        and found.bytes < MOST_BYTES
        and held < ANSWER_BYTES
        and trio.current_time() < ends
    ):
        room = query.limit - len(found.messages), ANSWER_BYTES - held
        part = await in_thread(SCAN, slicer.run, at, *room)
        at = part.at
        found.messages += part.matches.messages
        found.unreadable += part.unreadable
        found.batches += part.batches
        found.bytes += part.bytes
        found.by_index = found.by_index or part.by_index
        held += part.matches.held
    found.first, found.end = sorted((began, at))
    if not slicer.is_over(at):
        found.next = at if query.newest else at - 1
    return found
