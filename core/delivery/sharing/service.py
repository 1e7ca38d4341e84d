"""Fetch at pull offsets: handing out messages to the members of a group that share a subject.

A pull offset names its pull log (core/delivery/pull_log.py), so a Fetch at one is a member's. What was
leased at or above it is served again; else the delivery engine says what the member is handed next, that is
written to the action log (and need not be synced), and served. The answer never is an error: a slot that
nobody has, or that was taken away, gets nothing after its wait, and the member's heartbeat tells it to
rejoin.

A Fetch that finds nothing waits in the HandOuts of its group and subject (sharing/hand_outs.py). It hands
out when there is news, and wakes only those that it has given something.

Retention may overtake a group, and a disk may rot. What is gone is skipped, counted and said loudly;
nobody gets an error for it. What cannot be read for now (StorageError) is not gone: nothing is written,
the member gets nothing after its wait, and finds the same leases when it asks again. Plain offsets do not
come here: a member that reads at one reads, and takes no lease.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import UNREADABLE as DAMAGED
from kumquat.core.delivery.engine import Allowed, leases_from, owns
from kumquat.core.delivery.give_back import RetryConfig, RetryPolicy, policy_of
from kumquat.core.delivery.policy import Policies, waiting
from kumquat.core.delivery.pull_log import FIRST_PULL, pull_offset, split_offset
from kumquat.core.delivery.sharing.hand_outs import HandOuts, Waiter
from kumquat.core.delivery.sharing.lease_reader import UNREADABLE, LeaseReader, Loading
from kumquat.core.delivery.sharing.shares import Shares
from kumquat.core.delivery.sharing.timers import Timers
from kumquat.core.errors import KumquatError, StorageError, WouldBlock
from kumquat.core.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.sharing.lease_reader import Lost
    from kumquat.core.delivery.state import Group, PullLog
    from kumquat.core.logs.actions.service import ActionService
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject

MOST_DAMAGED = 100_000
NO_SLOTS: Mapping[int, tuple[Group, PullLog]] = {}
NOTHING_NEW: Mapping[tuple[int, int], Allowed] = {}
_MAKES_ROOM = (actions.Ack, actions.Accept, actions.Retry, actions.Doom)
"""After these there may be more to hand out: a member has room again, or a message is to come again."""
_ONLY_PACE = frozenset({actions.Pull, actions.Ack, actions.Accept})
"""The most frequent actions that are left. They matter to the policies alone."""

logger = logging.getLogger(__name__)


class Shared(NamedTuple):
    """What a Fetch at a pull offset gets; offsets are in the space of its pull log."""

    records: list[bytes | memoryview]
    size: int
    readable_end: int
    log_start: int
    waiter: Waiter | None = None
    """Where it may wait for more. None: nothing will come, it is to be held up all the same."""


class LeaseConfig(RetryConfig, Protocol):
    """What is configured for a group, as far as it is needed here."""

    @property
    def lease_max_records(self) -> int: ...
    @property
    def lease_steal_after_ms(self) -> int: ...
    @property
    def share_max_record_locks(self) -> int: ...
    @property
    def share_record_lock_duration_ms(self) -> int: ...


class Connection(Protocol):
    @property
    def closed(self) -> bool: ...


class Reading(NamedTuple):
    """The connection that last fetched in a pull log, and when."""

    session: Connection
    at: float


@dataclass(frozen=True, slots=True)
class SharingStatistics:
    waiting: int
    hand_outs: int
    messages: int
    redelivered: int
    """Of these messages: those that were handed out before."""
    served_again: int
    fenced: int
    expired: int
    lost: int
    rebalances: int
    exclusive: dict[str, str]
    """Groups that do not share since a client in them is not known to, and which."""


class Sharing:
    def __init__(
        self,
        actions: ActionService,
        log: MessageService,
        config: Callable[[str], LeaseConfig],
    ) -> None:
        self.groups = actions.groups
        self._actions = actions
        self._allowed: dict[tuple[int, int], Allowed] = {}
        """By group and subject; where nothing is said, nothing may be handed out."""
        self.log = log
        self.config = config
        """By the name of a group."""
        self.policies = Policies(self.groups)
        self.timers = Timers(actions.now_ms)
        self._doomed = trio.Event()
        self._doomed_pairs: set[tuple[int, int]] = set()
        self.reader = LeaseReader(log)
        self._by_pair: dict[tuple[int, int], HandOuts] = {}
        self.readers: dict[tuple[int, int], Reading] = {}
        """By subject and slot: see askers.py."""
        self.hand_outs = self.messages = self.expired = self.rebalances = 0
        self._redelivered = 0
        self.sizes = Histogram()
        """How many messages a hand-out has."""
        self._served_again = self._fenced = self._lost = 0
        self._failing = False
        self._complaints = Complaints(logger)
        self.shares = Shares(self)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See to what comes with time, until cancelled."""
        self.shares.resume()
        task_status.started()
        await self.timers.run()

    # --- reading ---------------------------------------------------------------------------------

    async def read(self, subject: Subject, offset: int, limit: int, first: bool) -> Shared:
        """`first`: at least one batch, even if it is larger than the limit."""
        slot, pull = split_offset(offset)
        owner = self.groups.slots.get(subject.id, NO_SLOTS).get(slot)
        if owner is None or not owns(owner[1], pull):
            self._fenced += 1
            return Shared([], 0, offset, offset)
        group, log = owner
        if not first and limit <= 0:
            return self._nothing(group, log, subject, offset, limit)
        leases = leases_from(log, pull)
        self._served_again += 1 if leases else 0
        while leases or self.hand_outs_of(group, subject).give(log, limit):
            loading = Loading(self.reader, subject, slot, leases or leases_from(log, pull), limit)
            try:
                loading.run()
            except (WouldBlock, *UNREADABLE):
                if not await self._finish(loading, group, owner):
                    return Shared([], 0, offset, offset)
            else:
                if loading.lost:
                    self.lose(group, subject, loading.lost)
            passed = self.pass_over(group, subject, loading.holes) or bool(loading.lost)
            if loading.size:
                self.reader.weigh(subject, loading)
                end = self._end(group, log, subject)
                return Shared(loading.buffers, loading.size, end, pull_offset(slot, log.acked))
            if not passed:
                break
            leases = []
        return self._nothing(group, log, subject, offset, limit)

    def note_reader(self, subject: Subject, offset: int, session: Connection) -> None:
        """A Fetch at this pull offset has come."""
        slot, _ = split_offset(offset)
        if slot in self.groups.slots.get(subject.id, NO_SLOTS):
            self.readers[subject.id, slot] = Reading(session, trio.current_time())

    async def _finish(self, loading: Loading, group: Group, owner: tuple[Group, PullLog]) -> bool:
        """Read on with the help of threads; False when there is nothing to give: the pull log was taken
        away meanwhile, or the disk cannot be read for now."""
        subject = loading.subject
        failed = False
        try:
            await self.reader.finish(loading)
        except KumquatError as error:
            failed = True
            text = f"group {group.name} cannot read {subject.name} for now: {error}"
            self._complaints.error((group.id, subject.id), text)
        if self.groups.slots.get(subject.id, NO_SLOTS).get(owner[1].slot) is not owner:
            return False
        if loading.lost:
            self.lose(group, subject, loading.lost)
        return loading.size > 0 or not failed

    def _nothing(
        self, group: Group, log: PullLog, subject: Subject, offset: int, limit: int
    ) -> Shared:
        waiter = Waiter(self.hand_outs_of(group, subject), log, limit)
        end = max(offset, self._end(group, log, subject))
        return Shared([], 0, end, min(offset, pull_offset(log.slot, log.acked)), waiter)

    def _end(self, group: Group, log: PullLog, subject: Subject) -> int:
        """What clients take for the end of the log: all that this member could still be given."""
        left = waiting(group.progress[subject.id], subject.readable_end)
        return pull_offset(log.slot, log.next + left)

    async def wait(
        self,
        plain: Sequence[Subject],
        waiters: Sequence[Waiter],
        deadline: float,
        rebalance: Callable[[Group, str], None],
    ) -> None:
        """Until there may be something for one of these, or the deadline. A member that holds far more than
        its share while one of these waits is told to `rebalance`."""
        woken = trio.Event()
        for waiter in waiters:
            waiter.hand_outs.enter(waiter, woken.set)
        try:
            while not woken.is_set():
                looks = [(w.hand_outs.next_look(w), w) for w in waiters]
                again = min([deadline, *(when for when, _ in looks)])
                await self.log.wait_for_data(plain, again, woken)
                if woken.is_set() or again >= deadline:
                    return
                for when, waiter in looks:
                    if when <= again:
                        holder = waiter.hand_outs.look_again(waiter)
                        if holder is not None:
                            self._rebalance(waiter.hand_outs, holder, rebalance)
        finally:
            for waiter in waiters:
                waiter.hand_outs.leave(waiter)

    # --- writing ---------------------------------------------------------------------------------

    def append(
        self, changes: Sequence[Action], allowed: Mapping[tuple[int, int], Allowed] = NOTHING_NEW
    ) -> int:
        """Append what was decided about groups, in one frame; then look once at those who wait where
        more may be handed out: what is `allowed` has changed, or messages were acked. Gives the
        position up to which the action log must be synced. StorageError: nothing has happened."""
        position = 0
        if changes:
            position = self._actions.append_nowait(changes)
            self._applied(changes)
        acked = [(a.gid, a.subject_id) for a in changes if isinstance(a, _MAKES_ROOM)]
        if allowed or acked:
            for pair, what in allowed.items():
                if what is Allowed.NOTHING:  # the default: the group or subject may be gone
                    self._allowed.pop(pair, None)
                else:
                    self._allowed[pair] = what
            for pair in dict.fromkeys([*allowed, *acked]):
                hand_outs = self._by_pair.get(pair)
                if hand_outs is not None:
                    hand_outs.feed_safely()
        return position

    def append_soon(self, changes: Sequence[Action]) -> bool:
        """Append what was handed out, or found to be no message; it is synced with what comes next.
        Whether it could be written: clients are not told, they ask again."""
        try:
            self._actions.append_nowait(changes, urgent=False)
        except StorageError as error:
            if not self._failing:
                logger.error("nothing is handed out, the action log cannot be written: %s", error)
            self._failing = True
            return False
        self._failing = False
        self._applied(changes)
        return True

    @staticmethod
    def now() -> float:
        return trio.current_time()

    def now_ms(self) -> int:
        """The time that groups live by."""
        return self._actions.now_ms()

    def retry_policy(self, group: Group) -> RetryPolicy:
        return policy_of(self.config(group.name), group)

    async def wait_doomed(self) -> list[tuple[int, int]]:
        """Until messages have become dead letters to be; of which groups and subjects."""
        await self._doomed.wait()
        found = list(self._doomed_pairs)
        self._doomed, self._doomed_pairs = trio.Event(), set()
        return found

    def allowed(self, gid: int, subject_id: int) -> Allowed:
        return self._allowed.get((gid, subject_id), Allowed.NOTHING)

    def lease(self, pull: actions.Pull) -> bool:
        if not self.append_soon([pull]):
            return False
        self.hand_outs += 1
        size = 0
        for _, count, attempt in pull.ranges:
            size += count
            if attempt > 1:
                self._redelivered += count
        self.messages += size
        self.sizes.add(size)
        if pull.pull < FIRST_PULL:
            self.shares.lock(pull)
        return True

    def _rebalance(
        self, hand_outs: HandOuts, member_id: str, rebalance: Callable[[Group, str], None]
    ) -> None:
        """Have a member give back what it has not acked."""
        group, subject = hand_outs.group, hand_outs.subject
        logger.info(
            "member %s of group %s holds far more of %s than its share while others wait: "
            "it is told to rebalance",
            *(member_id, group.name, subject.name),
        )
        self.rebalances += 1
        rebalance(group, member_id)

    def pass_over(self, group: Group, subject: Subject, holes: list[tuple[int, int]]) -> bool:
        """Take back what was leased and is no message; whether there was any."""
        changes: list[Action] = [
            actions.Holes(group.id, subject.id, first, size) for first, size in holes
        ]
        return bool(changes) and self.append_soon(changes)

    def lose(self, group: Group, subject: Subject, lost: Sequence[Lost]) -> None:
        for gone in lost:
            logger.error(
                "group %s: %d messages of %s from %d on cannot be read and are skipped: %s",
                *(group.name, gone.size, subject.name, gone.first, gone.why),
            )
            self._lost += gone.size
        self.append_soon([_loss(group, subject, gone) for gone in lost])

    def _applied(self, changes: Sequence[Action]) -> None:
        """These actions are written and applied: what is remembered beside the groups follows."""
        changes = [action for action in changes if type(action) is not actions.Commit]
        if not changes:  # plain commits, which are many, change nothing here
            return
        self.policies.observe(changes, trio.current_time())
        for action in changes:
            if type(action) in _ONLY_PACE:
                continue
            if isinstance(action, actions.Retry):
                hand_outs = self._by_pair.get((action.gid, action.subject_id))
                if hand_outs is not None:
                    hand_outs.set_timer()
            elif isinstance(action, actions.Doom):
                self._doomed_pairs.add((action.gid, action.subject_id))
                self._doomed.set()
            elif isinstance(action, actions.Release):
                self.readers.pop((action.subject_id, action.slot), None)
            elif isinstance(action, (actions.Unshare, actions.InOrder, actions.Drop)):
                self._by_pair.pop((action.gid, action.subject_id), None)
            elif isinstance(action, actions.Forget):
                self._drop(key for key in [*self._by_pair, *self._allowed] if key[0] == action.gid)
            elif isinstance(action, actions.Gone):
                self._drop(
                    key for key in [*self._by_pair, *self._allowed] if key[1] == action.subject_id
                )
                self.reader.forget(action.subject_id)
                for key in [key for key in self.readers if key[0] == action.subject_id]:
                    del self.readers[key]

    def hand_outs_of(self, group: Group, subject: Subject) -> HandOuts:
        hand_outs = self._by_pair.get((group.id, subject.id))
        if hand_outs is None or hand_outs.group is not group:
            hand_outs = self._by_pair[group.id, subject.id] = HandOuts(self, group, subject)
        return hand_outs

    def _drop(self, keys: Iterable[tuple[int, int]]) -> None:
        for key in keys:
            self._by_pair.pop(key, None)
            self._allowed.pop(key, None)

    def statistics(self, exclusive: dict[str, str] | None = None) -> SharingStatistics:
        """`exclusive`: what GroupService.exclusive says."""
        return SharingStatistics(
            waiting=sum(hand_outs.waiting for hand_outs in self._by_pair.values()),
            hand_outs=self.hand_outs,
            messages=self.messages,
            redelivered=self._redelivered,
            served_again=self._served_again,
            fenced=self._fenced,
            expired=self.expired,
            lost=self._lost,
            rebalances=self.rebalances,
            exclusive=exclusive or {},
        )


def _loss(group: Group, subject: Subject, gone: Lost) -> actions.Lost | actions.Doom:
    """What is damaged becomes a dead letter without a value, so that somebody sees it; unless that would be
    very many: a batch may claim more messages than anybody ever sent."""
    if not gone.damaged or gone.size > MOST_DAMAGED:
        return actions.Lost(group.id, subject.id, gone.first, gone.size)
    ranges = [[gone.first, gone.size, 1]]
    return actions.Doom(group.id, subject.id, 0, ranges, DAMAGED, gone.why)
