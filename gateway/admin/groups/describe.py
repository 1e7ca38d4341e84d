"""GET /groups/describe: one group, its members, its subjects in pages by name, and who holds what.

    {"group": G, "kind": …, "state": …, "generation": 4, "why_exclusive": "", "configs": {…},
     "member_count": 3, "members": [{"member": ID, "client_id": …, "host": …, "software": …, …}, …],
     "subjects": [{"subject": S, "mode": "shared", "lag": 17, …}, …], "next": S or null,
     "holding_count": 3, "holdings": [{"subject": S, "member": ID, "messages": 8, "since": T, …}, …]}

Members are those that joined first, at most MAX_MEMBERS; the second page of subjects has none. Holdings are
those of the page's subjects, the oldest hand-out first, at most MAX_HOLDINGS. A member that reads in order
holds the subject as a whole: `messages` is null, since only the client knows how far it has read.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from kumquat.core.delivery.state import Progress
from kumquat.gateway.admin.groups.standing import kind, mode, standing
from kumquat.gateway.admin.http import Answer
from kumquat.gateway.admin.lookup import find_group, page
from kumquat.gateway.groups.views import protocol
from kumquat.gateway.net.turns import Turn
from kumquat.meta.group_configs import describe_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kumquat.core.delivery.state import Group, Member, PullLog
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_MEMBERS = 1000
MAX_HOLDINGS = 1000
SHARE_GROUPS = ("share.",)
"""How the names of configs begin that only share groups have; and those that only others have."""
OTHERS = ("consume.", "lease.", "auto.exclusive.", "delivery.count.")
ALL = "", ""
"""The group and subject under which DeadLetters says that it can write nothing at all."""
PLAIN = 0
"""What a member holds of a subject that it reads in order: no slot."""


async def describe(broker: Broker, arguments: Arguments) -> Answer:
    group = find_group(broker, arguments.required("group"))
    limit = arguments.number("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT
    after = arguments.text("after")
    known = await _subjects(broker, group)
    names, more = await page(known, after, limit)
    subjects, holdings = await _page(broker, group, names)
    members = islice(group.members.values(), MAX_MEMBERS if after is None else 0)
    answer = {
        "group": group.name,
        "kind": kind(group),
        "state": broker.coordinator.state(group),
        "generation": group.generation,
        "protocol": protocol(group),
        "why_exclusive": broker.coordinator.why_exclusive(group),
        "configs": _configs(broker, group),
        "member_count": len(group.members),
        "members": [_member(member) for member in members],
        "subject_count": len(known),
        "subjects": subjects,
        "next": names[-1] if more else None,
        "holding_count": len(holdings),
        "holdings": holdings[:MAX_HOLDINGS],
    }
    return Answer(200, answer)


def _configs(broker: Broker, group: Group) -> dict[str, str | None]:
    """Those that matter to such a group."""
    other = OTHERS if group.is_share else SHARE_GROUPS
    rows = describe_group(broker.registry.group_configs(group.name))
    return {row.name: row.value for row in rows if not row.name.startswith(other)}


async def _subjects(broker: Broker, group: Group) -> list[str]:
    """The names of those that it has a position of, and of those that a member holds all the same."""
    found = set(group.progress)
    turn = Turn()
    for member in list(group.members.values()):
        found |= member.holds.keys() - group.progress.keys()
        if turn.over:
            await turn.give_way()
    by_id = broker.log.subjects.by_id
    return [by_id[subject_id].name for subject_id in found if subject_id in by_id]


async def _page(
    broker: Broker, group: Group, names: Iterable[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Subjects, and who holds them."""
    subjects: list[dict[str, Any]] = []
    holdings: list[dict[str, Any]] = []
    failing = broker.dead_letters.statistics().failing
    turn = Turn()
    for name in names:
        subject = broker.log.subjects.by_name.get(name)
        if subject is not None:  # deleted meanwhile
            progress = group.progress.get(subject.id) or Progress()
            subjects.append(
                {
                    "subject": name,
                    "mode": mode(progress),
                    "consume_mode": broker.coordinator.mode(group.name, subject.id),
                    **standing(progress, subject),
                    "doomed_why": _why(failing, group, name) if progress.doomed else None,
                }
            )
            holdings += _holdings(group, progress, subject)
        if turn.over:
            await turn.give_way()
    return subjects, sorted(holdings, key=lambda held: held["since"] or 0)


def _why(failing: Mapping[tuple[str, str], str], group: Group, subject: str) -> str | None:
    """Why its dead letters cannot be written, if they cannot."""
    return failing.get((group.name, subject)) or failing.get(ALL)


def _holdings(group: Group, progress: Progress, subject: Subject) -> list[dict[str, Any]]:
    if not progress.shared:
        owners = [m.id for m in group.members.values() if m.holds.get(subject.id) == PLAIN]
        nothing = dict.fromkeys(("messages", "lowest", "since", "attempts"))
        return [{"subject": subject.name, "member": owner, **nothing} for owner in owners]
    return [_holding(subject, log) for log in progress.pull_logs.values() if log.leases]


def _holding(subject: Subject, log: PullLog) -> dict[str, Any]:
    return {
        "subject": subject.name,
        "member": log.member_id,
        "messages": log.unacked,
        "lowest": min(lease.first for lease in log.leases),
        "since": min(lease.at for lease in log.leases) or None,
        "attempts": max(lease.attempt for lease in log.leases),
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "member": member.id,
        "instance": member.instance_id,
        "kind": member.kind,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "software": member.software,
        "generation": member.generation,
        "session_ms": member.session_ms,
        "subjects": len(member.holds),
    }
