"""The volatile side of served groups: what each member was told, and how each subject is divided.

A member's holding of a subject, `none`, `plain` or `pull`, is durable (Member.holds). On the way from
one to another it passes phases, which are not: after a restart of the broker a holding that was being
taken away is simply decided upon again.

    FREE         not held, may be given
    STALE        not held, but the client may still remember a position: first it must get an assignment
                 without the subject (kafka-python keeps the position of what it gets again)
    UNCONFIRMED  likewise; the answer without it was sent, and no heartbeat has shown yet that it arrived
    HELD         held
    TAKING       held, to be taken away; the client does not know yet
    TOLD         held; the client was sent an assignment without it and has yet to confirm

Eager clients are of two manners. Of some (Java, librdkafka) it is known that they forget all positions
when they rejoin and ask again: for them there is no STALE.

What moves it, besides GRANT (FREE to HELD) and the end of the member: see MOVES. A classic client is
asked to come by answering its heartbeat REBALANCE_IN_PROGRESS.
    TAKE     the subject is to be taken away
    KEEP     not after all
    JOINED   the member sent a JoinGroup. An eager one has dropped all that it held, having committed
    DROPPED  likewise, and it said that it does not hold this one (cooperative clients list what they hold)
    CLAIMED  likewise, and it said that it does: it has not got the answer that told it to let go
    BEAT     it sent a heartbeat in its generation
    WITHOUT  it was answered an assignment in which the subject is not
    CONFIRM  a KIP-848 member reported what it owns, and this is not in it
Where a move leads from HELD, TAKING or TOLD to FREE or STALE, the member *lets go*: until then its
commits count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kumquat.gateway.groups.membership.protocol import COOPERATIVE, EAGER, FORGETFUL, KIP_848

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group
    from kumquat.core.delivery.undo import Undo
    from kumquat.gateway.groups.membership.client_assigned import ClientAssigned


class Phase(Enum):
    FREE = auto()
    STALE = auto()
    UNCONFIRMED = auto()
    HELD = auto()
    TAKING = auto()
    TOLD = auto()


class Event(Enum):
    TAKE = auto()
    KEEP = auto()
    JOINED = auto()
    DROPPED = auto()
    CLAIMED = auto()
    BEAT = auto()
    WITHOUT = auto()
    CONFIRM = auto()


FREE, STALE, UNCONFIRMED, HELD, TAKING, TOLD = Phase
TAKE, KEEP, JOINED, DROPPED, CLAIMED, BEAT, WITHOUT, CONFIRM = Event
HOLDING = frozenset({HELD, TAKING, TOLD})

MOVES: dict[tuple[str, Phase, Event], Phase] = {
    (FORGETFUL, HELD, TAKE): TAKING,
    (FORGETFUL, TAKING, TAKE): TAKING,
    (FORGETFUL, HELD, KEEP): HELD,
    (FORGETFUL, TAKING, KEEP): HELD,
    (FORGETFUL, HELD, JOINED): HELD,
    (FORGETFUL, STALE, JOINED): FREE,
    (FORGETFUL, UNCONFIRMED, JOINED): FREE,
    (FORGETFUL, TAKING, JOINED): FREE,
    (FORGETFUL, TAKING, WITHOUT): FREE,
    (FORGETFUL, STALE, BEAT): STALE,
    (FORGETFUL, TAKING, BEAT): TAKING,
    (EAGER, HELD, TAKE): TAKING,
    (EAGER, TAKING, TAKE): TAKING,
    (EAGER, HELD, KEEP): HELD,
    (EAGER, TAKING, KEEP): HELD,
    (EAGER, STALE, JOINED): STALE,
    (EAGER, UNCONFIRMED, JOINED): STALE,
    (EAGER, HELD, JOINED): HELD,
    (EAGER, TAKING, JOINED): STALE,
    (EAGER, STALE, WITHOUT): UNCONFIRMED,
    (EAGER, UNCONFIRMED, WITHOUT): UNCONFIRMED,
    (EAGER, TAKING, WITHOUT): UNCONFIRMED,
    (EAGER, STALE, BEAT): STALE,
    (EAGER, UNCONFIRMED, BEAT): FREE,
    (EAGER, TAKING, BEAT): TAKING,
    (COOPERATIVE, HELD, TAKE): TAKING,
    (COOPERATIVE, TAKING, TAKE): TAKING,
    (COOPERATIVE, TOLD, TAKE): TOLD,
    (COOPERATIVE, HELD, KEEP): HELD,
    (COOPERATIVE, TAKING, KEEP): HELD,
    (COOPERATIVE, TOLD, KEEP): TOLD,
    (COOPERATIVE, HELD, JOINED): HELD,
    (COOPERATIVE, TAKING, JOINED): TAKING,
    (COOPERATIVE, TOLD, JOINED): FREE,
    (COOPERATIVE, HELD, DROPPED): HELD,
    (COOPERATIVE, TAKING, DROPPED): FREE,
    (COOPERATIVE, TOLD, DROPPED): FREE,
    (COOPERATIVE, HELD, CLAIMED): HELD,
    (COOPERATIVE, TAKING, CLAIMED): TAKING,
    (COOPERATIVE, TOLD, CLAIMED): TAKING,
    (COOPERATIVE, TAKING, BEAT): TAKING,
    (COOPERATIVE, TOLD, BEAT): TOLD,
    (COOPERATIVE, TAKING, WITHOUT): TOLD,
    (COOPERATIVE, TOLD, WITHOUT): TOLD,
    (KIP_848, HELD, TAKE): TAKING,
    (KIP_848, TAKING, TAKE): TAKING,
    (KIP_848, TOLD, TAKE): TOLD,
    (KIP_848, HELD, KEEP): HELD,
    (KIP_848, TAKING, KEEP): HELD,
    (KIP_848, TOLD, KEEP): TOLD,
    (KIP_848, TAKING, WITHOUT): TOLD,
    (KIP_848, TOLD, WITHOUT): TOLD,
    (KIP_848, HELD, CONFIRM): HELD,
    (KIP_848, TAKING, CONFIRM): TAKING,
    (KIP_848, TOLD, CONFIRM): FREE,
}


class Step(Enum):
    """Where the division of a subject stands; division.py decides."""

    OWNED = auto()
    MOVING = auto()
    OPENING = auto()
    SHARING = auto()
    DRAINING = auto()
    CLOSING = auto()


class Ticket:
    """A request whose answer is not there yet."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: Any = None


