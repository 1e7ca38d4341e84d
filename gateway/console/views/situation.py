"""What is known of a group and one subject, for `diagnose`: who is there, who asks, who holds what.

When a member last asked for messages is known in three ways:
- it shares the subject: the connection that last fetched in its pull log (core/delivery/sharing/service.py)
- it is a member of a share group: the connection of its share session
- it reads in order: a Fetch names no group, so the connections with its client id and address count. Two
  consumers of one program cannot be told apart, then the one that asked last counts for both.

A connection that waits for messages at this moment asks now.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Any

import trio

from kumquat.core.delivery.progress import Progress
from kumquat.core.logs.messages.subject import ENTRY
from kumquat.gateway.admin.groups.standing import standing
from kumquat.gateway.console.facts import Failing, MemberFacts, Situation
from kumquat.gateway.groups.assignment.sharers import may_share
from kumquat.gateway.groups.membership.protocol import CLIENT_ASSIGNED
from kumquat.gateway.shares.sessions import Member as ShareMember

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.core.delivery.state import Group, Member, PullLog
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session

MOST_MEMBERS = 200
MOST_LEASES = 1000
"""Leases of a member that are looked at: the oldest ones."""
LONGEST_REASON = 200
CLOCKS_DIFFER_MS = 5000


class Clients:
    """The connections by client id and address: made once for all groups that a page looks at."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_name: dict[tuple[str, str], list[Session]] | None = None

    def of(self, member: Member) -> list[Session]:
        if self._by_name is None:
            self._by_name = {}
            for session in self._broker.sessions:
                key = session.client_id or "", session.host
                self._by_name.setdefault(key, []).append(session)
        return self._by_name.get((member.client_id, member.host.removeprefix("/")), [])


def situation(
    broker: Broker, group: Group, subject: Subject, clients: Clients | None = None
) -> Situation | None:
    """None: the group has nothing to do with the subject."""
    known = group.progress.get(subject.id)
    members = [m for m in group.members.values() if _has(m, subject)]
    if known is None and not any(subject.id in member.holds for member in members):
        return None
    progress = known or Progress()
    found = standing(progress, subject)
    now = broker.actions.now_ms()
    clients = clients or Clients(broker)
    facts = tuple(
        _facts(broker, group, subject, progress, member, clients, now)
        for member in islice(members, MOST_MEMBERS)
    )
    failing = broker.dead_letters.statistics().failing
    return Situation(
        group=group.name,
        subject=subject.name,
        now=now,
        shared=progress.shared,
        position=found["position"],
        lag=_left(found, progress, subject),
        behind=found["behind"] or 0,
        moved=progress.committed_at,
        came=_came(subject, found["position"], now),
        empty_since=0 if group.members else group.empty_since,
        members=facts,
        other_members=len(group.members) - len(members),
        failing=_failing(broker, group, subject, progress),
        doomed=found["doomed"],
        doomed_why=failing.get((group.name, subject.name)) or failing.get(("", "")),
        state=broker.coordinator.state(group),
    )


def _left(found: dict[str, Any], progress: Progress, subject: Subject) -> int:
    """A group that never committed has all of the subject before it."""
    if found["lag"] is not None:
        return int(found["lag"])
    return subject.readable_end - subject.earliest


