"""The barrier of groups in which a client assigns: its states, what happens in them, who takes part.

    state       what it means                                     Heartbeat     JoinGroup  SyncGroup
    EMPTY       no members                                        unknown       held       unknown
    PREPARING   waits until every member has sent a JoinGroup     rebalance     held       rebalance
    COMPLETING  JoinGroups are answered; waits for the leader's   fine          see below  held
                assignment
    STABLE      everybody has its assignment                      fine          see below  answered
    (unknown: UNKNOWN_MEMBER_ID; rebalance: REBALANCE_IN_PROGRESS)

    event     what happened; where it leads: see TRANSITIONS
    JOIN      a new member, or a known one that says something new, or the leader
    SYNC      the leader's assignment
    GONE      a member left, or was silent for its session time-out; LAST: it was the only one
    JOINED    every member has sent its JoinGroup; or the largest rebalance time-out is over, then
              who has not is gone
    LATE      a member has not sent its SyncGroup within the rebalance time-out; it is gone
In COMPLETING and STABLE a JoinGroup that says nothing new (its answer was lost) is answered again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Member
    from kumquat.gateway.groups.membership.roster import Ticket


class State(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


EMPTY, PREPARING, COMPLETING, STABLE = State
JOIN, SYNC, GONE, LAST, JOINED, LATE = "join", "sync", "gone", "last", "joined", "late"

TRANSITIONS: dict[tuple[State, str], State] = {
    (EMPTY, JOIN): PREPARING,
    (PREPARING, JOIN): PREPARING,
    (COMPLETING, JOIN): PREPARING,
    (STABLE, JOIN): PREPARING,
    (COMPLETING, SYNC): STABLE,
    (PREPARING, GONE): PREPARING,
    (COMPLETING, GONE): PREPARING,
    (STABLE, GONE): PREPARING,
    (PREPARING, LAST): EMPTY,
    (COMPLETING, LAST): EMPTY,
    (STABLE, LAST): EMPTY,
    (PREPARING, JOINED): COMPLETING,
    (COMPLETING, LATE): PREPARING,
}


@dataclass(slots=True)
class Participant:
    member: Member
    """As it will be when the generation is stable. It is replaced, never changed in place."""
    protocols: dict[str, bytes]
    """What it offers, in the order of its preference."""
    join: Ticket | None = None
    sync: Ticket | None = None
    synced: bool = False
    assignment: bytes = b""
