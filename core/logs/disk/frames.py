"""A segment's file frame by frame, from any frame on, trusting nothing: what both logs share.

`header_at` gives the header at a position, or in words why there is none. What a header is, each log says
for itself; so does it say what to do behind a bad frame.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, Protocol, TypeVar

from kumquat.core.logs.disk.segment_file import SegmentFile


class Header(Protocol):
    @property
    def length(self) -> int:
        """Of the payload."""

    @property
    def end(self) -> int:
        """The position behind the frame."""


H = TypeVar("H", bound=Header)


class FrameFile(SegmentFile, Generic[H]):
    HEADER_SIZE: ClassVar[int]

    @abstractmethod
    def parse(self, data: bytes, at: int, position: int) -> H | str:
        """The header at `at` of the data, which lies at `position` of the log; or why it is none."""

    def header_at(self, position: int) -> H | str:
        """The header at a position, or why there is none."""
        self._load(position, self.HEADER_SIZE)
        unreadable = self.unreadable(position, position + self.HEADER_SIZE)
        if unreadable is not None:
            return unreadable
        header = self.parse(self._window, position - self._start, position)
        if not isinstance(header, str) and header.end > self.end:
            return f"its payload of {header.length} bytes passes the end of the file"
        return header
