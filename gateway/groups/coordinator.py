"""Where decisions about groups are carried out: one write each, all or nothing. No Trio: see service.py.

    1  decide        decisions.py and what is below it, on the draft. A refusal (GroupError) takes all back
    2  append        all actions of the decision in one frame; the log applies them. StorageError takes all
                     back: neither what is stored nor what is in memory has changed
    3  answer        held requests that the decision answers. An answer may leave when the log is synced up
                     to `position`: that is for the caller to wait for
    4  look once     at the (group, subject) pairs that changed: held JoinGroups are answered here. `append`
                     gets what may be handed out there, and looks at those who wait for messages

`append(actions, allowed)` is Sharing.append in a broker. `deadlines.next` says when `tick` is to be called,
`take_answered` which tickets have their answer now.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from kumquat.core.delivery import actions
from kumquat.core.errors import StorageError
from kumquat.gateway.groups.deadlines import Deadlines
from kumquat.gateway.groups.decisions import ADDED, REMOVED, Decisions
from kumquat.gateway.groups.draft import Draft, Effects
from kumquat.gateway.groups.membership.members import SESSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.engine import Allowed
    from kumquat.core.delivery.state import Group, Groups, Member
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.groups.assignment.modes import World
    from kumquat.gateway.groups.deadlines import Key
    from kumquat.gateway.groups.draft import Pair
    from kumquat.gateway.groups.failures import Failure
    from kumquat.gateway.groups.membership.client_assigned import ClientAssigned
    from kumquat.gateway.groups.membership.members import Caller, Limits
    from kumquat.gateway.groups.membership.roster import Step, Ticket
    from kumquat.gateway.groups.offsets import Position
    from kumquat.gateway.wire import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        OffsetCommitRequest,
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )

    Append = Callable[[Sequence[Action], Mapping[Pair, Allowed]], int]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Coordinator:
    def __init__(self, groups: Groups, append: Append, world: World, limits: Limits) -> None:
        self.groups = groups
        self.position = 0
        """Up to where the action log must be synced for all that was decided so far."""
        self._append = append
        self._draft = Draft(groups, world.now_ms, world.retry_policy)
        self.deadlines = Deadlines(self._draft.undo)
        self.decisions = Decisions(self._draft, self.deadlines, world, limits)
        self.patterns = self.decisions.patterns
        self.answered: list[Ticket] = []
        """Tickets that `take_answered` has not given yet."""

    # --- carrying out ----------------------------------------------------------------------------

    def _carry_out(self, now: float, decide: Callable[[*Ts], T], *arguments: *Ts) -> T:
        draft = self._draft
        try:
            answer = decide(*arguments)
        except BaseException:
            draft.discard()
            raise
        if draft.is_empty:  # as of most heartbeats
            draft.undo.clear()
            return answer
        effects = draft.finish()
        self._write(effects)
        if effects.notes or effects.answers:
            self._resolve(effects)
        if effects.touched:
            self._answer_held(effects.touched, now)
        return answer

    def _answer_held(self, touched: Iterable[Pair], now: float) -> None:
        try:
            self.decisions.answer_held(touched, now)
        except BaseException:  # a fault in the broker: the next decision begins from a whole state
            self._draft.discard()
            raise
        more = self._draft.finish()
        assert not more.actions, "an answer to a held JoinGroup changes nothing that is stored"
        self._draft.keep()
        self._resolve(more)

    def _write(self, effects: Effects) -> None:
        allowed = self.decisions.allowed(effects.touched) if effects.touched else {}
        together = [*effects.heard, *effects.actions] if effects.heard else effects.actions
        if together or allowed:
            try:
                position = self._append(together, allowed)
            except StorageError:
                if effects.actions:
                    self._draft.discard()
                    raise
                position = self._append([], allowed)
            except BaseException:  # a fault of ours: the next decision needs a whole state
                self._draft.discard()
                raise
            if position > self.position:
                self.position = position
        self._draft.keep()
        for action in effects.actions:
            if type(action) is actions.Group:
                self.decisions.adopt(action.gid)

    def _resolve(self, effects: Effects) -> None:
        for note_logger, level, text, arguments in effects.notes:
            note_logger.log(level, text, *arguments)
        for ticket, answer in effects.answers:
            if ticket.answer is None:
                ticket.answer = answer
                self.answered.append(ticket)

    def take_answered(self) -> list[Ticket]:
        """The tickets that were answered since this was last asked."""
        answered, self.answered = self.answered, []
        return answered

    # --- requests --------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        caller: Caller,
        now: float,
        *,
        needs_id: bool,
        can_skip: bool,
    ) -> JoinGroupResponse | Ticket:
        """`needs_id`: a client that comes without an id is sent back with one (version 4 on). `can_skip`:
        it may be told to lead without assigning (version 9 on)."""
        return self._carry_out(
            now,
            lambda: self.decisions.join(request, caller, now, needs_id=needs_id, can_skip=can_skip),
        )

    def sync(
        self, request: SyncGroupRequest, caller: Caller, now: float
    ) -> SyncGroupResponse | Ticket:
        return self._carry_out(now, self.decisions.sync, request, caller, now)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: float) -> HeartbeatResponse:
        return self._carry_out(now, self.decisions.heartbeat, request, caller, now)

    def leave(
        self, group_id: str, member_id: str, instance_id: str | None, caller: Caller, now: float
    ) -> None:
        decide = self.decisions.leave
        self._carry_out(now, decide, group_id, member_id, instance_id, caller, now)

    def relieve(
        self, group_id: str, member_id: str, instance_id: str | None, share: bool, now: float
    ) -> bool:
        return self._carry_out(
            now, lambda: self.decisions.relieve(group_id, member_id, instance_id, share=share)
        )

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: float
    ) -> ConsumerGroupHeartbeatResponse:
        return self._carry_out(now, self.decisions.consumer_heartbeat, request, caller, now)

    def share_heartbeat(
        self,
        request: ShareGroupHeartbeatRequest,
        caller: Caller,
        now: float,
        *,
        in_session: bool = False,
    ) -> ShareGroupHeartbeatResponse:
        """`in_session`: the member has a share session."""
        decide = partial(self.decisions.share_heartbeat, in_session=in_session)
        return self._carry_out(now, decide, request, caller, now)

    def commit(self, request: OffsetCommitRequest, caller: Caller, now: float) -> list[int]:
        return self._carry_out(now, self.decisions.commit, request, caller, now)

    def fail(self, failure: Failure, now: float) -> None:
        """Raises Refused."""
        self._carry_out(now, self.decisions.fail, failure, now)

    def delete_offsets(self, group_id: str, subjects: Sequence[Subject], now: float) -> list[int]:
        return self._carry_out(now, self.decisions.delete_offsets, group_id, subjects)

    def delete_group(self, name: str, now: float) -> int:
        return self._carry_out(now, self.decisions.delete_group, name)

    def reset(self, group: Group, subject_id: int, sequence: int, now: float) -> None:
        self._carry_out(now, self.decisions.reset, group, subject_id, sequence, now)

    def fetch(
        self,
        group_id: str,
        member_id: str | None,
        epoch: int,
        topics: Iterable[tuple[str, Iterable[int]]] | None,
        caller: Caller,
    ) -> list[Position]:
        """It appends nothing: see Offsets.fetch."""
        return self.decisions.fetch(group_id, member_id, epoch, topics, caller)

    # --- time ------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """See to one deadline that is due, if there is one; `deadlines.next` says whether to come again.
        Thousands may be due at once, and between two of them anybody may be heard, come or leave."""
        key = self.deadlines.take(now)
        if key is None:
            return
        try:
            self._carry_out(now, self.decisions.passed, key, now)
        except StorageError as error:
            logger.error("groups cannot be written, trying again soon: %s", error)
            self.deadlines.set(key, now + RETRY_SECONDS)
            self._draft.keep()
        except Exception:  # a fault of one group must not stop the clock of all
            logger.exception("deadline %s failed", key)

    # --- what the rest of the broker reports -----------------------------------------------------

    def start(self, now: float) -> None:
        """Take over what the action log knows."""
        self._carry_out(now, self.decisions.start, now)

    def expire(self, group_ids: Iterable[int], now: float) -> int:
        """Forget offsets past their retention, and groups that are nothing any more; how many of both."""
        return self._carry_out(now, self.decisions.expire, group_ids)

    def subject_added(self, subject: Subject, now: float) -> None:
        self._insist((ADDED, subject.id), now)

    def subject_removed(self, subject_id: int, now: float) -> None:
        """All groups forget it, and members that held it are told."""
        self._insist((REMOVED, subject_id), now)

    def _insist(self, key: Key, now: float) -> None:
        """Take in what has happened elsewhere; where it cannot be written, `tick` tries it again."""
        try:
            self._carry_out(now, self.decisions.passed, key, now)
        except StorageError:
            self.deadlines.set(key, now + RETRY_SECONDS)
            self._draft.keep()
            raise

    def config_changed(self, group_id: str | None, subject_id: int | None, now: float) -> None:
        """The config of a group, or of a subject for all groups, was altered."""
        self._carry_out(now, self.decisions.config_changed, group_id, subject_id, now)

    def request_rebalance(self, group: Group, member_id: str, now: float) -> None:
        """Take all pull logs from a member and give it new ones: what it had not acked is shared again."""
        self._carry_out(now, self.decisions.request_rebalance, group, member_id, now)

    # --- for those who look ----------------------------------------------------------------------

    def step(self, group: Group, subject_id: int) -> Step | None:
        return self.decisions.step(group, subject_id)

    def sharers(self, group: Group, subject_id: int) -> int:
        return self.decisions.sharers(group, subject_id)

    def heard(self, group: Group, member: Member) -> float | None:
        """When a member gave its last sign of life. None: nothing is known of it since the start."""
        if (group.id, member.id) in self.groups.silent:
            return None
        ends = self.deadlines.when((SESSION, group.id, member.id))
        return None if ends is None else ends - member.session_ms / 1000

    def why_exclusive(self, group: Group) -> str:
        return self.decisions.why_exclusive(group)

    def client_assigned(self, group: Group) -> ClientAssigned | None:
        return self.decisions.client_assigned(group)
