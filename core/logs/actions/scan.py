"""Reading a segment of the action log frame by frame, trusting nothing.

`header_at` gives the header at a position, or in words why there is none; `next_header` finds the first
valid one behind a bad one (actions/format.py says why a search is safe here).
"""

from __future__ import annotations

from kumquat.core.logs.actions.format import HEADER_SIZE, MAGIC, FrameHeader, parse_header
from kumquat.core.logs.actions.segment import ActionSegment
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.segment_file import SegmentFile


class ActionFrames(SegmentFile):
    WINDOW = 1 << 20

    def __init__(self, files: Files, segment: ActionSegment, *, readonly: bool = False) -> None:
        super().__init__(files, segment.path, segment.base, around=True, readonly=readonly)

    def header_at(self, position: int) -> FrameHeader | str:
        """The header at a position, or why there is none."""
        self._load(position, HEADER_SIZE)
        unreadable = self.unreadable(position, position + HEADER_SIZE)
        if unreadable is not None:
            return unreadable
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
