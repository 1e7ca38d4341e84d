"""Reading a segment frame by frame, from any frame on, trusting nothing.

`frame_at` gives the frame at a position, or in words why there is none. What lies behind a bad frame is
the business of the caller: a frame's length is the only way to the next one, and only a valid header or
a checkpoint's row may tell it.
"""

from __future__ import annotations

from typing import Self

from crc32c import crc32c

from core.logs.files import Files
from core.logs.format import HEADER_SIZE, MESSAGES, FrameHeader, parse_header
from core.logs.segment import Segment
from core.records import damage

_WINDOW = 4 << 20


class Frames:
    def __init__(self, files: Files, segment: Segment) -> None:
        self._files = files
        self._base = segment.base
        self._fd = files.open(segment.path)
        self.end = segment.base + files.size(self._fd)
        """Where the file ends; reserved room may lie before it."""
        self._window = b""
        self._view = memoryview(b"")
        self._start = segment.base

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._files.close(self._fd)

    def header_at(self, position: int) -> FrameHeader | str:
        """The header at a position, or why there is none."""
        self._load(position, HEADER_SIZE)
        header = parse_header(self._window, position - self._start, position)
        if isinstance(header, FrameHeader) and header.end > self.end:
            return f"its payload of {header.length} bytes passes the end of the file"
        return header

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

    def is_blank_from(self, position: int) -> bool:
        """Whether nothing but zeros follows: room that was reserved and never written."""
        while position < self.end:
            data = self._files.pread(self._fd, _WINDOW, position - self._base)
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True

    def copy(self, position: int, to: int) -> None:
        """Copy all from `position` on into another file, without the blank end."""
        start = position
        while position < self.end:
            data = self._files.pread(self._fd, _WINDOW, position - self._base)
            if not data:
                return
            self._files.pwritev(to, [data.rstrip(b"\0")], position - start)
            position += len(data)

    def truncate(self, position: int) -> None:
        self._files.truncate(self._fd, position - self._base)
        self.end = position

    def write_again(self, position: int, end: int) -> None:
        """Write what is there from `position` to `end` once more, so that a sync takes it along."""
        while position < end:
            data = self._files.pread(self._fd, min(_WINDOW, end - position), position - self._base)
            self._files.pwritev(self._fd, [data], position - self._base)
            position += len(data)

    def sync(self) -> None:
        self._files.fdatasync(self._fd)

    def _load(self, position: int, size: int) -> None:
        if self._start <= position and position + size <= self._start + len(self._window):
            return
        self._window = self._files.pread(self._fd, max(size, _WINDOW), position - self._base)
        self._view = memoryview(self._window)
        self._start = position


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
