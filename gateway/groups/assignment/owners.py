"""Who owns which subject, where it is read with plain offsets.

An owner stays owner as long as it is subscribed. In mode `exclusive` the subjects are spread evenly
over the members: an orphan goes to whoever owns least, and a newcomer gets its part of what others
own. In `auto` they stay where they are: as soon as there is a second member they will be shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kumquat.core.delivery.undo import Undo
    from kumquat.gateway.groups.membership.roster import Division, Roster


def choose_owner(undo: Undo, roster: Roster, division: Division) -> None:
    """See to it that there is one, if anybody is subscribed."""
    if division.owner in division.subscribers:
        return
    candidates = division.plain & division.subscribers.keys() or division.subscribers.keys()
    chosen = min(candidates, key=lambda member: roster.owned.get(member, 0), default=None)
    set_owner(undo, roster, division, chosen)


def set_owner(undo: Undo, roster: Roster, division: Division, member_id: str | None) -> None:
    owned = roster.owned
    undo.keep(roster)
    undo.keep(division)
    roster.version += 1
    if division.owner is not None:
        undo.item(owned, division.owner)
        owned[division.owner] = owned.get(division.owner, 1) - 1
    if member_id is not None:
        undo.item(owned, member_id)
        owned[member_id] = owned.get(member_id, 0) + 1
    division.owner = member_id


def is_due_to(roster: Roster, division: Division, newcomer: str) -> bool:
    """Whether a newcomer should own this subject, for the sake of an even spread."""
    owner, owned = division.owner, roster.owned
    return owner is not None and owned.get(owner, 0) - owned.get(newcomer, 0) > 1
