"""The sentences of a diagnosis: a cause with names and times, and what to do about it. Pure.

A sentence is made of parts, so that a page can make a link of a message's number and show a time in the
reader's zone. Whether a cause is there was decided before (diagnose.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kumquat.gateway.admin.times import show_time

if TYPE_CHECKING:
    from kumquat.gateway.console.facts import Failing, MemberFacts, Situation

NAMED = 3
"""So many members are named one by one."""


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


def nobody(situation: Situation) -> Cause:
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


def unassigned(situation: Situation) -> Cause:
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


def stopped(situation: Situation, members: list[MemberFacts]) -> Cause:
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


def paused(situation: Situation, members: list[MemberFacts]) -> Cause:
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


def uncommitted(situation: Situation, members: list[MemberFacts]) -> Cause:
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


def poison(situation: Situation, failing: Failing) -> Cause:
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
    elif failing.stranded:
        if failing.due is not None:
            parts += [Part("; its next attempt is due since "), _time(failing.due)]
        parts.append(Part(". The group reads in order, and no member's client is known to share: "))
        parts.append(Part("it waits for one that is"))
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
    stranded = (
        "Start a member whose client can share, or set consume.mode=shared. "
        if failing.stranded
        else ""
    )
    return Cause(
        "poison message",
        tuple(parts),
        f"{stranded}Look at the message and at the consumer's log at that time. Fix the consumer, or "
        "let it reject the message: it then becomes a dead letter, and can be sent back later.",
        situation.subject,
        (("The message", "message"), ("Dead letters", "letters")),
    )


def unburied(situation: Situation) -> Cause:
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


def stuck(situation: Situation, member: MemberFacts, at: int) -> Cause:
    parts = [Part("Stuck: ", "name"), *_names([member]), Part(" asks for messages at offset ")]
    parts += [_message(at), Part(" again and again, and does not get past it.")]
    return Cause(
        "stuck",
        tuple(parts),
        "Look at the message there: it may be larger than the consumer takes, or one that it cannot read.",
        situation.subject,
        (("The message", "message"),),
    )


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
