"""Why a group stands still: one sentence for each cause, with names, and what to do. Pure.

`views/situation.py` collects what is known of a group and one subject; `diagnose` says what that means.
A group *stands still* in a subject when there is something left for it and it has committed nothing for
QUIET_MS. A group that keeps up, or moves, has no causes; but a member that sits on messages for HELD_MS
while others work is named.

    no consumer       nobody is a member
    stopped consumer  a member has given no sign of life for a good part of its session time-out: its
                      process hangs or is gone, and the broker waits for the end of its session
    paused member     it sends heartbeats and asks for no messages: paused, or busy with what it has
    missing commit    it reads on and does not commit what it has read
    poison message    messages have failed and wait for their next attempt; or cannot become dead letters
    stuck at          it asks for the same offset again and again, although there is something there

All that is found is told, what hinders most first: a poison message beside a paused member is two
sentences. Times are milliseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kumquat.gateway.admin.times import show_time

QUIET_MS = 10_000
"""Consumers that work ask for messages every second or so, and commit by themselves every 5 s."""
HELD_MS = 60_000
"""A member that holds messages for so long is looked at, although others of its group move."""
LATE = 0.4
"""A member that was silent for this part of its session time-out has missed a heartbeat: clients send three
or more in that time."""
FEW_ATTEMPTS = 2
"""A message that is to come for the second time has failed once."""
NAMED = 3
"""So many members are named one by one."""


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


class Part(NamedTuple):
    """A piece of a sentence; `kind` says what it names, for links: member, message, time, plain; or that it
    is the cause's name, for which a page may have a heading: name."""

    text: str
    kind: str = "plain"
    value: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    name: str
    """no consumer, stopped consumer, …: for headings and tests."""
    parts: tuple[Part, ...]
    advice: str
    subject: str = ""
    links: tuple[tuple[str, str], ...] = field(default=())
    """Name and target: letters, messages, reset, …"""

    @property
    def sentence(self) -> str:
        return "".join(part.text for part in self.parts)


def diagnose(situation: Situation) -> list[Cause]:
    """What hinders most first; empty: it moves, or has nothing to do."""
    found: list[Cause] = []
    if situation.doomed and situation.doomed_why:
        found.append(_unburied(situation))
    if not situation.lag:
        return found
    if not situation.members and not situation.other_members:
        return [*found, _nobody(situation)]
    if poison := _poison(situation):
        found.append(poison)
    still = situation.now - _last_change(situation) >= QUIET_MS
    if still and not situation.members:
        return [*found, _unassigned(situation)]
    suspects = [m for m in situation.members if still or _hoards(m, situation.now)]
    stopped = [m for m in suspects if _is_silent(m, situation.now)]
    awake = [m for m in suspects if m not in stopped]
    quiet = [m for m in awake if _is_quiet(m, situation.now)]
    reading = [m for m in awake if m not in quiet]
    found += [_stopped(situation, stopped)] if stopped else []
    found += [_paused(situation, quiet)] if quiet else []
    if missing := [m for m in reading if _has_read_on(m, situation)]:
        found.append(_uncommitted(situation, missing))
    elif still and not found:
        found += [_stuck(situation, m) for m in reading[:1] if _place(situation, m) is not None]
    return found


# --- what is the case ------------------------------------------------------------------------------


def _last_change(situation: Situation) -> int:
    """When it last moved or got something to do; of a group that never moved, when its last member came."""
    members = [member.connected or 0 for member in situation.members]
    return max(situation.moved or max(members, default=0), situation.came)


def _hoards(member: MemberFacts, now: int) -> bool:
    """It sits on messages while others work."""
    return bool(member.holds) and now - (member.since or now) > HELD_MS


def _is_silent(member: MemberFacts, now: int) -> bool:
    late = max(member.session_ms * LATE, QUIET_MS / 2)
    return member.heard is None or now - member.heard > late


