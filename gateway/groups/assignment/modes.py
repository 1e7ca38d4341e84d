"""Whether a subject is to be shared, by the group's consume.mode.

    mode       is to be shared
    exclusive  no; but while retries are due, and a member can share, it is shared by its owner alone, and
               nothing else is handed out: only a pull log can deliver a message that lies below the
               position. An owner that acks nothing for DRAIN_SECONDS goes on in order, and is given them
               again after an ever longer time
    shared     yes; where nothing was committed, it begins by the group's consume.auto.offset.reset
    auto       from the second subscriber on, or while messages are to be delivered again, once a
               position was committed: until then only the first member's own auto.offset.reset knows
               where the group begins. So when the second comes, a classic owner is asked to rejoin,
               once: then it commits, if it ever does. Back when at most one subscriber has been left for
               auto.exclusive.after.ms. Then it drains; a member that does not ack all it has within
               DRAIN_SECONDS goes on sharing, and is tried again after an ever longer time. While retries
               wait, it goes on sharing. A subscriber whose client is not known to share (see sharers.py)
               keeps the subject from being shared; where it is shared already, it drains at once, and
               that subscriber gets nothing meanwhile. Retries that are due are delivered as in `exclusive`,
               by a member that can share; without one they wait for it.

A share group (KIP-932) shares always, whatever its mode.

With nobody there, a subject with unacked messages stays shared: the next member's first position is a
pull offset.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from kumquat.gateway.groups.assignment.sharers import UNNAMED, is_sink_task
from kumquat.gateway.groups.membership.protocol import KIP_848
from kumquat.gateway.groups.membership.roster import Division, Roster

if TYPE_CHECKING:
    from kumquat.core.delivery.give_back import RetryPolicy
    from kumquat.core.delivery.state import Group, Progress
    from kumquat.core.logs.messages.subject import Subject, Subjects
    from kumquat.gateway.groups.deadlines import Deadlines
    from kumquat.gateway.groups.draft import Draft
    from kumquat.meta.group_configs import GroupConfig

EXCLUSIVE, SHARED, AUTO = "exclusive", "shared", "auto"
DRAIN_SECONDS = 15.0
MAX_PATIENCE = 64.0
MOST_AWAITED = 10_000
"""Retries whose times are looked at one by one."""
LOOK_AGAIN_SECONDS = 5.0
"""At the earliest, after a look at retries that wait."""
TIMER = "division"
"""Deadlines: (TIMER, group id, subject id)."""

logger = logging.getLogger(__name__)


class World(Protocol):
    """What groups must know of the rest of the broker."""

    @property
    def subjects(self) -> Subjects: ...
    def config(self, group: str) -> GroupConfig: ...
    def mode(self, group: str, subject_id: int) -> str: ...
    def retry_policy(self, group: Group) -> RetryPolicy: ...
    def share_start(self, group: str, subject: Subject) -> int:
        """Where a share group begins on a subject that it has not read."""

    def now_ms(self) -> int:
        """The time that groups live by, ms since the epoch."""


class Modes:
    def __init__(self, draft: Draft, world: World, deadlines: Deadlines) -> None:
        self._draft = draft
        self._world = world
        self._deadlines = deadlines

    def wants_pull(
        self, roster: Roster, subject_id: int, progress: Progress | None, now: float
    ) -> bool:
        division = roster.divisions[subject_id]
        self._draft.undo.keep(division)
        if roster.group.is_share:
            return True
        mode = self._world.mode(roster.group.name, subject_id)
        shared = progress is not None and progress.shared
        if mode != AUTO:
            division.reason = ""
            return mode == SHARED or self._must_visit(roster, subject_id, progress, now)
        several = len(division.subscribers) > 1
        self._explain(roster, division, subject_id, matters=several or shared)
        retries = progress is not None and progress.retries > 0
        may_share = (several or retries) and not division.non_sharers
        if progress is None or not shared:
            committed = progress is not None and progress.committed
            self._ask_owner(roster, division, several=may_share, committed=committed)
            if committed and may_share:
                return True
            return self._must_visit(roster, subject_id, progress, now)
        if may_share and several:
            division.reset_timers()
            return True
        return self._stays_shared(roster, subject_id, progress, now)

    def _explain(
        self, roster: Roster, division: Division, subject_id: int, *, matters: bool
    ) -> None:
        """Say once why a group does not share that otherwise would."""
        division.reason = ""
        stranger = next(iter(division.non_sharers), None)
        if stranger is None or not matters:
            return
        member = roster.group.members[stranger]
        division.reason = (
            f"member {stranger} is a sink task of Kafka Connect, which may keep offsets itself"
            if is_sink_task(member.client_id)
            else f"the client of member {stranger} ({member.software or UNNAMED}) is not known to share"
        )
        if roster.reason != division.reason:
            self._draft.undo.keep(roster)
            roster.reason = division.reason
            self._draft.note(
                *(logger, logging.WARNING),
                "group %s reads %s with one member at a time: %s. consume.mode=shared shares all the same",
                *(roster.group.name, self._world.subjects.by_id[subject_id].name, division.reason),
            )

    def _ask_owner(
        self, roster: Roster, division: Division, *, several: bool, committed: bool
    ) -> None:
        """Have an owner commit where the group is, if others wait for that."""
        division.asked = division.asked and several
        if committed or division.awaited not in division.plain:
            division.awaited = None
        if committed or division.asked or not several:
            return
        for member_id in division.plain:
            presence = roster.presences[member_id]
            if presence.manner != KIP_848:
                self._draft.undo.keep(presence)
                presence.must_rejoin = division.asked = True
                division.awaited = member_id

    def _stays_shared(
        self, roster: Roster, subject_id: int, progress: Progress, now: float
    ) -> bool:
        """With at most one subscriber, or with one whose client is not known to share."""
        division, key = roster.divisions[subject_id], (TIMER, roster.group.id, subject_id)
        if division.below_two_since is None:
            division.below_two_since = now
        after = self._world.config(roster.group.name).auto_exclusive_after_ms / 1000
        due = division.below_two_since + after * division.patience
        if now < due and not (division.non_sharers and division.patience == 1):
            self._deadlines.set(key, due)
            return True
        drained = division.non_sharers and progress.drained(self._world.now_ms())
        if progress.settled or drained:
            return False
        if not division.subscribers:
            return True
        if progress.retries and not division.non_sharers:
            self._deadlines.set(key, now + max(after, LOOK_AGAIN_SECONDS))
            return True
        if division.drain_until is None:
            division.drain_until = now + DRAIN_SECONDS
        if now < division.drain_until:
            self._deadlines.set(key, division.drain_until)
            return False
        division.drain_until, division.below_two_since = None, now
        division.patience = min(division.patience * 2, MAX_PATIENCE)
        self._deadlines.set(key, now + after * division.patience)
        return True

    # --- retries beside plain offsets ------------------------------------------------------------

    def _must_visit(
        self, roster: Roster, subject_id: int, progress: Progress | None, now: float
    ) -> bool:
        """Whether a subject that is read in order is to be shared until its retries are handed out: some
        are due, and somebody can take them."""
        division = roster.divisions[subject_id]
        if progress is None or progress.shared or not progress.retries or not progress.committed:
            return False
        if len(division.subscribers) == len(division.non_sharers):
            return False
        now_ms, first = self._world.now_ms(), progress.waiting.next_due
        left = 0.0 if progress.due(now_ms) or first is None else (first - now_ms) / 1000
        due = max(now + left, division.rest_until)
        if due > now:
            self._deadlines.set((TIMER, roster.group.id, subject_id), due)
        return due <= now

    def may_close(
        self, roster: Roster, subject_id: int, progress: Progress | None, now: float
    ) -> bool:
        """Whether a subject that is shared, and is not to be, can go back to plain offsets."""
        if progress is None or not progress.shared:
            return False
        now_ms, division = self._world.now_ms(), roster.divisions[subject_id]
        if self._world.mode(roster.group.name, subject_id) != EXCLUSIVE:
            return progress.settled or (bool(division.non_sharers) and progress.drained(now_ms))
        if progress.drained(now_ms):
            return True
        if division.drain_until is None:
            division.drain_until = now + DRAIN_SECONDS
        acked = now - (now_ms - progress.committed_at) / 1000
        until = max(division.drain_until, acked + DRAIN_SECONDS)
        if division.pull and now < until:
            self._deadlines.set((TIMER, roster.group.id, subject_id), until)
        return bool(division.pull) and now >= until

    def awaits_retries(self, roster: Roster, subject_id: int, now: float) -> bool:
        """Whether retries are due so soon that a member that cannot share waits for them: then it reads
        them in order."""
        division, progress = roster.divisions[subject_id], roster.group.progress[subject_id]
        if division.drain_until is None or len(progress.waiting) > MOST_AWAITED:
            return False
        now_ms = self._world.now_ms()
        last = now_ms + (division.drain_until - now) * 1000
        due = max((wait.due for wait in progress.waiting if now_ms < wait.due < last), default=None)
        if due is not None:
            self._deadlines.set((TIMER, roster.group.id, subject_id), now + (due - now_ms) / 1000)
        return due is not None

    def rest(self, roster: Roster, subject_id: int, now: float, *, drained: bool) -> None:
        """A subject goes back to plain offsets, and retries stay. Where they are due, and nobody has acked
        them, they are tried again later."""
        division = roster.divisions[subject_id]
        if drained:
            division.reset_timers()
            return
        after = self._world.config(roster.group.name).auto_exclusive_after_ms / 1000
        division.below_two_since = division.drain_until = None
        division.rest_until = now + max(after, LOOK_AGAIN_SECONDS) * division.patience
        division.patience = min(division.patience * 2, MAX_PATIENCE)
