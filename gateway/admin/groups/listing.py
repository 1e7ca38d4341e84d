"""GET /groups: all groups, in pages by name.

    {"groups": [{"group": G, "kind": "classic", "state": "Stable", "members": 3, "subjects": 2,
                 "shared": 1, "exclusive": 1, "why_exclusive": "", "lag": 17, …}, …],
     "next": NAME or null}

The numbers are sums over the group's subjects (standing.py). Subjects of which the group has no position
count with nothing. A page ends early when it has looked at MOST_SUBJECTS, since a group may have read
100,000 of them. It is no snapshot: others have their turn in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.admin.groups.standing import EXCLUSIVE, SHARED, kind, mode, standing
from kumquat.gateway.admin.http import Answer
from kumquat.gateway.admin.lookup import page
from kumquat.gateway.net.turns import Turn

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group
    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MOST_SUBJECTS = 200_000
SUMS = ("lag", "in_flight", "again", "waiting", "doomed", "expired")


async def list_groups(broker: Broker, arguments: Arguments) -> Answer:
    limit = arguments.number("limit", 1, MAX_LIMIT) or DEFAULT_LIMIT
    by_name = broker.coordinator.groups.by_name
    shown = [name for name in by_name if name != INTERNAL_GROUP]
    names, more = await page(shown, arguments.text("after"), limit)
    listed: list[dict[str, Any]] = []
    last, looked_at, turn = None, 0, Turn()
    for name in names:
        if looked_at >= MOST_SUBJECTS:
            more = True
            break
        last, group = name, by_name.get(name)
        if group is not None:  # deleted meanwhile
            looked_at += len(group.progress)
            listed.append(await _summary(broker, group, turn))
    return Answer(200, {"groups": listed, "next": last if more else None})


async def _summary(broker: Broker, group: Group, turn: Turn) -> dict[str, Any]:
    modes = {SHARED: 0, EXCLUSIVE: 0}
    sums = dict.fromkeys(SUMS, 0)
    subjects = broker.log.subjects.by_id
    for subject_id in list(group.progress):
        subject, progress = subjects.get(subject_id), group.progress.get(subject_id)
        if subject is not None and progress is not None:
            modes[mode(progress)] += 1
            found = standing(progress, subject)
            for name in SUMS:
                sums[name] += found[name] or 0
        if turn.over:
            await turn.give_way()
    return {
        "group": group.name,
        "kind": kind(group),
        "state": broker.coordinator.state(group),
        "members": len(group.members),
        "subjects": sum(modes.values()),
        **modes,
        "why_exclusive": broker.coordinator.why_exclusive(group),
        **sums,
    }