def _is_quiet(member: MemberFacts, now: int) -> bool:
    return member.fetched is None or now - member.fetched > QUIET_MS


def _has_read_on(member: MemberFacts, situation: Situation) -> bool:
    """It got messages that it did not commit, and not only just now."""
    if situation.shared:
        return bool(member.holds) and situation.now - (member.since or 0) > QUIET_MS
    begin = member.began_at if situation.position is None else situation.position
    return member.reads_at is not None and begin is not None and member.reads_at > begin


# --- sentences -------------------------------------------------------------------------------------


def _nobody(situation: Situation) -> Cause:
    parts = [Part("No consumer is running: the group has no members")]
    if situation.empty_since:
        parts += [Part(" since "), _time(situation.empty_since)]
    parts.append(Part(f", and {_messages(situation.lag)} of {situation.subject} wait."))
    return Cause(
        "no consumer",
        tuple(parts),
        "Start a consumer of this group. If nobody needs these messages any more, reset the group to "
        "the latest offset.",
        situation.subject,
        (("Reset", "reset"),),
    )


def _unassigned(situation: Situation) -> Cause:
    count = situation.other_members
    members = "member has" if count == 1 else "members have"
    return Cause(
        "no consumer",
        (
            Part(
                f"Nobody reads {situation.subject}: the group's {count} {members} not subscribed to "
                f"it, or wait to be given it, and {_messages(situation.lag)} wait."
            ),
        ),
        "Check which topics the consumers subscribe to. During a rebalance this passes by itself.",
        situation.subject,
    )


def _stopped(situation: Situation, members: list[MemberFacts]) -> Cause:
    one = members[0]
    parts = [Part("Stopped consumer: ", "name"), *_names(members)]
    if one.heard is None:
        parts.append(Part(" has given no sign of life since the broker's start"))
        parts += [*_held(members, situation), Part(".")]
    else:
        parts += [Part(" last sent a heartbeat at "), _time(one.heard)]
        parts += [*_held(members, situation), Part(". Its session ends at ")]
        parts += [_time(one.heard + one.session_ms), Part("; then others get what it has.")]
    return Cause(
        "stopped consumer",
        tuple(parts),
        f"Look at the process on {one.host or 'its host'}: it hangs, is stopped, or lost its network. "
        "Restart it, or wait for the end of its session.",
        situation.subject,
    )


def _paused(situation: Situation, members: list[MemberFacts]) -> Cause:
    one = min(members, key=lambda m: m.fetched or 0)
    parts = [
        Part("Paused member: ", "name"),
        *_names(members),
        Part(" sends heartbeats, but has asked for no "),
    ]
    parts.append(Part("messages"))
    if one.fetched is not None:
        parts += [Part(" since "), _time(one.fetched)]
    else:
        parts.append(Part(" at all"))
    parts += [*_held(members, situation), Part(".")]
    return Cause(
        "paused member",
        tuple(parts),
        "Its application has paused the partition, or is still busy with what it has: see whether its "
        "handler hangs (a slow database, a lock), and whether somebody called pause().",
        situation.subject,
    )


def _uncommitted(situation: Situation, members: list[MemberFacts]) -> Cause:
    one = members[0]
    parts = [Part("Missing commit: ", "name"), *_names(members)]
    if situation.shared:
        parts.append(Part(" goes on asking for messages, but has not committed what it got"))
        parts += _held(members, situation)
    else:
        parts.append(Part(" reads "))
        begin = "has never committed" if situation.position is None else "has not committed"
        parts.append(Part(f"on (next is offset {one.reads_at}), but the group {begin}"))
    if situation.moved:
        parts += [Part(" since "), _time(situation.moved)]
    if situation.position is not None and not situation.shared:
        parts += [Part(" and stays at offset "), _message(situation.position)]
    parts.append(Part("."))
    return Cause(
        "missing commit",
        tuple(parts),
        "The messages are handled, or thrown away, and nobody says so: switch on enable.auto.commit, or "
        "have the application call commit after it has handled them. After a restart all of them come "
        "again.",
        situation.subject,
    )


