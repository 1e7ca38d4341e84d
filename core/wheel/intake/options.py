"""The options of the delay service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOptions:
    max_ms: int = 2 * 365 * 86_400_000
    """`delay.max.ms`: no message may wait for longer."""
    cancel_remember_ms: int = 600_000
    """`delay.cancel.remember.ms`: how long a cancel waits for the message with its id."""
