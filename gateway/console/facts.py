"""What is known of a group that may stand still: who is there, who asks, who holds what, what has failed.

`views/situation.py` collects it from the broker; diagnose.py decides what it means. Plain values, so that
both can be tested without each other. Times are milliseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """What is known of a member, for one subject."""

    id: str
    client_id: str
    host: str
    session_ms: int
    heard: int | None
    """Its last sign of life; None: none since the broker's start."""
    fetched: int | None
    """When it last asked for messages of the subject; None: not since it is known."""
    reads_at: int | None = None
    """The offset that it reads at next, where it reads in order; and where it began."""
    began_at: int | None = None
    connected: int | None = None
    """Since when it is connected."""
    holds: int = 0
    """Messages that it was handed and has not acked."""
    lowest: int | None = None
    """The lowest of them."""
    since: int | None = None
    """When it was handed the oldest of them."""


@dataclass(frozen=True, slots=True)
class Failing:
    """The lowest message that failed and is to come again."""

    sequence: int
    attempt: int
    """Which delivery the next one is."""
    due: int | None
    """None: as soon as a member asks."""
    count: int = 1
    """How many messages are to come again."""
    limit: int = -1
    """After so many deliveries it becomes a dead letter; -1: never."""
    reason: str = ""
    """What a client said of it last."""
    held_by: str = ""
    """The member that has it now, for one more attempt."""
    stranded: bool = False
    """The group reads in order, and no member is there that could be given it."""


@dataclass(frozen=True, slots=True)
class Situation:
    group: str
    subject: str
    now: int
    shared: bool
    position: int | None
    lag: int
    """Messages that are left to do; those in flight count."""
    behind: int
    """Those of them that were never handed out."""
    moved: int
    """When the group last committed or acked there; 0: never."""
    came: int = 0
    """When the message at the position was stored; 0: long ago."""
    empty_since: int = 0
    members: tuple[MemberFacts, ...] = ()
    """Those that have the subject."""
    other_members: int = 0
    """Members of the group that do not have it."""
    failing: Failing | None = None
    doomed: int = 0
    doomed_why: str | None = None
    state: str = "Stable"
