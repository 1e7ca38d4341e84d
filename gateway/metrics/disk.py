"""How much is free on the disk of the data folder, looked at now and then in a thread.

A disk that hangs (a network file system whose server is gone) lets such a call hang too. So nobody waits
for it: who asks gets the last answer, and how old that is. Nor does it end the broker, whatever goes wrong
(a thread that cannot be started): then there is no new answer.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from kumquat.core.complaints import Complaints

if TYPE_CHECKING:
    from pathlib import Path

LOOK_SECONDS = 5.0
STALE_SECONDS = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskState:
    free: int
    """Bytes that this process may still write; this and the next: 0 if `error` says why they are not
    known."""
    size: int
    at: float
    """When that was, on Trio's clock."""
    error: str | None = None


class Disk:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._complaints = Complaints(logger)
        self.state: DiskState | None = None
        """None: not known yet."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:
                self._complaints.error("look", f"nobody looks how much is free: {error!r}")
            await trio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        # A thread that hangs must not keep the broker from stopping.
        found = await trio.to_thread.run_sync(self._ask, abandon_on_cancel=True)
        self.state = DiskState(*found[:2], trio.current_time(), found[2])

    def _ask(self) -> tuple[int, int, str | None]:
        try:
            found = os.statvfs(self._directory)
        except OSError as error:
            return 0, 0, error.strerror or str(error)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, None


def least_free(wanted: int | None, segment_bytes: int, disk_size: int) -> int:
    """How much should be free: `health.disk.min.free.bytes` or, where it is not set, its default."""
    if wanted is not None:
        return wanted
    return min(2 * segment_bytes, disk_size // 10)
