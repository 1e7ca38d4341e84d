"""Groups in a running broker: a thin Trio shell around the Coordinator (coordinator.py).

It decides nothing. It gives the decisions their clock, sends an answer only when what it builds on is
durable, waits with requests that are held, has one task for all deadlines and one that looks for
offsets past their retention, some groups at a time.

A JoinGroup on its way: handlers/join_group.py → `join` → Coordinator.join → Decisions.join →
Classic.join or ClientAssigned.join → Coordinator writes the effects through Sharing.append →
ActionService.append_nowait → `_answer` waits: if the request is held for its answer, then until the
action log is synced.

For other parts of the broker:
    groups                        the durable state: groups, members, positions, pull logs
    request_rebalance(group, id)  take all pull logs from a member and give it new ones
    config_changed(group, subject_id)    a group's, or a subject's, configs were altered
    change(actions)               what an admin changes, when it is durable
    reset(group, subject, to)     move a group that has no members
    delete_offsets, delete_groups  what an admin has them forget, when it is durable
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import trio

from kumquat.core.delivery.give_back import Refused
from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.pools import SEARCH, in_thread
from kumquat.gateway.groups.assignment.pattern import Pattern, matching_patterns
from kumquat.gateway.groups.coordinator import Coordinator
from kumquat.gateway.groups.errors import (
    CoordinatorNotAvailable,
    GroupError,
    InvalidGroupId,
    UnknownMember,
)
from kumquat.gateway.groups.membership.consumer import LEAVE
from kumquat.gateway.groups.membership.members import Caller, Limits
from kumquat.gateway.groups.membership.refusals import Refusals
from kumquat.gateway.groups.membership.roster import Ticket
from kumquat.gateway.groups.membership.weight import MAX_CLIENT_ID
from kumquat.gateway.groups.share_starts import ShareStarts
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import OffsetCommitRequestTopic
from kumquat.meta.group_configs import consume_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.give_back import RetryPolicy
    from kumquat.core.delivery.sharing.service import Sharing
    from kumquat.core.delivery.state import Group, Member
    from kumquat.core.logs.actions.service import ActionService
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.config.options import BrokerConfig
    from kumquat.gateway.groups.failures import Failure
    from kumquat.gateway.groups.offsets import Position
    from kumquat.gateway.net.dispatch import Session
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
    from kumquat.meta.group_configs import GroupConfig
    from kumquat.meta.registry import Registry

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
logger = logging.getLogger(__name__)
NEVER = float("inf")
NEEDS_ID_FROM = 4
CAN_SKIP_FROM = 9
STALL_SECONDS = 1.0
EXPIRED_AT_ONCE = 100
"""Groups that are looked at for offsets past their retention before others have their turn."""
MOST_PARTS = 1000
"""In which a member that leaves gives back what it holds."""
MOST_EXPLAINED = 100
MOST_FAILURES = 1000
PARTITIONS_AT_A_TIME = 200
"""Of a commit, in one step of the event loop: some 2 ms."""


def limits(config: BrokerConfig) -> Limits:
    return Limits(
        min_session_ms=config.group_min_session_timeout_ms,
        max_session_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        initial_delay_ms=config.group_initial_rebalance_delay_ms,
        consumer_session_ms=config.group_consumer_session_timeout_ms,
        consumer_heartbeat_ms=config.group_consumer_heartbeat_interval_ms,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_check_ms=config.offsets_retention_check_interval_ms,
    )


class GroupService:
    def __init__(
        self,
        actions: ActionService,
        sharing: Sharing,
        log: MessageService,
        registry: Registry,
        limits: Limits,
    ) -> None:
        self.groups = actions.groups
        self.subjects = log.subjects
        self._actions = actions
        self._sharing = sharing
        self._limits = limits
        self._registry = registry
        self._core = Coordinator(actions.groups, sharing.append, self, limits)
        self._refusals = Refusals()
        self._share_starts = ShareStarts(log, actions.groups, registry, actions.now_ms)
        self._held: dict[Ticket, trio.Event] = {}
        """Requests that wait for their answer."""
        self.last_failures: dict[tuple[str, str], Failure] = {}
        """Group and subject → the last message that a client could not handle, and its reason. Those of
        MOST_FAILURES."""
        self._sooner = trio.Event()
        self._sleeps_until = NEVER

    # --- running ---------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See to deadlines until cancelled. Started when what was stored is taken over."""
        self._do(lambda: self._core.start(trio.current_time()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire_offsets)
            task_status.started()
            await self._see_to_deadlines()

    async def _see_to_deadlines(self) -> None:
        while True:
            self._sooner = trio.Event()
            self._sleeps_until = self._core.deadlines.next
            with trio.move_on_at(self._sleeps_until):
                await self._sooner.wait()
            if trio.current_time() - self._sleeps_until > STALL_SECONDS:
                # The whole broker stood still. Heartbeats wait to be read: read them first.
                await trio.sleep(STALL_SECONDS)
            await self._see_to_due(trio.current_time())

    async def _see_to_due(self, now: float) -> None:
        """What is due now, one deadline after the other, with turns for others. What becomes due meanwhile
        is left for the next time: a stall between two turns is nobody's silence."""
        turn = Turn()
        while self._core.deadlines.next <= now:
            self._do(self._core.tick, now)
            if turn.over:
                await turn.give_way()

    async def _expire_offsets(self) -> None:
        while True:
            await trio.sleep(self._limits.offsets_check_ms / 1000)
            try:
                await self.expire_offsets()
            except CoordinatorNotAvailable as error:
                logger.error("offsets past their retention are not forgotten: %s", error)

    async def expire_offsets(self) -> int:
        """Forget what is past its retention; how much that was."""
        count, ids = 0, list(self.groups.by_id)
        for first in range(0, len(ids), EXPIRED_AT_ONCE):
            some = ids[first : first + EXPIRED_AT_ONCE]
            now = trio.current_time()
            count += self._do(lambda some=some, now=now: self._core.expire(some, now))  # type: ignore[misc]
            await trio.lowlevel.checkpoint()
        return count

    def _set_alarm(self) -> None:
        if self._core.deadlines.next < self._sleeps_until:
            self._sooner.set()

    # --- requests --------------------------------------------------------------------------------

    async def join(self, session: Session, request: JoinGroupRequest) -> JoinGroupResponse:
        def decide() -> JoinGroupResponse | Ticket:
            return self._core.join(
                request,
                _caller(session),
                trio.current_time(),
                needs_id=session.version >= NEEDS_ID_FROM,
                can_skip=session.version >= CAN_SKIP_FROM,
            )

        with self._telling(session, request.group_id):
            answer: JoinGroupResponse = await self._answer(decide, session.long_poll())
            return answer

    @contextmanager
    def _telling(self, session: Session, group_id: str) -> Iterator[None]:
        """A join that is refused in here is logged."""
        try:
            yield
        except CoordinatorNotAvailable:  # told where the disk failed
            raise
        except GroupError as error:
            self._refusals.tell(group_id, _caller(session), error)
            raise

    async def sync(self, session: Session, request: SyncGroupRequest) -> SyncGroupResponse:
        answer: SyncGroupResponse = await self._answer(
            lambda: self._core.sync(request, _caller(session), trio.current_time()),
            session.long_poll(),
        )
        return answer

    def heartbeat(self, session: Session, request: HeartbeatRequest) -> HeartbeatResponse:
        return self._do(self._core.heartbeat, request, _caller(session), trio.current_time())

    async def leave(
        self, session: Session, group_id: str, members: Iterable[tuple[str, str | None]]
    ) -> list[int]:
        """A code for each member, by its id or instance id."""
        codes: list[int] = []
        caller, turn = _caller(session), Turn()
        for member_id, instance_id in members:
            if turn.over:
                await turn.give_way()
            try:
                await self._relieve(group_id, member_id, instance_id)
                self._do(
                    lambda m=member_id, i=instance_id: self._core.leave(  # type: ignore[misc]
                        group_id, m, i, caller, trio.current_time()
                    )
                )
                codes.append(0)
            except GroupError as error:
                codes.append(error.error_code)
                if isinstance(error, UnknownMember) and caller.bound.get(group_id) == member_id:
                    del caller.bound[group_id]  # the connection speaks for nobody any more
        await self._durable()
        return codes

    async def _relieve(
        self, group_id: str, member_id: str, instance_id: str | None, *, share: bool = False
    ) -> None:
        """Have a member that leaves give back most of what it holds, with turns for others. It may be given
        more meanwhile, but not for ever."""
        turn = Turn()
        for _ in range(MOST_PARTS):
            now = trio.current_time()
            if not self._do(self._core.relieve, group_id, member_id, instance_id, share, now):
                return
            if turn.over:
                await turn.give_way()

    async def consumer_heartbeat(
        self, session: Session, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        with self._telling(session, request.group_id):
            if request.subscribed_topic_regex:
                await self._look_for(request.subscribed_topic_regex)
            if request.member_epoch == LEAVE:
                await self._relieve(request.group_id, request.member_id, request.instance_id)
            before = self._core.position
            beat, now = self._core.consumer_heartbeat, trio.current_time()
            answer = self._do(beat, request, _caller(session), now)
        if self._core.position != before:
            await self._durable()
        return answer

    async def share_heartbeat(
        self, session: Session, request: ShareGroupHeartbeatRequest, *, in_session: bool
    ) -> ShareGroupHeartbeatResponse:
        """`in_session`: the member has a share session, at this moment."""
        with self._telling(session, request.group_id):
            topics = request.subscribed_topic_names
            leaves = request.member_epoch < 0  # decided now: its session may end while it waits
            found = {}
            if topics and not leaves:
                found = await self._look_back(request.group_id, topics)
            if leaves and not in_session:  # in a session it keeps what it has leased
                await self._relieve(request.group_id, request.member_id, None, share=True)
            before = self._core.position
            beat, now = (
                partial(self._core.share_heartbeat, in_session=in_session),
                trio.current_time(),
            )
            with self._share_starts.using(found):
                answer = self._do(beat, request, _caller(session), now)
        if self._core.position != before:
            await self._durable()
        return answer

    async def _look_back(self, group_id: str, topics: Iterable[str]) -> dict[int, int]:
        try:
            return await self._share_starts.look(group_id, topics)
        except StorageError as error:
            raise CoordinatorNotAvailable(str(error)) from error

    async def _look_for(self, text: str) -> None:
        """Find the subjects that a new pattern matches, in a thread: there may be many."""
        if text in self._core.patterns:
            return
        names = set(self.subjects.by_name)
        matching = await in_thread(SEARCH, lambda: set(filter(Pattern.of(text).matches, names)))
        self._core.patterns.learn(text, names, matching, self.subjects)

    async def prepare_added(self, subject: Subject) -> None:
        """Find the patterns that match a new subject, in a thread, before `subject_added` asks for them."""
        texts = self._core.patterns.texts()
        if texts:
            match = partial(matching_patterns, subject.name, texts)
            self._core.patterns.prepare(subject.name, texts, await in_thread(SEARCH, match))

    async def commit(self, session: Session, request: OffsetCommitRequest) -> list[int]:
        """A code for each partition, in their order; when it is durable. Many are done in parts."""
        codes: list[int] = []
        topics, caller = request.topics, _caller(session)
        try:
            for part in _parts(topics):
                if codes:
                    await trio.lowlevel.checkpoint()
                request.topics = part
                codes += self._do(self._core.commit, request, caller, trio.current_time())
        finally:
            request.topics = topics
        await self._durable()
        return codes

    async def delete_offsets(self, group_id: str, subjects: Sequence[Subject]) -> list[int]:
        """A code for each subject; when it is durable. Many are done in parts."""
        codes: list[int] = []
        for first in range(0, max(1, len(subjects)), PARTITIONS_AT_A_TIME):
            part = subjects[first : first + PARTITIONS_AT_A_TIME]
            if first:
                await trio.lowlevel.checkpoint()
            try:
                codes += self._do(self._core.delete_offsets, group_id, part, trio.current_time())
            except GroupError as error:
                if not first:
                    raise
                codes += [error.error_code] * len(part)
        await self._durable()
        return codes

    async def delete_groups(self, names: Sequence[str]) -> list[int]:
        """A code for each; when it is durable."""
        codes: list[int] = []
        turn = Turn()
        for name in names:
            if turn.over:
                await turn.give_way()
            codes.append(self._do(self._core.delete_group, name, trio.current_time()))
        await self._durable()
        return codes

    async def fail(self, failures: Sequence[Failure]) -> list[str | None]:
        """Messages that clients could not handle; for each, why that cannot be obeyed. Done when it is
        durable."""
        outcomes: list[str | None] = []
        turn = Turn()
        for failure in failures:
            if turn.over:
                await turn.give_way()
            try:
                self._do(self._core.fail, failure, trio.current_time())
                outcomes.append(None)
                self._note(failure)
            except (Refused, InvalidGroupId) as error:
                outcomes.append(str(error))
        await self._durable()
        return outcomes

    def _note(self, failure: Failure) -> None:
        key = failure.group, failure.subject
        self.last_failures.pop(key, None)
        self.last_failures[key] = failure
        if len(self.last_failures) > MOST_FAILURES:
            del self.last_failures[next(iter(self.last_failures))]

    def fetch_offsets(
        self,
        session: Session,
        group_id: str,
        member_id: str | None,
        epoch: int,
        topics: Iterable[tuple[str, Iterable[int]]] | None,
    ) -> list[Position]:
        return self._core.fetch(group_id, member_id, epoch, topics, _caller(session))

    async def _answer(
        self, decide: Callable[[], Any], polling: AbstractContextManager[None]
    ) -> Any:
        answer = self._do(decide)
        if isinstance(answer, Ticket):
            answer = await self._wait(answer, polling)
            if answer is None:
                raise CoordinatorNotAvailable("the broker stops, or the client has gone")
            if isinstance(answer, GroupError):
                raise answer
        await self._durable()
        return answer

    async def _wait(self, ticket: Ticket, polling: AbstractContextManager[None]) -> Any:
        """The answer of a held request; None: the broker stops."""
        if ticket.answer is None:
            answered = self._held[ticket] = trio.Event()
            try:
                with polling:
                    await answered.wait()
            finally:
                del self._held[ticket]
        return ticket.answer

    def _do(self, decide: Callable[[*Ts], T], *arguments: *Ts) -> T:
        try:
            return decide(*arguments)
        except StorageError as error:
            raise CoordinatorNotAvailable(str(error)) from error
        finally:
            if self._core.answered:
                for ticket in self._core.take_answered():
                    if ticket in self._held:
                        self._held[ticket].set()
            self._set_alarm()

    async def _durable(self) -> None:
        """Until all that the coordinator has appended so far is synced."""
        outcome: list[KumquatError | None] = []
        done = trio.Event()

        def finished(error: KumquatError | None) -> None:
            outcome.append(error)
            done.set()

        self._actions.call_when_synced(self._core.position, finished)
        if not outcome:
            await done.wait()
        if outcome[0] is not None:
            raise CoordinatorNotAvailable(str(outcome[0])) from outcome[0]

    # --- what the decisions ask (assignment/modes.py, World) -------------------------------------

    def config(self, group: str) -> GroupConfig:
        return self._registry.group_config(group)

    def mode(self, group: str, subject_id: int) -> str:
        return consume_mode(self._registry.group_configs(group), self._registry.configs(subject_id))

    def share_start(self, group: str, subject: Subject) -> int:
        return self._share_starts.of(group, subject)

    def retry_policy(self, group: Group) -> RetryPolicy:
        return self._sharing.retry_policy(group)

    def now_ms(self) -> int:
        return self._actions.now_ms()

    # --- for other parts of the broker -----------------------------------------------------------

    def request_rebalance(self, group: Group, member_id: str) -> None:
        self._do(lambda: self._core.request_rebalance(group, member_id, trio.current_time()))

    def state(self, group: Group) -> str:
        """What Kafka calls it: Empty, PreparingRebalance, CompletingRebalance, Stable."""
        client_assigned = self._core.client_assigned(group)
        if client_assigned is not None:
            return client_assigned.state.value
        return "Stable" if group.members else "Empty"

    def heard(self, group: Group, member: Member) -> float | None:
        """When a member gave its last sign of life, by the event loop's clock; None: not known."""
        return self._core.heard(group, member)

    def why_exclusive(self, group: Group) -> str:
        """Why it does not share, if a client that is not known to share prevents it; else nothing."""
        return self._core.why_exclusive(group)

    def exclusive(self) -> dict[str, str]:
        """Groups that do not share for such a reason, and the reason; the first MOST_EXPLAINED."""
        explained = (
            (group.name, self.why_exclusive(group)) for group in self.groups.by_id.values()
        )
        return dict(islice(((name, why) for name, why in explained if why), MOST_EXPLAINED))

    def config_changed(self, group: str | None = None, subject_id: int | None = None) -> None:
        self._do(lambda: self._core.config_changed(group, subject_id, trio.current_time()))

    async def change(self, changes: Sequence[Action]) -> None:
        await self._actions.wait_synced(self._sharing.append(changes))

    async def reset(self, group: Group, subject_id: int, sequence: int) -> None:
        """Have a group without members go on there; when that is durable."""
        self._do(self._core.reset, group, subject_id, sequence, trio.current_time())
        await self._durable()

    def subject_added(self, subject: Subject) -> None:
        """Members that are subscribed to it are told."""
        self._tell(lambda: self._core.subject_added(subject, trio.current_time()))

    def subject_removed(self, subject: Subject) -> None:
        """All groups forget it, and members that held it are told."""
        for group in self.groups.by_id.values():
            progress = group.progress.get(subject.id)
            if progress is not None and progress.doomed:
                logger.warning(
                    "subject %s is deleted with %d messages that were to become dead letters of group %s",
                    *(subject.name, progress.dying, group.name),
                )
        self._tell(lambda: self._core.subject_removed(subject.id, trio.current_time()))

    def _tell(self, decide: Callable[[], None]) -> None:
        """What has happened elsewhere has happened. The coordinator tries again until it is written."""
        try:
            self._do(decide)
        except CoordinatorNotAvailable as error:
            logger.error("groups could not take in a change of topics: %s", error)


def _parts(topics: list[OffsetCommitRequestTopic]) -> Iterator[list[OffsetCommitRequestTopic]]:
    """The same partitions in the same order, PARTITIONS_AT_A_TIME; one empty part if there are none."""
    part: list[OffsetCommitRequestTopic] = []
    room = PARTITIONS_AT_A_TIME
    for topic in topics:
        for start in range(0, len(topic.partitions), PARTITIONS_AT_A_TIME):
            some = topic.partitions[start : start + PARTITIONS_AT_A_TIME]
            if len(some) > room:
                yield part
                part, room = [], PARTITIONS_AT_A_TIME
            part.append(OffsetCommitRequestTopic(name=topic.name, partitions=some))
            room -= len(some)
    yield part


def _caller(session: Session) -> Caller:
    return Caller(
        (session.client_id or "")[:MAX_CLIENT_ID],
        f"/{session.host}",
        session.members,
        session.software,
        session.software_version,
        session.asked,
        session.version,
    )