class Grant(NamedTuple):
    """A pull log that its member has not asked OffsetFetch for yet."""

    at: float
    beats: int = 0


@dataclass(slots=True)
class Presence:
    """A member of a served group, as it is now."""

    KEPT: ClassVar = ("topics", "phases", "expecting", "grants", "replaced")
    """Containers that change in place: see core/delivery/undo.py."""
    id: str
    manner: str
    """How it rebalances: its kind, or FORGETFUL."""
    can_share: bool = True
    """Its client is known to share correctly: see sharers.py."""
    topics: set[int] = field(default_factory=set)
    """The subjects that it is subscribed to and that exist."""
    phases: dict[int, Phase] = field(default_factory=dict)
    """Only where it is neither FREE nor HELD."""
    syncing: bool = False
    """Its JoinGroup was answered, its SyncGroup has not come."""
    must_rejoin: bool = False
    """It is to rejoin for a reason that shows in nothing else: a subject that it held was deleted."""
    ticket: Ticket | None = None
    """Its JoinGroup, where that is held."""
    commits: dict[int, int] = field(default_factory=dict)
    """Subjects that it holds by pull → when it last committed there, changed or not (ms)."""
    told_at: float = 0.0
    expecting: dict[int, int] = field(default_factory=dict)
    """Subjects that it holds by pull and may be about to ask OffsetFetch for, with the heartbeats on the
    same connection for which that is still believed."""
    via: dict[str, str] | None = None
    """The connection of its last heartbeat: its binding, taken as a name."""
    grants: dict[int, Grant] = field(default_factory=dict)
    replaced: dict[int, int] = field(default_factory=dict)
    """How often a pull log was replaced because it was never asked for."""
    told: frozenset[int] | None = None
    """The assignment that a KIP-848 member was told last; None: it is to be told."""
    owned: frozenset[int] | None = None
    """What a KIP-848 member reported last that it owns; None: not known."""
    silent_beats: int = 0
    """Its heartbeats without such a report since it was told to let go of something."""
    previous_epoch: int = -1
    seen: int = -1
    """The version of the roster in which there was nothing for it: it need not be looked through again."""
    away: bool = False
    """A static KIP-848 member that has said that it will come back."""


