"""What consumers did: the vocabulary of the action log, which is the truth about progress.

One type per kind of action. In the log an action is a JSON array: the kind's name, which is the type's
name in lower case, then the fields in their order (`to_json`, `from_json`). So the names of the types and
the order of their fields are part of the format on disk; test_actions.py holds the literal bytes.

Ids of groups (`gid`) and subjects (`subject_id`) are numbers. A subject's id is the message log's: it
belongs to the subject, not to its name. A `sequence` is exclusive: all below it is meant.

State changes in `Groups.apply` alone (state.py); replay and the running broker share it. The time of an
action is the time in the header of its frame.
"""

from __future__ import annotations

from typing import Any, NamedTuple

REJECTED, ATTEMPTS, EXPIRED, UNREADABLE = "rejected", "attempts", "expired", "unreadable"
REASONS = (REJECTED, ATTEMPTS, EXPIRED, UNREADABLE)
"""Why a message became a dead letter: the consumer rejected it, its deliveries are used up, retention took
it before it was handled, its bytes are damaged."""

EVERY = (1 << 63) - 1
"""No message has a higher sequence."""

# --- what happens in a running broker ------------------------------------------------------------


class Group(NamedTuple):
    """The group exists. A snapshot also says its generation."""

    gid: int
    name: str
    generation: int | None = None
    """Not written when it is None."""


class Forget(NamedTuple):
    """The group is deleted, with all that it knew."""

    gid: int


class Member(NamedTuple):
    """A member as it is now (see state.Member): it joined, changed, or holds other subjects."""

    gid: int
    fields: dict[str, Any]


class Left(NamedTuple):
    """The member is gone. What it held was released before; not so what a member of a share group can still
    acknowledge (gateway/groups/membership/share.py). A start releases that."""

    gid: int
    member_id: str


class Commit(NamedTuple):
    """The group's plain position, with the metadata that the client gave."""

    gid: int
    subject_id: int
    sequence: int
    epoch: int
    metadata: str


class Share(NamedTuple):
    """Sharing begins there: nothing at or above was delivered."""

    gid: int
    subject_id: int
    sequence: int


class Unshare(NamedTuple):
    """Back to plain offsets."""

    gid: int
    subject_id: int
    sequence: int | None = None
    """Where to go on, although some above are acked: written by brokers that did not know InOrder. None,
    and not written: nothing is unacked."""


class InOrder(NamedTuple):
    """Back to plain offsets from there on, although some messages are not acked. Those below stay as they
    are, to be delivered again at their time; those above are read in order."""

    gid: int
    subject_id: int
    sequence: int


class Slot(NamedTuple):
    """A pull log begins in this slot, at that pull sequence."""

    gid: int
    subject_id: int
    slot: int
    member_id: str
    pull: int


class Pull(NamedTuple):
    """Messages were leased through a pull log."""

    gid: int
    subject_id: int
    slot: int
    pull: int
    """The first pull sequence."""
    ranges: list[list[int]]
    """First sequence, count and attempt of each run of messages."""


class Ack(NamedTuple):
    """All below that pull sequence are acked."""

    gid: int
    subject_id: int
    slot: int
    pull: int


class Accept(NamedTuple):
    """Some of what a share member holds is acked."""

    gid: int
    subject_id: int
    slot: int
    ranges: list[list[int]]
    """First sequence and count of each."""


class Retry(NamedTuple):
    """Messages that a member did not handle are to be delivered again, at their time."""

    gid: int
    subject_id: int
    slot: int
    """The pull log that they leave. 0: they were read with plain offsets."""
    ranges: list[list[int]]
    """First sequence, count, the attempt that the next delivery is, and when that is due (ms since the
    epoch; 0: at once)."""


class Doom(NamedTuple):
    """Messages that are to become dead letters, wherever they are now. They are done with when that is
    durable: see Settle."""

    gid: int
    subject_id: int
    slot: int
    """The pull log that they leave. 0: they are not leased."""
    ranges: list[list[int]]
    """First sequence, count, and how often they were delivered."""
    reason: str
    """One of REASONS."""
    text: str
    """What the client, or the disk, said."""


class Settle(NamedTuple):
    """Messages that are done with, wherever they are: their dead letters are durable, or they were sent
    back to where they came from."""

    gid: int
    subject_id: int
    ranges: list[list[int]]
    """First sequence and count of each."""


class Joined(NamedTuple):
    """The frames of the message log below that position that settle something have been applied here: see
    core/logs/messages/settles.py."""

    position: int


class Release(NamedTuple):
    """The pull log ends; what was unacked is delivered again, at once and as the same attempt."""

    gid: int
    subject_id: int
    slot: int


class Expire(NamedTuple):
    """Retention has overtaken the group: all below is gone."""

    gid: int
    subject_id: int
    sequence: int


class Lost(NamedTuple):
    """Messages that can never be read again. They begin below the cursor; if they end above it, the cursor
    moves behind them."""

    gid: int
    subject_id: int
    first: int
    size: int