def _poison(situation: Situation) -> Cause | None:
    failing = situation.failing
    if failing is None or failing.attempt < FEW_ATTEMPTS:
        return None
    failed = failing.attempt - 1
    times = "once" if failed == 1 else f"{failed} times"
    others = failing.count - 1
    parts = [Part("Poison message: ", "name"), _message(failing.sequence, situation.subject)]
    parts.append(Part(f" failed {times}"))
    if others:
        parts.append(Part(f" (and {others} more {'has' if others == 1 else 'have'} failed)"))
    if failing.reason:
        parts.append(Part(f", last with “{failing.reason}”"))
    if failing.held_by:
        parts += [Part("; "), Part(failing.held_by, "member"), Part(" has it for one more attempt")]
    elif failing.due is not None and failing.due > situation.now:
        parts += [Part("; its next attempt is at "), _time(failing.due)]
    elif failing.due is not None:
        parts += [Part("; its next attempt is due since "), _time(failing.due)]
        parts.append(Part(", and no member has asked for it"))
    else:
        parts.append(Part("; it comes again as soon as a member asks"))
    if failing.limit > 0:
        parts.append(Part(f", and after {failing.limit} attempts it becomes a dead letter"))
    parts.append(Part("."))
    return Cause(
        "poison message",
        tuple(parts),
        "Look at the message and at the consumer's log at that time. Fix the consumer, or let it reject "
        "the message: it then becomes a dead letter, and can be sent back later.",
        situation.subject,
        (("The message", "message"), ("Dead letters", "letters")),
    )


def _unburied(situation: Situation) -> Cause:
    return Cause(
        "dead letters",
        (
            Part(
                f"{_messages(situation.doomed)} of {situation.subject} cannot become dead letters: "
                f"{situation.doomed_why}."
            ),
        ),
        "Until they are written the group's position stays below them. It is tried again by itself once "
        "the cause is gone.",
        situation.subject,
        (("Dead letters", "letters"),),
    )


def _stuck(situation: Situation, member: MemberFacts) -> Cause:
    at = _place(situation, member) or 0
    parts = [Part("Stuck: ", "name"), *_names([member]), Part(" asks for messages at offset ")]
    parts += [_message(at), Part(" again and again, and does not get past it.")]
    return Cause(
        "stuck",
        tuple(parts),
        "Look at the message there: it may be larger than the consumer takes, or one that it cannot read.",
        situation.subject,
        (("The message", "message"),),
    )


def _place(situation: Situation, member: MemberFacts) -> int | None:
    return member.lowest if situation.shared else member.reads_at


def _names(members: list[MemberFacts]) -> list[Part]:
    parts: list[Part] = []
    for i, member in enumerate(members[:NAMED]):
        if i:
            parts.append(Part(", "))
        parts.append(Part(member.client_id or member.id, "member"))
        parts.append(Part(f" ({member.id})" if member.client_id else ""))
    if len(members) > NAMED:
        parts.append(Part(f" and {len(members) - NAMED} more"))
    return parts


def _held(members: list[MemberFacts], situation: Situation) -> list[Part]:
    held = sum(member.holds for member in members)
    if not held:
        return [Part(f", and {_messages(situation.lag)} wait")] if not situation.shared else []
    since = min((m.since for m in members if m.since), default=0)
    parts = [
        Part(f", and holds {_messages(held)}" if len(members) == 1 else f", and they hold {held}")
    ]
    if since:
        parts += [Part(" since "), _time(since)]
    return parts


def _time(ms: int) -> Part:
    return Part(show_time(ms), "time", ms)


def _message(sequence: int, subject: str = "") -> Part:
    text = f"message {sequence} of {subject}" if subject else f"{sequence}"
    return Part(text, "message", sequence)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"
