"""How a subject is divided among the members of a served group: who may hold it, and as what.

Rule: nobody gets `pull` while anyone holds `plain`, and back; a change of kind passes through `none`.

    step      what is there                    what is done                       who may take it up
    OWNED     plain offsets                                                       the owner: plain
    MOVING    plain, held by another           it is taken from that one
    OPENING   plain, the group is to share     it is taken from all; then `share` at the position
    SHARING   shared                                                              every subscriber: pull
    DRAINING  shared, to be owned, unacked     only redelivery is handed out      every subscriber: pull
              … and nobody may take it up      plain: see `leave_to_strangers`
    CLOSING   shared, to be owned, all acked   nothing is handed out; it is taken from all; then plain

Retries that wait for a later time do not hold up the way back to plain offsets: they stay with the group,
and are delivered when it shares again. Whether it is to be shared: see modes.py. Who owns it, where it is
not: owners.py. Members whose client is not known to share (sharers.py) get no pull log, unless the mode is
`shared`. A share group (KIP-932) is always SHARING, from where its share.auto.offset.reset says.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kumquat.core.delivery import actions
from kumquat.gateway.groups.assignment.modes import EXCLUSIVE, SHARED, Modes, World
from kumquat.gateway.groups.assignment.owners import choose_owner, is_due_to, set_owner
from kumquat.gateway.groups.membership.roster import (
    CLAIMED,
    DROPPED,
    FREE,
    HELD,
    HOLDING,
    JOINED,
    KEEP,
    MOVES,
    STALE,
    TAKE,
    Division,
    Event,
    Grant,
    Phase,
    Presence,
    Roster,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from kumquat.core.delivery.give_back import Delay
    from kumquat.core.delivery.state import Group, Progress
    from kumquat.gateway.groups.deadlines import Deadlines
    from kumquat.gateway.groups.draft import Draft

OWNED, MOVING, OPENING, SHARING, DRAINING, CLOSING = Step
PULLING = frozenset({SHARING, DRAINING})
CHANGING = frozenset({MOVING, OPENING, CLOSING})

LATEST = "latest"

logger = logging.getLogger(__name__)


def decide(want_pull: bool, progress: Progress | None, division: Division, *, done: bool) -> Step:
    """The step that a division is in: the table above. `done`: a subject that is shared needs to be so no
    longer."""
    shared = progress is not None and progress.shared
    if want_pull:
        return SHARING if shared and not division.plain else OPENING
    if shared:
        return CLOSING if done else DRAINING
    return MOVING if division.plain - {division.owner} else OWNED


def leave_to_strangers(draft: Draft, group: Group, subject_id: int, now_ms: int) -> None:
    """Continue with plain offsets, although nobody is there who could take the messages that are to be
    delivered again. So they are read in order, and what is acked between them comes once more; but nothing
    that waits for a later time is read before it. What waits, and what lies below it, stays with the group
    until a member that can share comes."""
    progress = group.progress[subject_id]
    lowest = progress.in_order_from(now_ms, exact=False)
    unacked, behind = progress.retries + progress.leased, progress.cursor - lowest
    draft.append([actions.InOrder(group.id, subject_id, lowest)])
    kept = group.progress[subject_id].retries
    draft.note(
        *(logger, logging.WARNING),
        "group %s no longer shares subject %d; %d acked messages come again, and %d retries wait until a "
        "member can share",
        *(group.name, subject_id, max(0, behind - (unacked - kept)), kept),
    )


class Divisions:
    def __init__(self, draft: Draft, world: World, deadlines: Deadlines) -> None:
        self._draft = draft
        self._undo = draft.undo
        self._world = world
        self._modes = Modes(draft, world, deadlines)

    # --- what a member may hold ------------------------------------------------------------------

    def phase(self, roster: Roster, presence: Presence, subject_id: int) -> Phase:
        phase = presence.phases.get(subject_id)
        if phase is None:
            phase = HELD if subject_id in roster.group.members[presence.id].holds else FREE
        return phase

    def entitled(self, roster: Roster, presence: Presence, subject_id: int) -> bool:
        """Whether it may take the subject up now."""
        return self.phase(roster, presence, subject_id) is FREE and self._is_for(
            roster, presence, subject_id
        )

    def awaited(self, roster: Roster, presence: Presence, subject_id: int) -> bool:
        """Whether there is something for it: it may take the subject up, or could if it were not stale."""
        phase = self.phase(roster, presence, subject_id)
        return phase in (FREE, STALE) and self._is_for(roster, presence, subject_id)

    def _is_for(self, roster: Roster, presence: Presence, subject_id: int) -> bool:
        division = roster.divisions[subject_id]
        if division.step is OWNED:
            return division.owner == presence.id
        if division.step not in PULLING:
            return False
        mode = self._world.mode(roster.group.name, subject_id)
        if mode == EXCLUSIVE:  # one member at a time, its owner unless that cannot share
            owner = division.subscribers.get(division.owner or "")
            if owner is not None and owner.can_share:
                return owner is presence
        return presence.can_share or mode == SHARED

    def awaits(self, roster: Roster, presence: Presence) -> bool:
        """Whether it may soon take up a subject that is being taken away from others."""
        for subject_id in presence.topics:
            division = roster.divisions[subject_id]
            if division.awaited is not None and division.awaited != presence.id:
                return True
            if (
                division.step in CHANGING
                and subject_id not in roster.group.members[presence.id].holds
            ):
                holders = division.plain if division.step is not CLOSING else division.pull
                mine = division.step is OPENING or division.owner == presence.id
                if mine and holders:
                    return True
        return False

    def take_up(self, roster: Roster, presence: Presence, now: float) -> bool:
        """Give a member all that it may hold now; whether that was anything."""
        due = [
            subject_id
            for subject_id in sorted(presence.topics)
            if self.entitled(roster, presence, subject_id)
        ]
        if not due:
            return False
        pull = [subject_id for subject_id in due if roster.divisions[subject_id].step in PULLING]
        plain = [subject_id for subject_id in due if roster.divisions[subject_id].step is OWNED]
        self._draft.give(roster.group, roster.group.members[presence.id], plain, pull)
        self._undo.keep(presence)
        for subject_id in due:
            self._undo.keep(roster.divisions[subject_id])
        for subject_id in plain:
            roster.divisions[subject_id].plain.add(presence.id)
        for subject_id in pull:
            roster.divisions[subject_id].pull.add(presence.id)
            presence.grants[subject_id] = Grant(now)
        return True

    # --- events ----------------------------------------------------------------------------------

    def move(
        self,
        roster: Roster,
        presence: Presence,
        event: Event,
        subject_ids: Iterable[int],
        now: float,
    ) -> None:
        """Something happened to a member's holding of these subjects."""
        gone, moved = [], list(subject_ids)
        if moved:
            self._undo.keep(presence)
        for subject_id in moved:
            before = self.phase(roster, presence, subject_id)
            after = MOVES[presence.manner, before, event]
            if after in (FREE, HELD):
                presence.phases.pop(subject_id, None)
            else:
                presence.phases[subject_id] = after
            if after is not before:
                self._undo.keep(roster)
                roster.version += 1
            if before in HOLDING and after not in HOLDING:
                gone.append(subject_id)
        self._let_go(roster, presence, gone, now)
        if event in (JOINED, DROPPED, CLAIMED):
            self._came(roster, presence, moved)

    def _came(self, roster: Roster, presence: Presence, subject_ids: list[int]) -> None:
        """An owner that was asked to rejoin has done so."""
        for subject_id in subject_ids:
            division = roster.divisions[subject_id]
            if division.awaited == presence.id:
                self._undo.keep(division)
                division.awaited = None
                self._draft.touch(roster.group.id, subject_id)

    def drop(
        self, roster: Roster, presence: Presence, subject_ids: Iterable[int], now: float
    ) -> None:
        """A member holds these no longer, and its client knows."""
        self._undo.keep(roster)
        self._undo.keep(presence)
        roster.version += 1
        for subject_id in (subject_ids := list(subject_ids)):
            presence.phases.pop(subject_id, None)
        holds = roster.group.members[presence.id].holds
        self._let_go(
            roster, presence, [subject_id for subject_id in subject_ids if subject_id in holds], now
        )

    def enrol(self, roster: Roster, presence: Presence, topics: set[int]) -> set[int]:
        """These are the subjects of a member now; gives those to be looked at."""
        self._undo.keep(roster)
        self._undo.keep(presence)
        before, presence.topics = presence.topics, topics
        roster.version += 1
        for subject_id in before - topics:
            self._undo.keep(roster.divisions[subject_id])
            roster.divisions[subject_id].unsubscribe(presence.id)
        for subject_id in topics - before:
            division = roster.division(self._undo, subject_id)
            self._undo.keep(division)
            division.subscribers[presence.id] = presence
            self.count_non_sharer(roster, subject_id, presence)
        return before ^ topics

    def count_non_sharer(self, roster: Roster, subject_id: int, presence: Presence) -> None:
        """Whether the client of a subscriber is known to share may have changed."""
        self._undo.keep(roster.divisions[subject_id])
        non_sharers = roster.divisions[subject_id].non_sharers
        if presence.can_share:
            non_sharers.pop(presence.id, None)
        else:
            non_sharers[presence.id] = presence

    def subscribe(self, roster: Roster, presence: Presence, topics: set[int], now: float) -> None:
        """These are the subjects of a member now; look at those that it gained or lost."""
        changed = self.enrol(roster, presence, topics)
        for subject_id in changed:
            self.advance(roster, subject_id, now)
        for subject_id in sorted(changed & topics):
            self._spread(roster, subject_id, presence.id, now)

    def _spread(self, roster: Roster, subject_id: int, newcomer: str, now: float) -> None:
        division = roster.divisions[subject_id]
        exclusive = self._world.mode(roster.group.name, subject_id) == EXCLUSIVE
        if exclusive and division.step in (OWNED, MOVING) and is_due_to(roster, division, newcomer):
            set_owner(self._undo, roster, division, newcomer)
            self.advance(roster, subject_id, now)

    def leave(
        self,
        roster: Roster,
        presence: Presence,
        counted: Container[int],
        delay: Delay,
        heir: str | None = None,
        *,
        keeps: bool = False,
    ) -> set[int]:
        """A member is gone. Its owned subjects go to `heir`, if there is one. Gives those to look at.
        `counted` and `delay`: see Draft.remove. `keeps`: see Draft.remove_sharer."""
        group = roster.group
        held = list(group.members[presence.id].holds)
        if keeps:
            self._draft.remove_sharer(group, group.members[presence.id])
        else:
            self._draft.remove(group, group.members[presence.id], counted, delay)
        self._undo.whole(roster.presences)
        del roster.presences[presence.id]
        subject_ids = {*held, *presence.topics}
        for subject_id in subject_ids:
            division = roster.division(self._undo, subject_id)
            self._undo.keep(division)
            division.unsubscribe(presence.id)
            division.plain.discard(presence.id)
            division.pull.discard(presence.id)
            if division.owner == presence.id:
                set_owner(self._undo, roster, division, heir)
        self._undo.item(roster.owned, presence.id)
        roster.owned.pop(presence.id, None)
        return subject_ids

    def look_at(self, roster: Roster, subject_ids: Iterable[int], now: float) -> None:
        """Some of these subjects were let go of."""
        for subject_id in subject_ids:
            self.advance(roster, subject_id, now)
            self._draft.touch(roster.group.id, subject_id)

    def forget(self, roster: Roster, subject_id: int) -> None:
        """The subject was deleted; nothing durable is left of it."""
        self._undo.item(roster.divisions, subject_id)
        division = roster.divisions.pop(subject_id, None)
        if division is None:
            return
        self._draft.touch(roster.group.id, subject_id)
        set_owner(self._undo, roster, division, None)
        for member_id in {*division.subscribers, *division.plain, *division.pull}:
            presence = roster.presences[member_id]
            self._undo.keep(presence)
            presence.topics.discard(subject_id)
            for record in (presence.phases, presence.expecting, presence.grants, presence.replaced):
                record.pop(subject_id, None)
            if member_id in division.plain or member_id in division.pull:
                presence.must_rejoin = True

    # --- steps -----------------------------------------------------------------------------------

    def advance(self, roster: Roster, subject_id: int, now: float) -> None:
        """Look at a subject again, after anything that may matter to it."""
        group, division = roster.group, roster.division(self._undo, subject_id)
        before, awaited = division.step, division.awaited
        while True:
            progress = group.progress.get(subject_id)
            want_pull = self._modes.wants_pull(roster, subject_id, progress, now)
            if not want_pull:
                choose_owner(self._undo, roster, division)
            done = not want_pull and self._modes.may_close(roster, subject_id, progress, now)
            step = decide(want_pull, progress, division, done=done)
            if step is OPENING and not division.plain:
                self._share(group, subject_id, progress)
            elif step is DRAINING and division.has_only_non_sharers:
                if self._modes.awaits_retries(roster, subject_id, now):
                    break
                leave_to_strangers(self._draft, group, subject_id, self._world.now_ms())
                division.reset_timers()
            elif step is CLOSING and not division.pull:
                self._close(roster, subject_id, now)
            else:
                break
        division.step = step
        if step is SHARING:
            set_owner(self._undo, roster, division, None)
        elif step is OPENING:
            self._each(roster, division.plain, TAKE, subject_id, now)
        elif step is CLOSING:
            self._each(roster, division.pull, TAKE, subject_id, now)
        elif step is MOVING:
            self._each(roster, division.plain - {division.owner}, TAKE, subject_id, now)
        if step is not before:
            self._undo.keep(roster)
            roster.version += 1
            self._entered(roster, subject_id, before, now)
        elif awaited is not None and division.awaited is None:
            self._draft.touch(group.id, subject_id)  # the owner that was asked to rejoin is gone

    def _close(self, roster: Roster, subject_id: int, now: float) -> None:
        """Nobody holds a pull log any more: plain offsets."""
        group, division = roster.group, roster.divisions[subject_id]
        progress, now_ms = group.progress[subject_id], self._world.now_ms()
        if progress.settled:
            self._draft.append([actions.Unshare(group.id, subject_id)])
            division.reset_timers()
        else:
            drained = progress.drained(now_ms)
            sequence = progress.in_order_from(now_ms, exact=True)
            self._draft.append([actions.InOrder(group.id, subject_id, sequence)])
            self._modes.rest(roster, subject_id, now, drained=drained)
        self._info("group %s reads %s in order again", group.name, self._name(subject_id))

    def _entered(self, roster: Roster, subject_id: int, before: Step, now: float) -> None:
        division = roster.divisions[subject_id]
        if division.step in PULLING and before is CLOSING:
            self._each(roster, division.pull, KEEP, subject_id, now)
        elif division.step in (OWNED, MOVING) and division.owner in division.plain:
            self._each(roster, {division.owner}, KEEP, subject_id, now)
        self._draft.touch(roster.group.id, subject_id)

    def _each(
        self,
        roster: Roster,
        members: Iterable[str | None],
        event: Event,
        subject_id: int,
        now: float,
    ) -> None:
        for member_id in list(members):
            if member_id is not None:
                self.move(roster, roster.presences[member_id], event, [subject_id], now)

    def _let_go(
        self, roster: Roster, presence: Presence, subject_ids: list[int], now: float
    ) -> None:
        if not subject_ids:
            return
        group = roster.group
        self._undo.keep(roster)
        self._undo.keep(presence)
        roster.version += 1
        self._draft.take(group, group.members[presence.id], subject_ids)
        for subject_id in subject_ids:
            division = roster.divisions[subject_id]
            self._undo.keep(division)
            division.plain.discard(presence.id)
            division.pull.discard(presence.id)
            presence.grants.pop(subject_id, None)
            presence.expecting.pop(subject_id, None)
        self.look_at(roster, subject_ids, now)

    def _share(self, group: Group, subject_id: int, progress: Progress | None) -> None:
        subject = self._world.subjects.by_id[subject_id]
        position = None if progress is None else progress.position
        if group.is_share:
            position = self._world.share_start(group.name, subject)
        elif position is None:
            latest = self._world.config(group.name).auto_offset_reset == LATEST
            position = subject.readable_end if latest else subject.earliest
        elif position < 0:  # a commit that names an end: see offsets.py
            position = subject.readable_end if position == -1 else subject.earliest
        elif position < subject.earliest:
            self._draft.note(
                *(logger, logging.WARNING),
                "group %s was at %d of %s, which now begins at %d: %d messages were deleted unread",
                *(group.name, position, subject.name, subject.earliest),
                subject.earliest - position,
            )
        cursor = max(subject.earliest, min(position, subject.readable_end))
        self._draft.append([actions.Share(group.id, subject_id, cursor)])
        self._info("group %s shares %s from %d on", group.name, subject.name, cursor)

    def _info(self, text: str, *arguments: object) -> None:
        self._draft.note(logger, logging.INFO, text, *arguments)

    def _name(self, subject_id: int) -> str:
        subject = self._world.subjects.by_id.get(subject_id)
        return subject.name if subject is not None else f"subject {subject_id}"