class Holes(NamedTuple):
    """Sequences below the cursor that no message ever had."""

    gid: int
    subject_id: int
    first: int
    size: int


class Drop(NamedTuple):
    """The group forgets the subject."""

    gid: int
    subject_id: int
    doomed: int | None = None
    """Messages below that are to become dead letters still do. None, and not written: none does."""


class Gone(NamedTuple):
    """The subject is deleted: all groups forget it."""

    subject_id: int


class Heard(NamedTuple):
    """A member showed, for the first time since a start, that it is there."""

    gid: int
    member_id: str


class Silent(NamedTuple):
    """All members that were not heard since the start were silent for so much longer."""

    milliseconds: int


class Jump(NamedTuple):
    """A start: every pull log continues that much higher; 0 after a clean stop."""

    distance: int


class Stopped(NamedTuple):
    """A clean stop: nothing that was handed out is missing here."""


# --- in snapshots alone --------------------------------------------------------------------------


class Numbers(NamedTuple):
    """The next group id, and the pull sequence below which no pull log begins."""

    next_gid: int
    floor: int
    joined: int = 0
    """See Joined. Not written when it is 0."""


class Slots(NamedTuple):
    """How many slots a subject has given out, and how far its pull logs have come."""

    subject_id: int
    given: int
    top: int


class Again(NamedTuple):
    """Messages that wait to be delivered again."""

    gid: int
    subject_id: int
    first: int
    size: int
    attempt: int
    since: int = 0
    """When they were first delivered (ms)."""


class Waits(NamedTuple):
    """Retries that wait for their time."""

    gid: int
    subject_id: int
    packed: str
    """Base64 of Waiting.pack."""


class Doomed(NamedTuple):
    """Messages whose dead letters are not durable yet."""

    gid: int
    subject_id: int
    first: int
    size: int
    attempts: int
    reason: str
    text: str
    since: int
    """First delivered (ms)."""
    at: int
    """Last delivered (ms)."""


class Expired(NamedTuple):
    """How many messages were gone before they were acked."""

    gid: int
    subject_id: int
    size: int


class Emptied(NamedTuple):
    """What the last member was, and when it left (ms)."""

    gid: int
    kind: str
    protocol_type: str
    at: int


class Committed(NamedTuple):
    """When a position was last committed or acked (ms)."""

    gid: int
    subject_id: int
    at: int


class Silence(NamedTuple):
    """Members that were not heard since the last start, and for how many ms."""

    gid: int
    members: dict[str, int]


class Log(NamedTuple):
    """A pull log."""

    gid: int
    subject_id: int
    slot: int
    member_id: str
    numbers: list[int]
    """Where it begins, up to where it is acked, and its next pull sequence."""
    gaps: list[list[int]]
    leases: list[list[int]]
    """Pull sequence, first sequence, count and attempt of each, when the messages were first delivered and
    when these were (ms)."""


class Unknown(NamedTuple):
    """An array in the log that is no action. `Groups.apply` refuses it; the actions beside it count."""

    found: list[Any]


Action = (
    Group | Forget | Member | Left | Commit | Share | Unshare | Slot | Pull | Ack | Accept | Retry | Doom
    | Settle | Joined | Release | Expire | Lost | Holes | Drop | Gone | Heard | Silent | Jump | Stopped
    | Numbers | Slots | Again | Waits | Doomed | Expired | Emptied | Committed | Silence | Log | InOrder
    | Unknown
)  # fmt: skip
TYPES: tuple[type[Action], ...] = (
    Group, Forget, Member, Left, Commit, Share, Unshare, Slot, Pull, Ack, Accept, Retry, Doom,
    Settle, Joined, Release, Expire, Lost, Holes, Drop, Gone, Heard, Silent, Jump, Stopped,
    Numbers, Slots, Again, Waits, Doomed, Expired, Emptied, Committed, Silence, Log, InOrder,
)  # fmt: skip

OF_NO_GROUP: frozenset[type[Action]] = frozenset(
    {Gone, Joined, Jump, Numbers, Silent, Slots, Stopped, Unknown}
)
"""All others begin with the id of the group that they are about."""

_NAMES = {kind: kind.__name__.lower() for kind in TYPES}
_BY_NAME: dict[str, Any] = {name: kind for kind, name in _NAMES.items()}


def to_json(action: Action) -> tuple[Any, ...]:
    """What is stored of it."""
    if type(action) is Group and action.generation is None:
        return (_NAMES[Group], action.gid, action.name)
    if type(action) is Numbers and not action.joined:
        return (_NAMES[Numbers], action.next_gid, action.floor)
    if type(action) is Unshare and action.sequence is None:
        return (_NAMES[Unshare], action.gid, action.subject_id)
    if type(action) is Drop and action.doomed is None:
        return (_NAMES[Drop], action.gid, action.subject_id)
    return (_NAMES[type(action)], *action)


def from_json(found: list[Any]) -> Action:
    try:
        action: Action = _BY_NAME[found[0]](*found[1:])
    except (KeyError, TypeError, IndexError):
        return Unknown(found)
    return action
