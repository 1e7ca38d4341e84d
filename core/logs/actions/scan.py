"""Reading a segment of the action log frame by frame (disk/frames.py).

`next_header` finds the first valid header behind a bad one (format.py says why a search is safe here).
"""

from __future__ import annotations

from kumquat.core.logs.actions.format import HEADER_SIZE, MAGIC, FrameHeader, parse_header
from kumquat.core.logs.actions.segment import ActionSegment
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.frames import FrameFile


class ActionFrames(FrameFile[FrameHeader]):
    WINDOW = 1 << 20
    HEADER_SIZE = HEADER_SIZE

    def __init__(self, files: Files, segment: ActionSegment, *, readonly: bool = False) -> None:
        super().__init__(files, segment.path, segment.base, around=True, readonly=readonly)

    def parse(self, data: bytes, at: int, position: int) -> FrameHeader | str:
        return parse_header(data, at, position)

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
