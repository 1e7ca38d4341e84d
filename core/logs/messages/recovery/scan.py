"""Reading a segment of the message log frame by frame (disk/frames.py).

What lies behind a bad frame is the caller's business: a frame's length is the only way to the next one, and
only a valid header or a checkpoint's row says it.
"""

from __future__ import annotations

from crc32c import crc32c

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.frames import FrameFile
from kumquat.core.logs.messages.format import (
    HEADER_SIZE,
    MESSAGES,
    FrameHeader,
    parse_header,
)
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.records import damage


class Frames(FrameFile[FrameHeader]):
    HEADER_SIZE = HEADER_SIZE

    def __init__(self, files: Files, segment: Segment, *, around: bool = False) -> None:
        super().__init__(files, segment.path, segment.base, around=around)
        self._view = memoryview(b"")

    def parse(self, data: bytes, at: int, position: int) -> FrameHeader | str:
        return parse_header(data, at, position)

    def payload_of(self, header: FrameHeader) -> memoryview:
        return self.payload(header.position + HEADER_SIZE, header.length)

    def payload(self, at: int, length: int) -> memoryview:
        """`length` bytes at a position, fewer where the file ends."""
        self._load(at, length)
        return self._view[at - self._start : at - self._start + length]

    def window(self, position: int) -> tuple[memoryview, int]:
        """What is in memory from `position` on, to be parsed in one go: a view, and where it begins."""
        self._load(position, HEADER_SIZE)
        return self._view, position - self._start

    def _load(self, position: int, size: int) -> bool:
        changed = super()._load(position, size)
        if changed:
            self._view = memoryview(self._window)
        return changed


def frame_damage(frames: Frames, header: FrameHeader, payload: memoryview) -> str | None:
    """What is wrong with a frame whose header is valid; None when it is whole."""
    unreadable = frames.unreadable(header.position, header.end)
    return unreadable or payload_damage(header, payload)


def payload_damage(header: FrameHeader, payload: memoryview) -> str | None:
    """What is wrong with a payload under a valid header; None when it is whole."""
    if header.kind == MESSAGES:
        found = damage(payload, header.base_sequence)
        if found is None and int.from_bytes(payload[17:21], "big") != header.payload_crc:
            found = f"expected the batch of CRC {header.payload_crc:#010x}, found another"
        return found
    crc = crc32c(payload)
    if crc != header.payload_crc:
        return f"expected payload CRC {header.payload_crc:#010x}, found {crc:#010x}"
    return None
