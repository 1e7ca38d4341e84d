"""Reads PARKED, CANCEL and DELIVERED frames back from a stretch of the log. Blocks."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kumquat.core.logs.messages.format import DELAYED, FrameHeader
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.parked import CANCELLED, MOVED, cancels_of
from kumquat.core.logs.messages.recovery.scan import Frames, payload_damage

log = logging.getLogger("kumquat.delay")


def delayed_frames(
    message_log: MessageLog, begin: int, end: int
) -> Iterator[tuple[FrameHeader, bytes]]:
    """The frames from `begin`, where a frame starts, to `end`. A damaged one is logged and left out."""
    for segment in message_log.state.segments:
        position, until = max(begin, segment.base), min(end, segment.end)
        if position >= until:
            continue
        with Frames(message_log.files, segment) as frames:
            while position < until:
                header = frames.header_at(position)
                if isinstance(header, str):
                    log.error(
                        "%s: position %d: %s; read up to there", segment.path, position, header
                    )
                    break
                if header.kind in DELAYED:
                    payload = frames.payload_of(header)
                    damage = payload_damage(header, payload)
                    if damage is None:
                        yield header, bytes(payload)
                    else:
                        log.error("%s: position %d: %s", segment.path, position, damage)
                position = header.end


def withdrawn_ids(payload: bytes) -> list[int]:
    """Schedule ids of the messages that a CANCEL frame cancels or moves."""
    return [item.schedule_id for item in cancels_of(payload) if item.outcome in (CANCELLED, MOVED)]
