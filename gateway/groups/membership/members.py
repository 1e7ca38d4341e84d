"""What all kinds of members of a served group share: rosters, subscriptions, session clocks, leaving.

Keys of deadlines: (SESSION, group id, member id) when a member counts as gone, (REBALANCE, …) when a
member that was asked to rejoin, to sync or to let go of something has not, (HOLD, …) when its held
JoinGroup is answered all the same; (PENDING, group name, member id) when an id that was given is
forgotten; (SILENCE,) when the silence of members that were there at the start is next written down.

A session clock survives a restart of the broker. What counts is how long a broker has served without
hearing from the member, summed over all starts since it was last heard: it is written every second while
there is such a member. So a dead one goes, however often the broker restarts, and an outage costs nobody
anything.
"""

from __future__ import annotations

import logging
import secrets
from base64 import urlsafe_b64encode
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from kumquat.core.delivery import actions
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.core.delivery.give_back import Delay
from kumquat.core.delivery.state import SHARE
from kumquat.gateway.groups.assignment.pattern import Patterns
from kumquat.gateway.groups.assignment.sharers import UNNAMED, may_share
from kumquat.gateway.groups.errors import FencedInstance, GroupFull, InvalidGroupId, UnknownMember
from kumquat.gateway.groups.membership.protocol import (
    CLIENT_ASSIGNED,
    EAGER,
    manner_of,
)
from kumquat.gateway.groups.membership.roster import Phase, Presence, Roster
from kumquat.gateway.groups.membership.weight import MAX_CLIENT_ID

if TYPE_CHECKING:
    from collections.abc import Container

    from kumquat.core.delivery.state import Group, Member
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.groups.assignment.division import Divisions
    from kumquat.gateway.groups.assignment.modes import World
    from kumquat.gateway.groups.deadlines import Deadlines
    from kumquat.gateway.groups.draft import Draft

SESSION, REBALANCE, HOLD, PENDING, SILENCE = "session", "rebalance", "hold", "pending", "silence"
SILENCE_SECONDS = 1.0
MAX_GROUP_ID = 32_767
"""Bytes: what fits into a string of the older protocol versions."""
BELIEVED_BEATS = 3
JUST_NOW_MS = 100
"""A client that closes commits, and leaves within that time."""
MAX_GIVEN = 10_000
"""Member ids that were given and not used, over all groups."""
MAX_GIVEN_LARGE = 500
"""Likewise, for groups with a name of more than LARGE_NAME characters: such names cannot fill the memory,
nor push out the ids that were given for others."""
LARGE_NAME = 1000
LEASES_AT_ONCE = 250
"""That are given back in one step: some 5 ms."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """The broker's options on groups."""

    min_session_ms: int
    max_session_ms: int
    max_size: int
    initial_delay_ms: int
    consumer_session_ms: int
    consumer_heartbeat_ms: int
    offsets_retention_ms: int
    offsets_check_ms: int


@dataclass(slots=True)
class Caller:
    """Who asks: a connection, as far as groups care."""

    client_id: str
    host: str
    bound: dict[str, str]
    """Group → the member that this connection last spoke for."""
    software: str = ""
    """What the client calls itself, if it does; and its version."""
    software_version: str = ""
    asked: int = -1
    """The version of its ApiVersions request; -1: it sent none."""
    api_version: int = -1
    """The version of this request."""


def check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    if not group_id and not may_be_empty:
        raise InvalidGroupId("a group id cannot be empty")
    if len(group_id) * 4 > MAX_GROUP_ID and len(group_id.encode()) > MAX_GROUP_ID:
        raise InvalidGroupId(f"a group id has at most {MAX_GROUP_ID} bytes")
    if group_id == INTERNAL_GROUP:
        raise InvalidGroupId(f"{group_id} is the broker's own")


def new_member_id(prefix: str) -> str:
    return f"{prefix[:MAX_CLIENT_ID]}-{urlsafe_b64encode(secrets.token_bytes(15)).decode()}"


