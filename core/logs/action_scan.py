"""Reading a segment of the action log frame by frame, trusting nothing.

`header_at` gives the header at a position, or in words why there is none; `next_header` finds the first
valid one behind a bad one (action_format.py says why a search is safe here).
"""

from __future__ import annotations

from typing import Self

from core.logs.action_format import HEADER_SIZE, MAGIC, FrameHeader, parse_header
from core.logs.action_sync import ActionSegment
from core.logs.files import Files

_WINDOW = 1 << 20


class ActionFrames:
    def __init__(self, files: Files, segment: ActionSegment, *, readonly: bool = False) -> None:
        self._files = files
        self._base = segment.base
        self._fd = files.open(segment.path, readonly=readonly)
        self.end = segment.base + files.size(self._fd)
        """Where the file ends; reserved room may lie before it."""
        self._window = b""
        self._start = segment.base

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close(self._fd)

    def header_at(self, position: int) -> FrameHeader | str:
        """The header at a position, or why there is none."""
        self._load(position, HEADER_SIZE)
        header = parse_header(self._window, position - self._start, position)
        if isinstance(header, FrameHeader) and header.end > self.end:
            return f"its payload of {header.length} bytes passes the end of the file"
        return header

    def payload_of(self, header: FrameHeader) -> bytes:
        at = header.position + HEADER_SIZE
        self._load(at, header.length)
        return self._window[at - self._start : at - self._start + header.length]

    def window(self, position: int) -> tuple[bytes, int]:
        """What is in memory from `position` on, to be parsed in one go: the bytes, and where in them."""
        self._load(position, HEADER_SIZE)
        return self._window, position - self._start

    def next_header(self, position: int) -> FrameHeader | None:
        """The first valid header at or behind `position`."""
        while position < self.end:
            self._load(position, HEADER_SIZE)
            at = self._window.find(MAGIC, position - self._start)
            if at < 0:
                position = max(position + 1, self._start + len(self._window) - len(MAGIC) + 1)
                continue
            position = self._start + at
            header = self.header_at(position)
            if isinstance(header, FrameHeader):
                return header
            position += 1
        return None

    def is_blank_from(self, position: int) -> bool:
        """Whether nothing but zeros follows: room that was reserved and never written."""
        while position < self.end:
            data = self._files.pread(self._fd, _WINDOW, position - self._base)
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True

    def truncate(self, position: int) -> None:
        self._files.truncate(self._fd, position - self._base)
        self.end = position

    def sync(self) -> None:
        self._files.fdatasync(self._fd)

    def _load(self, position: int, size: int) -> None:
        if self._start <= position and position + size <= self._start + len(self._window):
            return
        self._window = self._files.pread(self._fd, max(size, _WINDOW), position - self._base)
        self._start = position
