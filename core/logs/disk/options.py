"""What can be set about the logs. The names are those of the broker's options, with `_` for `.`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    directory: Path
    segment_bytes: int = 1 << 30
    """A segment is rolled at the first write that takes it past this size."""
    index_max_entries: int = 1_000_000
    """… or past this number of batches: they are indexed in memory while the segment is active."""
    unsynced_max_bytes: int = 16 << 20
    """Beyond this much unsynced data producers are made to wait."""
    tail_bytes: int = 64 << 20
    """How much of what was just appended is kept in memory for readers."""
    retention_ms: int = 7 * 24 * 3_600_000
    retention_bytes: int = -1
    """The default of a subject's `retention.bytes`."""
    retention_check_interval_ms: int = 300_000
    total_bytes: int = -1
    """A bound on all segments together; the oldest go first, read or not."""
    producer_id_expiration_ms: int = 24 * 3_600_000
    max_message_bytes: int = 1_048_588
    """The default of a subject's `max.message.bytes`."""
    max_decompressed_bytes: int = 64 << 20
    reserve_bytes: int = 64 << 20
    """How much room is reserved on disk at a time, so that a full disk shows before a write."""