class Members:
    def __init__(
        self,
        draft: Draft,
        divisions: Divisions,
        deadlines: Deadlines,
        world: World,
        limits: Limits,
    ) -> None:
        self.draft = draft
        self._undo = draft.undo
        self.divisions = divisions
        self.deadlines = deadlines
        self.world = world
        self.limits = limits
        self.rosters: dict[int, Roster] = {}
        self.pending: defaultdict[str, set[str]] = defaultdict(set)
        """Group name → member ids that were given with MEMBER_ID_REQUIRED and have not come back yet."""
        self._given: dict[tuple[str, str], None] = {}
        """The same, oldest first: of more than MAX_GIVEN the oldest are forgotten."""
        self._given_large: dict[tuple[str, str], None] = {}
        """The same for large names; MAX_GIVEN_LARGE of them."""
        self._by_topic: defaultdict[str, set[int]] = defaultdict(set)
        """Topic name → ids of the groups that have it among their names."""
        self._by_pattern: set[int] = set()
        self.patterns = Patterns()
        self._counted_silence_at: float | None = None

    # --- finding ---------------------------------------------------------------------------------

    def roster(self, group: Group) -> Roster:
        roster = self.rosters.get(group.id)
        if roster is None or roster.group is not group:
            if roster is not None:
                self.drop(roster)
            self._undo.item(self.rosters, group.id)
            roster = self.rosters[group.id] = Roster(group)
        return roster

    def peek(self, group: Group) -> Roster:
        """The roster to look at, not to change: where there is none, an empty one that is not kept."""
        roster = self.rosters.get(group.id)
        return roster if roster is not None and roster.group is group else Roster(group)

    def is_empty(self, group: Group) -> bool:
        """Nobody is in it; nor is anybody about to be, where a client assigns."""
        return not group.members and self.peek(group).client_assigned is None

    def find(self, group_id: str, member_id: str, instance_id: str | None) -> tuple[Roster, Member]:
        """A member of a served group, by what a request says of it. Those of share groups are found by
        their own request alone: see share.py."""
        group = self.draft.groups.by_name.get(group_id)
        if group is None:
            raise UnknownMember(f"there is no group {group_id!r}")
        if group.is_share:
            raise UnknownMember(f"{group_id!r} is a share group")
        roster = self.peek(group)
        if instance_id is not None:
            known = roster.instances.get(instance_id)
            if known is None:
                raise UnknownMember(f"nobody is static member {instance_id!r}")
            if known != member_id:
                raise FencedInstance(f"another one is static member {instance_id!r} now")
        member = group.members.get(member_id)
        if member is None or member_id not in roster.presences:
            raise UnknownMember(f"{member_id!r} is no member of {group_id!r}")
        return roster, member

    def check_room(self, roster: Roster) -> None:
        if len(roster.group.members) >= self.limits.max_size:
            raise GroupFull(f"group.max.size={self.limits.max_size} reached")

    # --- coming ----------------------------------------------------------------------------------

    def enter(self, roster: Roster, member: Member, now: float) -> Presence:
        """A new member, as it is to be."""
        self.draft.put(roster.group, member)
        self.arrived(roster.group.name, member.id)
        manner = manner_of(member.kind, member.software)
        presence = Presence(member.id, manner, can_share=_can_share(member))
        self._add(roster, member, presence)
        self.resubscribe(roster, presence, now)
        self.touch(roster, member, now)
        self.draft.note(
            *(logger, logging.INFO),
            "member %s joined group %s (%s, %s)",
            *(member.id, roster.group.name, manner, member.software),
        )
        return presence

    def replace(self, roster: Roster, old: Member, new: Member, now: float) -> Presence:
        """A new member in the place of an old one, which is fenced."""
        subject_ids = self._remove(roster, old, "another came in its place", heir=new.id)
        presence = self.enter(roster, new, now)
        self.divisions.look_at(roster, subject_ids, now)
        return presence

    def resume(self, roster: Roster, now: float) -> None:
        """All members that were there when the broker stopped."""
        for member in roster.group.members.values():
            presence = self._restored(member)
            self._add(roster, member, presence)
            for subject_id, slot in member.holds.items():
                division = roster.division(self._undo, subject_id)
                (division.pull if slot else division.plain).add(member.id)
                if slot:
                    presence.expecting[subject_id] = BELIEVED_BEATS
            self.divisions.enrol(roster, presence, self._topics(roster, presence))
            if member.kind == EAGER:  # it may be between a JoinGroup and a SyncGroup
                presence.phases = dict.fromkeys(presence.topics - member.holds.keys(), Phase.STALE)
            self.resume_clock(roster, member, now)
        for subject_id, progress in roster.group.progress.items():
            if progress.shared:
                roster.division(self._undo, subject_id)
        for subject_id in list(roster.divisions):
            self.divisions.advance(roster, subject_id, now)

    def _add(self, roster: Roster, member: Member, presence: Presence) -> None:
        self._undo.item(roster.presences, member.id)
        roster.presences[member.id] = presence
        if member.instance_id is not None:
            self._undo.item(roster.instances, member.instance_id)
            roster.instances[member.instance_id] = member.id

    @staticmethod
    def _restored(member: Member) -> Presence:
        """Where it was stored before clients were told apart, who shares may go on; it is asked to rejoin,
        and says then what it is."""
        presence = Presence(member.id, member.kind, can_share=_can_share(member))
        if not member.software:
            presence.can_share = any(member.holds.values())
            presence.must_rejoin = True
        return presence

    def recognise(self, roster: Roster, presence: Presence, software: str, now: float) -> None:
        """What its client is may have become known. Some name themselves on their first connection only:
        what is known of a member is not forgotten."""
        member = roster.group.members[presence.id]
        if software == UNNAMED and member.software:
            software = member.software
        if software != member.software:
            self.draft.put(roster.group, member, software=software)
        manner = manner_of(member.kind, software)
        can_share = may_share(software, member.client_id)
        if (manner, can_share) == (presence.manner, presence.can_share):
            return
        self._undo.keep(presence)
        presence.manner = manner
        if presence.can_share != can_share:
            presence.can_share = can_share
            for subject_id in presence.topics:
                self.divisions.count_non_sharer(roster, subject_id, presence)
                self.divisions.advance(roster, subject_id, now)

    def touch(self, roster: Roster, member: Member, now: float) -> None:
        """A sign of life. It counts even if the request cannot be written: with a full disk nobody who
        sends heartbeats is to be gone."""
        self.draft.hear(roster.group.id, member.id)
        clock = (SESSION, roster.group.id, member.id)
        self.deadlines.move_on(clock, now + member.session_ms / 1000)

    def resume_clock(self, roster: Roster, member: Member, now: float) -> None:
        """The session clock of a member that was there when the broker stopped goes on."""
        silent_ms = self.draft.groups.silent.get((roster.group.id, member.id), 0)
        left = max(0, member.session_ms - silent_ms) / 1000
        self.deadlines.set((SESSION, roster.group.id, member.id), now + left)

    def count_silence(self, now: float) -> None:
        """Write down for how long more those who were not heard since the start are silent. Time in which
        the whole broker stood still is not theirs."""
        if not self.draft.groups.silent:
            return
        before = now if self._counted_silence_at is None else self._counted_silence_at
        passed = min(now - before, 2 * SILENCE_SECONDS)
        if passed > 0:
            self.draft.append_last([actions.Silent(round(passed * 1000))])
        self._undo.call(setattr, self, "_counted_silence_at", self._counted_silence_at)
        self._counted_silence_at = now
        self.deadlines.set((SILENCE,), now + SILENCE_SECONDS)

    def expect(self, roster: Roster, member: Member, now: float) -> None:
        """It is to do something within its rebalance time-out; a time that is running runs on."""
        key = (REBALANCE, roster.group.id, member.id)
        if key not in self.deadlines:
            self.deadlines.set(key, now + max(member.rebalance_ms, 0) / 1000)

    def met(self, roster: Roster, member: Member) -> None:
        self.deadlines.drop((REBALANCE, roster.group.id, member.id))

    def give_id(self, group_id: str, prefix: str, session_ms: int, now: float) -> str:
        """An id for somebody who is to come back with it."""
        given, most = self._given, MAX_GIVEN
        if len(group_id) > LARGE_NAME:
            given, most = self._given_large, MAX_GIVEN_LARGE
        if len(given) >= most:
            self.arrived(*next(iter(given)))
        member_id = new_member_id(prefix)
        self._keep_pending(group_id, member_id)
        self.pending[group_id].add(member_id)
        given[group_id, member_id] = None
        self.deadlines.set((PENDING, group_id, member_id), now + session_ms / 1000)
        return member_id

    def arrived(self, group_id: str, member_id: str) -> None:
        """Who was given an id has come, or never will."""
        given = self.pending.get(group_id)
        if given is not None:
            self._keep_pending(group_id, member_id)
            given.discard(member_id)
            self._given.pop((group_id, member_id), None)
            self._given_large.pop((group_id, member_id), None)
            if not given:
                del self.pending[group_id]
            self.deadlines.drop((PENDING, group_id, member_id))

    def _keep_pending(self, group_id: str, member_id: str) -> None:
        self._undo.item(self._given, (group_id, member_id))
        self._undo.item(self._given_large, (group_id, member_id))
        self._undo.item(self.pending, group_id)
        if group_id in self.pending:
            self._undo.whole(self.pending[group_id])

    def bind(self, caller: Caller, roster: Roster, member_id: str) -> None:
        """The connection speaks for this member from here on."""
        name = roster.group.name
        if caller.bound.get(name) != member_id:
            self._undo.item(caller.bound, name)
            caller.bound[name] = member_id

    def unbind(self, caller: Caller, group_id: str) -> None:
        self._undo.item(caller.bound, group_id)
        caller.bound.pop(group_id, None)

    # --- subscriptions ---------------------------------------------------------------------------

    def resubscribe(self, roster: Roster, presence: Presence, now: float) -> None:
        """Find the subjects that a member's subscription means now."""
        self.divisions.subscribe(roster, presence, self._topics(roster, presence), now)

    def _topics(self, roster: Roster, presence: Presence) -> set[int]:
        member, by_name = roster.group.members[presence.id], self.world.subjects.by_name
        gid, new = roster.group.id, set(member.subscription) - roster.names
        if new:
            self._undo.whole(roster.names)
        for name in new:
            self._keep_topic(name)
            self._by_topic[name].add(gid)
            roster.names.add(name)
        topics = {by_name[name].id for name in member.subscription if name in by_name}
        if member.pattern is not None:
            if gid not in self._by_pattern:
                self._undo.whole(self._by_pattern)
                self._by_pattern.add(gid)
            self.patterns.forget_all_but(self._patterns_in_use)
            topics.update(self.patterns.found(member.pattern, self.world.subjects))
        return topics

    def _keep_topic(self, name: str) -> None:
        self._undo.item(self._by_topic, name)
        if name in self._by_topic:
            self._undo.whole(self._by_topic[name])

    def _patterns_in_use(self) -> set[str]:
        return {
            member.pattern
            for gid in self._by_pattern
            for member in self.rosters[gid].group.members.values()
            if member.pattern is not None
        }

    def subject_added(self, subject: Subject, now: float) -> None:
        matching = self.patterns.added(subject)
        for gid in self._by_topic.get(subject.name, set()) | self._by_pattern:
            roster = self.rosters[gid]
            for presence in list(roster.presences.values()):
                member = roster.group.members[presence.id]
                if subject.name in member.subscription or member.pattern in matching:
                    topics = presence.topics | {subject.id}
                    self.divisions.subscribe(roster, presence, topics, now)

    def subject_removed(self, subject_id: int) -> None:
        self.patterns.removed(subject_id)
        for roster in self.rosters.values():
            self.divisions.forget(roster, subject_id)

    # --- going -----------------------------------------------------------------------------------

    def relieve(self, roster: Roster, member: Member, *, failed: bool = False) -> bool:
        """Have a member that is about to go give back some of what it holds, as `leave` would: it may hold
        tens of thousands of single messages, too many for one step. False: the rest is few. The newest
        first, so that whether it failed (`_failed`) stays as it is. Nobody is told before it is gone."""
        group = roster.group
        logs = [
            (subject_id, group.progress[subject_id].pull_logs[slot])
            for subject_id, slot in member.holds.items()
            if slot
        ]
        if sum(len(log.leases) for _, log in logs) <= LEASES_AT_ONCE:
            return False
        counted, delay = self._counted(roster, member, failed=failed)
        room = LEASES_AT_ONCE
        for subject_id, log in logs:
            some = list(islice(reversed(log.leases), room))[::-1]
            if subject_id in counted:
                self.draft.give_back_some(group, subject_id, log.slot, some, delay)
            elif some:
                self.draft.give_back_some(group, subject_id, log.slot, some, None)
                commits = roster.presences[member.id].commits
                self._undo.item(commits, subject_id)
                commits[subject_id] = (
                    self.world.now_ms()
                )  # so that the rest is judged alike, however late
            room -= len(some)
        return True

    def _counted(
        self, roster: Roster, member: Member, *, failed: bool
    ) -> tuple[Container[int], Delay]:
        """The subjects where what a member leaves counts as a further attempt, and how long that waits."""
        share = member.kind == SHARE
        counted = member.holds if failed or share else self._failed(roster, member)
        return counted, Delay.NONE if share and not failed else Delay.BACKOFF

    def leave(
        self,
        roster: Roster,
        member: Member,
        now: float,
        why: str,
        *,
        failed: bool = False,
        keeps: bool = False,
    ) -> None:
        """A member is gone, with all that it held. `failed`: it did not leave by itself. `keeps`: what a
        share member has leased stays its own (Draft.remove_sharer)."""
        gone = self._remove(roster, member, why, failed=failed, keeps=keeps)
        self.divisions.look_at(roster, gone, now)
        self.tidy(roster)

    def _failed(self, roster: Roster, member: Member) -> set[int]:
        """The subjects where a member leaves messages without a commit since it got them. It may have tried
        to handle them, so the attempt counts. Where it has committed, it is a planned leave. So it is where
        it committed just now: a Fetch that was under way may have given it more since."""
        commits, failed = roster.presences[member.id].commits, set()
        just_now = self.world.now_ms() - JUST_NOW_MS
        for subject_id, slot in member.holds.items():
            log = roster.group.progress[subject_id].pull_logs[slot] if slot else None
            given = min((lease.at for lease in log.leases), default=-1) if log is not None else -1
            if given > commits.get(subject_id, -1) and commits.get(subject_id, -1) < just_now:
                failed.add(subject_id)
        return failed

    def _remove(
        self,
        roster: Roster,
        member: Member,
        why: str,
        heir: str | None = None,
        *,
        failed: bool = False,
        keeps: bool = False,
    ) -> set[int]:
        gid = roster.group.id
        presence = roster.presences[member.id]
        for kind in (SESSION, REBALANCE, HOLD):
            self.deadlines.drop((kind, gid, member.id))
        if member.instance_id is not None and roster.instances.get(member.instance_id) == member.id:
            self._undo.item(roster.instances, member.instance_id)
            del roster.instances[member.instance_id]
        counted, delay = self._counted(roster, member, failed=failed)
        subject_ids = self.divisions.leave(roster, presence, counted, delay, heir, keeps=keeps)
        if presence.ticket is not None:
            self.draft.answer(presence.ticket, UnknownMember(why))
        self.draft.note(
            *(logger, logging.INFO, "member %s left group %s: %s"),
            *(member.id, roster.group.name, why),
        )
        return subject_ids

    def tidy(self, roster: Roster) -> None:
        """Forget what nobody needs of a group without members. What it shares has a timer to watch, but for
        share groups, which share for ever."""
        group = roster.group
        if group.members or roster.client_assigned is not None:
            return
        self.draft.forget_if_unused(group)
        shares = any(progress.shared for progress in group.progress.values())
        if not shares or group.is_share:
            self.drop(roster)

    def drop(self, roster: Roster) -> None:
        """Nobody is in that group, or it is gone."""
        gid = roster.group.id
        if self.rosters.get(gid) is not roster:
            return
        self._undo.item(self.rosters, gid)
        del self.rosters[gid]
        if gid in self._by_pattern:
            self._undo.whole(self._by_pattern)
            self._by_pattern.discard(gid)
        for name in roster.names:
            self._keep_topic(name)
            self._by_topic[name].discard(gid)
            if not self._by_topic[name]:
                del self._by_topic[name]


def _can_share(member: Member) -> bool:
    return member.kind == SHARE or may_share(member.software, member.client_id)


def is_client_assigned(group: Group) -> bool:
    return any(member.kind == CLIENT_ASSIGNED for member in group.members.values())
