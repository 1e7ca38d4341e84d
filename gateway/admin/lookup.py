"""What a request names, found: a subject, a group. And names in pages, without holding up other clients.

A page of names is in their order, whatever the order of the table. Sorting 100,000 names takes the event
loop 50 ms, so `page` goes through them in turns and keeps the smallest.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.admin.http import HttpError
from kumquat.gateway.net.dispatch import Refused
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker

AT_A_TIME = 1000


def find_subject(broker: Broker, name: str) -> Subject:
    subject = broker.log.subjects.by_name.get(name)
    if subject is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no subject {name!r}")
    return subject


def find_group(broker: Broker, name: str) -> Group:
    group = broker.coordinator.groups.by_name.get(name)
    if group is None or name == INTERNAL_GROUP:
        raise HttpError(
            404,
            "GROUP_ID_NOT_FOUND",
            f"there is no group {name!r}; kumquat groups list shows those that there are",
        )
    return group


async def page(names: Sequence[str], after: str | None, limit: int) -> tuple[list[str], bool]:
    """The first names behind `after`, in order, and whether there are more."""
    found: list[str] = []
    turn = Turn()
    for start in range(0, len(names), AT_A_TIME):
        some = names[start : start + AT_A_TIME]
        found += some if after is None else [name for name in some if name > after]
        found = nsmallest(limit + 1, found)
        if turn.over:
            await turn.give_way()
    return found[:limit], len(found) > limit
