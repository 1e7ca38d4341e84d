"""Why a group stands still: one sentence for each cause, with names, and what to do. Pure.

`views/situation.py` collects what is known of a group and one subject (facts.py), `diagnose` decides what
that means, and sentences.py says it.
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
sentences. While a group reads in order, a message that failed holds up nothing, and comes last.
Times are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.console import sentences

if TYPE_CHECKING:
    from kumquat.gateway.console.facts import MemberFacts, Situation
    from kumquat.gateway.console.sentences import Cause

QUIET_MS = 10_000
"""Consumers that work ask for messages every second or so, and commit by themselves every 5 s."""
HELD_MS = 60_000
"""A member that holds messages for so long is looked at, although others of its group move."""
LATE = 0.4
"""A member that was silent for this part of its session time-out has missed a heartbeat: clients send three
or more in that time."""
FEW_ATTEMPTS = 2
"""A message that is to come for the second time has failed once."""


def diagnose(situation: Situation) -> list[Cause]:
    """What hinders most first; empty: it moves, or has nothing to do."""
    found: list[Cause] = []
    if situation.doomed and situation.doomed_why:
        found.append(sentences.unburied(situation))
    if not situation.lag:
        return found
    if not situation.members and not situation.other_members:
        return [*found, sentences.nobody(situation)]
    failing = situation.failing
    failed: list[Cause] = []
    if failing is not None and failing.attempt >= FEW_ATTEMPTS:
        failed.append(sentences.poison(situation, failing))
    if situation.shared:
        found, failed = [*found, *failed], []
    return [*found, *_members(situation, found), *failed]


def _members(situation: Situation, known: list[Cause]) -> list[Cause]:
    """What hinders the members."""
    found: list[Cause] = []
    still = situation.now - _last_change(situation) >= QUIET_MS
    if still and not situation.members:
        return [sentences.unassigned(situation)]
    suspects = [m for m in situation.members if still or _hoards(m, situation.now)]
    stopped = [m for m in suspects if _is_silent(m, situation.now)]
    awake = [m for m in suspects if m not in stopped]
    quiet = [m for m in awake if _is_quiet(m, situation.now)]
    reading = [m for m in awake if m not in quiet]
    found += [sentences.stopped(situation, stopped)] if stopped else []
    found += [sentences.paused(situation, quiet)] if quiet else []
    if missing := [m for m in reading if _has_read_on(m, situation)]:
        found.append(sentences.uncommitted(situation, missing))
    elif still and not known and not found and reading:
        at = reading[0].lowest if situation.shared else reading[0].reads_at
        found += [] if at is None else [sentences.stuck(situation, reading[0], at)]
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
