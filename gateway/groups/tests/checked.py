"""A coordinator that is checked with every decision.

- Some decisions are tried twice: at first the disk is full. A StorageError, and likewise a refusal,
  must leave everything as it was, in what is stored and in memory (but for the session clocks of members
  that were heard). The second try then does what the
  first would have done.
- A decision writes one frame at the most, so a crash never leaves half of one.
- What is written, read back from its bytes, makes the same groups as those that run.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from kumquat.core.delivery.actions import Action, from_json, to_json
from kumquat.core.delivery.state import Groups
from kumquat.core.errors import KumquatError, StorageError
from kumquat.gateway.groups.coordinator import Coordinator
from kumquat.gateway.groups.membership.client_assigned import ClientAssigned
from kumquat.gateway.groups.membership.client_assigned_states import Participant
from kumquat.gateway.groups.membership.members import SESSION, Limits
from kumquat.gateway.groups.membership.roster import Division, Presence, Roster, Ticket

if TYPE_CHECKING:
    from kumquat.gateway.groups.tests.simulation import Simulation

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
FAILS = 0.8
BACK = ("members", "roster", "via")
"""Attributes that lead back, or to something that is compared elsewhere."""


def stored(groups: Groups) -> object:
    """All that is durable, to be compared."""
    for subject_id, slots in groups.slots.items():
        for slot, (group, log) in slots.items():
            assert groups.by_id[group.id] is group
            assert group.progress[subject_id].pull_logs[slot] is log
    return plain(
        {
            "groups": {
                gid: json.dumps(sorted(json.dumps(to_json(a)) for a in groups.snapshot(group)))
                for gid, group in groups.by_id.items()
            },
            "names": {name: group.id for name, group in groups.by_name.items()},
            "slots": {
                subject_id: set(slots) for subject_id, slots in groups.slots.items() if slots
            },
            "numbers": {subject_id: [n.given, n.top] for subject_id, n in groups.numbers.items()},
            "next": [groups.next_id, groups.floor],
            "silent": groups.silent,
        }
    )


def plain(thing: Any) -> Any:
    if isinstance(thing, Ticket):
        return "ticket", id(thing), thing.answer
    if isinstance(thing, Roster):
        return {**_attributes(thing), "group": (id(thing.group), thing.group.id)}
    if isinstance(thing, Division):
        held = {"subscribers": set(thing.subscribers), "non_sharers": set(thing.non_sharers)}
        return {**_attributes(thing), **held}
    if isinstance(thing, Presence):
        return {**_attributes(thing), "via": id(thing.via)}
    if isinstance(thing, ClientAssigned | Participant):
        return {**_attributes(thing), "id": id(thing)}
    if isinstance(thing, Mapping):
        return {key: plain(value) for key, value in thing.items()}
    if isinstance(thing, set | frozenset):
        return frozenset(thing)
    if isinstance(thing, list | tuple | deque):
        return [plain(each) for each in thing]
    return thing


def _attributes(thing: Any) -> dict[str, Any]:
    names = [name for name in thing.__slots__ if name not in (*BACK, "group", "subscribers")]
    return {name: plain(getattr(thing, name)) for name in names}


class Checked(Coordinator):
    def __init__(self, groups: Groups, world: Simulation, limits: Limits) -> None:
        super().__init__(groups, world.append, world, limits)
        self._world = world
        self._choose = Random(len(world.log))

    def everything(self) -> object:
        members = self.decisions._members
        names = ["rosters", "pending", "_given", "_given_large", "_by_topic", "_by_pattern"]
        names.append("_counted_silence_at")
        return [
            stored(self.groups),
            {name: plain(getattr(members, name)) for name in names},
            {key: None if key[0] == SESSION else at for key, at in self.deadlines._when.items()},
            plain(self._world.bindings),
        ]

    def _carry_out(self, now: float, decide: Callable[[*Ts], T], *arguments: *Ts) -> T:
        if self._choose.random() < FAILS:
            self._world.disk_is_full = True
            try:
                return self._try(now, decide, *arguments)
            except StorageError:
                pass
            finally:
                self._world.disk_is_full = False
        return self._try(now, decide, *arguments)

    def _try(self, now: float, decide: Callable[[*Ts], T], *arguments: *Ts) -> T:
        before, frames = self.everything(), self._world.frames
        try:
            answer = super()._carry_out(now, decide, *arguments)
        except KumquatError:
            assert self.everything() == before, "something is left of a decision that failed"
            assert self._world.frames == frames
            raise
        assert self._world.frames <= frames + 1, "a crash could leave half of a decision"
        return answer


class Twin:
    """What a start would make of what was written so far."""

    def __init__(self) -> None:
        self.groups = Groups()

    def write(self, action: Action, now_ms: int) -> None:
        self.groups.now_ms = now_ms
        self.groups.apply(from_json(json.loads(json.dumps(to_json(action)))))
