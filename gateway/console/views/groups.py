"""Groups: the list by lag, and one with members, holdings, the lag over time and why it stands still.

What a group is made of comes from the admin endpoint's own /groups/describe. Signs of life and the causes
are added here.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.admin.lookup import page
from kumquat.gateway.console.asking import Unanswered, ask
from kumquat.gateway.console.diagnose import diagnose
from kumquat.gateway.console.snapshot import GroupRow, summary
from kumquat.gateway.console.views.situation import Clients, situation
from kumquat.gateway.net.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.core.delivery.state import Group
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.console.facts import Situation
    from kumquat.gateway.console.sentences import Cause
    from kumquat.gateway.console.snapshot import Snapshot

PAGE = 50
SUBJECTS = 50
DIAGNOSED = 50
"""Subjects of a page that are looked at, those with the greatest lag."""


class GroupList(NamedTuple):
    rows: list[GroupRow]
    total: int
    following: str | None
    """A page number, or where a search goes on."""


class Sign(NamedTuple):
    """Signs of life of a member."""

    heard: int | None
    fetched: int | None


class GroupView(NamedTuple):
    name: str
    described: Mapping[str, Any]
    causes: list[Cause]
    situations: dict[str, Situation]
    signs: dict[str, Sign]
    unknown: list[str]
    """Subjects that members read and in which the group has no position yet."""
    row: GroupRow
    moved: int
    empty_since: int


async def by_lag(snapshot: Snapshot, number: int) -> GroupList:
    rows = snapshot.top[number * PAGE : (number + 1) * PAGE]
    more = (number + 1) * PAGE < len(snapshot.top)
    return GroupList(rows, snapshot.groups, str(number + 1) if more else None)


async def search(broker: Broker, query: str, after: str | None) -> GroupList:
    """By name, those that contain `query`."""
    by_name = broker.coordinator.groups.by_name
    wanted = query.lower()
    names = [name for name in by_name if wanted in name.lower() and name != INTERNAL_GROUP]
    found, more = await page(names, after, PAGE)
    groups = [by_name[name] for name in found if name in by_name]
    rows = [await summary(broker, group) for group in groups]
    return GroupList(rows, len(names), found[-1] if more else None)


def find(broker: Broker, name: str) -> Group:
    group = broker.coordinator.groups.by_name.get(name)
    if group is None or name == INTERNAL_GROUP:
        raise Unanswered(404, f"there is no group {name!r}")
    return group


async def group_view(broker: Broker, name: str, after: str | None) -> GroupView:
    described = await ask(
        broker, "GET", "/groups/describe", group=name, after=after, limit=SUBJECTS
    )
    group = find(broker, name)
    row = await summary(broker, group)
    found = await _situations(broker, group, described["subjects"])
    causes = [cause for each in found.values() for cause in diagnose(each)]
    signs: dict[str, Sign] = {}
    for each in found.values():
        for member in each.members:
            known = signs.get(member.id)
            fetched = [at for at in (known and known.fetched, member.fetched) if at]
            signs[member.id] = Sign(member.heard, max(fetched, default=None))
    return GroupView(
        name,
        described,
        causes,
        found,
        signs,
        [each.subject for each in found.values() if not each.moved and each.lag],
        row,
        row.moved_at,
        0 if group.members else group.empty_since,
    )


async def _situations(
    broker: Broker, group: Group, subjects: list[dict[str, Any]]
) -> dict[str, Situation]:
    clients = Clients(broker)
    lagging = sorted(subjects, key=lambda each: -(each["lag"] or 0))
    found: dict[str, Situation] = {}
    turn = Turn()
    for each in islice(lagging, DIAGNOSED):
        subject = broker.log.subjects.by_name.get(each["subject"])
        known = None if subject is None else situation(broker, group, subject, clients)
        if known is not None:
            found[known.subject] = known
        if turn.over:
            await turn.give_way()
    return found