def _came(subject: Subject, position: int | None, now: int) -> int:
    """When the message there was stored, by its timestamp; 0: long ago, or its clock is wrong."""
    entries = subject.entries
    if position is None or entries is None or not len(entries) or position < entries[0]:
        return 0
    i = bisect_right(range(len(entries) // ENTRY), position, key=lambda n: entries[n * ENTRY]) - 1
    stored = entries[i * ENTRY + ENTRY - 1]
    return stored if stored <= now + CLOCKS_DIFFER_MS else 0


def _has(member: Member, subject: Subject) -> bool:
    """Who reads what in a group that assigns itself is known to its clients alone."""
    return member.kind == CLIENT_ASSIGNED or subject.id in member.holds


def _facts(
    broker: Broker,
    group: Group,
    subject: Subject,
    progress: Progress,
    member: Member,
    clients: Clients,
    now: int,
) -> MemberFacts:
    current = trio.current_time()

    def moment(at: float | None) -> int | None:
        return None if at is None or at <= 0 else now - int((current - at) * 1000)

    log = progress.pull_logs.get(member.holds.get(subject.id, 0)) if progress.shared else None
    asked: float | None = None
    reads_at = began_at = connected = None
    if log is None:
        sessions = clients.of(member)
        connected = max((session.since for session in sessions), default=None)
        asked, reads_at, began_at = _plain(sessions, subject, current)
    elif group.is_share:
        session = broker.shares.sessions.get(ShareMember(group.name, member.id))
        asked = None if session is None else _asked(session.connection, current)
    else:
        reading = broker.sharing.readers.get((subject.id, log.slot))
        if reading is not None:
            waits = getattr(reading.session, "poll", None) is not None
            asked = current if waits else reading.at
    held = [] if log is None else list(islice(log.leases, MOST_LEASES))
    return MemberFacts(
        id=member.id,
        client_id=member.client_id,
        host=member.host.removeprefix("/"),
        session_ms=member.session_ms,
        heard=moment(broker.coordinator.heard(group, member)),
        fetched=moment(asked),
        reads_at=reads_at,
        began_at=began_at,
        connected=connected,
        holds=0 if log is None else log.unacked,
        lowest=min((lease.first for lease in held), default=None),
        since=min((lease.at for lease in held if lease.at), default=None),
    )


def _plain(
    sessions: Iterable[Session], subject: Subject, current: float
) -> tuple[float | None, int | None, int | None]:
    """When one of these last asked for the subject, at which offset, and at which one first."""
    reads = [(*s.reads[subject.id], s) for s in sessions if subject.id in s.reads]
    if not reads:
        return None, None, None
    at, offset, first, session = max(reads, key=lambda read: read[0])
    waits = session.poll is not None and at == session.fetched_at
    return (current if waits else at), offset, first


def _asked(session: Session, current: float) -> float:
    return current if session.poll is not None else session.fetched_at


def _failing(broker: Broker, group: Group, subject: Subject, progress: Progress) -> Failing | None:
    """The lowest message that failed: it waits, is to come again, or a member has it once more."""
    limit = broker.sharing.retry_policy(group).limit
    found: list[tuple[int, int, int | None, str]] = []
    if wait := next(iter(progress.waiting), None):
        found.append((wait.first, wait.attempt, wait.due, ""))
    again = next((part for part in progress.redelivery if part.attempt > 1), None)
    if again:
        found.append((again.first, again.attempt, None, ""))
    for log in islice(progress.pull_logs.values(), MOST_MEMBERS):
        found += _tried_again(log)
    if not found:
        return None
    first, attempt, due, holder = min(found)
    failure = broker.coordinator.last_failures.get((group.name, subject.name))
    reason = "" if failure is None else failure.reason[:LONGEST_REASON]
    member = group.members.get(holder)
    return Failing(
        first,
        attempt,
        due,
        count=max(1, progress.retries + (0 if not holder else 1)),
        limit=limit,
        reason=reason,
        held_by="" if member is None else member.client_id or member.id,
        stranded=_is_stranded(group, progress, broker.actions.now_ms()),
    )


def _is_stranded(group: Group, progress: Progress, now: int) -> bool:
    """A retry is due, and only a member that can share could take it."""
    if progress.shared or not progress.due(now) or not group.members:
        return False
    return not any(
        m.kind != CLIENT_ASSIGNED and may_share(m.software, m.client_id)
        for m in islice(group.members.values(), MOST_MEMBERS)
    )


def _tried_again(log: PullLog) -> list[tuple[int, int, int | None, str]]:
    some = [lease for lease in islice(log.leases, MOST_LEASES) if lease.attempt > 1]
    lowest = min(some, key=lambda lease: lease.first, default=None)
    return [] if lowest is None else [(lowest.first, lowest.attempt, None, log.member_id)]