class Division:
    """How one subject is divided among the members of a group."""

    __slots__ = (
        "asked",
        "awaited",
        "below_two_since",
        "drain_until",
        "non_sharers",
        "owner",
        "patience",
        "plain",
        "pull",
        "reason",
        "rest_until",
        "step",
        "subscribers",
    )
    KEPT = ("non_sharers", "plain", "pull", "subscribers")

    def __init__(self) -> None:
        self.subscribers: dict[str, Presence] = {}
        self.non_sharers: dict[str, Presence] = {}
        """Those of them whose client is not known to share correctly (sharers.py)."""
        self.reason = ""
        """Why it is not shared, where only members of `non_sharers` prevent it."""
        self.plain: set[str] = set()
        self.pull: set[str] = set()
        """Who holds it, and how."""
        self.owner: str | None = None
        """Who is to hold it by plain offsets."""
        self.step = Step.OWNED
        self.asked = False
        """Its owner was asked to rejoin, so that it commits where the group is."""
        self.awaited: str | None = None
        """The owner, until it has done so."""
        self.below_two_since: float | None = None
        """Since when a shared subject has had fewer than two subscribers."""
        self.patience = 1.0
        """Grows when a drain did not succeed."""
        self.drain_until: float | None = None
        self.rest_until = 0.0
        """Retries that are due were handed out and not acked: they are not tried again before."""

    @property
    def in_use(self) -> bool:
        """Whether a member reads the subject, or is to."""
        return bool(self.subscribers or self.plain or self.pull)

    @property
    def has_only_non_sharers(self) -> bool:
        """Somebody is there, and nobody who holds or may take up a pull log."""
        return not self.pull and 0 < len(self.subscribers) == len(self.non_sharers)

    def unsubscribe(self, member_id: str) -> None:
        self.subscribers.pop(member_id, None)
        self.non_sharers.pop(member_id, None)

    def reset_timers(self) -> None:
        self.below_two_since = self.drain_until = None
        self.patience, self.rest_until = 1.0, 0.0


class Roster:
    """The volatile side of one group. To change an entry of a container here, say so to `undo.item`
    first."""

    __slots__ = (
        "client_assigned",
        "divisions",
        "group",
        "instances",
        "names",
        "owned",
        "presences",
        "reason",
        "version",
    )

    def __init__(self, group: Group) -> None:
        self.group = group
        self.presences: dict[str, Presence] = {}
        self.version = 0
        """Grows with every change that may be of interest to a member."""
        self.divisions: dict[int, Division] = {}
        self.instances: dict[str, str] = {}
        """Static members: instance id → member id."""
        self.names: set[str] = set()
        """Topics that a member is, or once was, subscribed to by name."""
        self.owned: dict[str, int] = {}
        """How many subjects each member is the owner of."""
        self.reason = ""
        """What was last logged about why it does not share."""
        self.client_assigned: ClientAssigned | None = None
        """Where a client assigns."""

    def division(self, undo: Undo, subject_id: int) -> Division:
        division = self.divisions.get(subject_id)
        if division is None:
            undo.item(self.divisions, subject_id)
            division = self.divisions[subject_id] = Division()
        return division
