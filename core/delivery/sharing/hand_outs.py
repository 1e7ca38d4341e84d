"""Where the members of a group wait for messages of one subject, and are given them.

When there is news (messages, a release, an ack that makes room) everybody who waits is looked at once:
that is a round. Thousands may wait, so LOOKS of them are looked at in one step, and the others soon after.
News that comes during a round begins another one behind it. Leases go first to those who have been idle
longest, as long as there are messages. Only a member that was given something is woken, and then it no
longer waits: nobody gets a second lease before each has had one.

A hand-out from the cursor ends with a batch of the producer's where that costs it no more than half: then
nothing has to be cut.

Some things come with time alone. A retry that is due is handed out when a timer of Sharing says so. The
others are looked after by who waits, now and then: a member that queues its share of all that is left may
have some more when it has been patient, and a member that has waited long while another one sits on far
more than its share makes that one rebalance. See core/delivery/policy.py.

A message that is to be handled alone (core/delivery/engine.py) needs a member that holds nothing. So one
member is *reserved* for it: it is given nothing more until it has acked what it has, but not for ever. A
client that commits by itself acks after 5 s, and a member that dies may leave hundreds of such messages. So
while others could be handed out, one member at a time is reserved or has a message alone; and then as much
time as that took belongs to the others.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from kumquat.core.delivery.engine import (
    ALONE_MS,
    Allowed,
    Caution,
    awaits_alone,
    hand_out,
    holds_alone,
    missed,
    overtaken,
    pull_action,
)
from kumquat.core.delivery.policy import ARRIVAL_SECONDS, waiting
from kumquat.core.delivery.progress import MOST_AWAKE
from kumquat.core.delivery.pull_log import SHARE_PULL
from kumquat.core.delivery.ranges import Range
from kumquat.core.errors import CorruptMessage, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kumquat.core.delivery.sharing.service import Sharing
    from kumquat.core.delivery.state import Group, Progress, PullLog
    from kumquat.core.logs.messages.subject import Subject

LOOK_AGAIN_SECONDS = 1.0
MANY_SHARERS = 3
"""Among more members a first hand-out is small, and nobody has to wait for others to come."""
FIRST_HAND_OUT = 500
"""The most that a member is handed at once before it has acked anything: it may turn out to be slow. Up to
twice as many, where a batch ends there."""
LOOKS = 32
"""Who is looked at in one step: a hand-out takes a tenth to a quarter of a millisecond."""

logger = logging.getLogger(__name__)


class Waiter:
    """A Fetch that found nothing in a pull log."""

    __slots__ = (
        "hand_outs",
        "idle_since",
        "limit",
        "log",
        "looked",
        "most",
        "seen",
        "wake",
        "whole",
    )

    def __init__(
        self,
        hand_outs: HandOuts,
        log: PullLog,
        limit: int,
        most: int | None = None,
        whole: bool = False,
    ) -> None:
        self.hand_outs = hand_outs
        self.log = log
        self.limit = limit
        """Bytes."""
        self.most = most
        """Messages, where the client says so."""
        self.whole = whole
        """A few more messages, where that saves a batch from being cut."""
        self.seen = hand_outs.news
        """The news that it is known to get nothing from."""
        self.idle_since = inf
        self.looked = -inf
        self.wake: Callable[[], None] | None = None


class HandOuts:
    def __init__(self, sharing: Sharing, group: Group, subject: Subject) -> None:
        self.group = group
        self.subject = subject
        self._sharing = sharing
        self._policy = sharing.policies.of(group.id, subject.id)
        self._waiting: dict[Waiter, None] = {}
        self._fed = 0
        self._round: deque[Waiter] = deque()
        """Who is still to be looked at."""
        self._again = False
        """There was news since this round began."""
        self._rest = Rest(self)
        self._listens = False
        self._reserved: PullLog | None = None
        self._subscribed = 0, 0
        """How many members the group has, and how many of them subscribe to the subject."""
        self._reserved_at = 0
        """Since when (ms)."""
        self._alone: PullLog | None = None
        """The member that was given a message alone last, as long as it is given nothing else."""
        self._alone_since = 0
        """Since when it is, the time counted for which it was reserved (ms)."""
        self._others_until = 0
        """Until then nothing is handed out alone, if there is anything else (ms)."""
        self._earliest = -1
        """The subject's earliest sequence when the group was last compared with it."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def news(self) -> tuple[int, int]:
        """Changes when there may be more to give than before."""
        return self._fed, self.subject.readable_end

    # --- waiting ---------------------------------------------------------------------------------

    def enter(self, waiter: Waiter, wake: Callable[[], None]) -> None:
        """Wait until `wake` is called: something was given, or the subject was deleted."""
        waiter.wake = wake
        idle_since = self._policy.pace(waiter.log.member_id).idle_since
        waiter.idle_since = inf if idle_since is None else idle_since
        self._waiting[waiter] = None
        self._listen()
        self.set_timer()
        if waiter.seen != self.news:
            self.feed()

    def leave(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def next_look(self, waiter: Waiter) -> float:
        """When time alone may have changed something for who waits."""
        patient = self._policy.ask_again_at(waiter.log)
        due = inf if patient is None else patient
        progress = self._progress(waiter.log)
        if progress is not None and self._sharers(progress, waiter.log) > 1:
            due = min(due, waiter.idle_since + self._steal_after_ms / 1000)
        return max(due, waiter.looked + LOOK_AGAIN_SECONDS)

    def look_again(self, waiter: Waiter) -> str | None:
        """Time has passed for a member that waits. Gives the member that is to be told to rebalance, if
        any."""
        now = waiter.looked = self._sharing.now()
        self.feed()
        progress = self._progress(waiter.log)
        if progress is None or waiter not in self._waiting:
            return None
        return self._policy.steal(
            progress,
            readable_end=self.subject.readable_end,
            sharers=self._sharers(progress, waiter.log),
            now=now,
            after_ms=self._steal_after_ms,
        )

    def _listen(self) -> None:
        if not self._listens:
            subject = self.subject
            if subject.waiters is None:
                subject.waiters = set()
            subject.waiters.add(self._heard)
            self._listens = True

    def _heard(self) -> None:
        """The high watermark moved, or the subject was deleted."""
        self._listens = False
        self.feed_safely()
        if self._waiting and not self.subject.deleted:
            self._listen()

    # --- giving ----------------------------------------------------------------------------------

    def set_timer(self) -> None:
        """When the next retry is due, those who wait are looked at. Not while there are enough at hand that
        nobody takes: time alone does not change that."""
        progress = self.group.progress.get(self.subject.id)
        if progress is not None and self._waiting and len(progress.redelivery) < MOST_AWAKE:
            due = progress.waiting.next_due
            if due is not None:
                self._sharing.timers.set(self, due)

    def feed(self) -> None:
        """There may be something for those who wait."""
        self._fed += 1
        if self._round:
            self._again = True
        elif self._waiting:
            self._begin_round()
            self.look_on()

    def _begin_round(self) -> None:
        self._again = False
        self._wake_retries()
        self._round = deque(sorted(self._waiting, key=_idle_since))

    def look_on(self) -> None:
        """Look at some of those who are left in this round."""
        try:
            self._look_at_some()
        finally:  # whatever became of one, the others are looked at
            if not self._round and self._again and self._waiting:
                self._begin_round()
            if self._round:
                self._sharing.timers.set(self._rest, self._sharing.now_ms())

    def _look_at_some(self) -> None:
        looks = 0
        while self._round and looks < LOOKS:
            waiter = self._round.popleft()
            if waiter not in self._waiting:
                continue
            progress = self._progress(waiter.log)
            if self.subject.deleted:
                self._wake(waiter)
            elif progress is not None and waiting(progress, self.subject.readable_end):
                looks += 1
                if self.give(waiter.log, waiter.limit, waiter.most, whole=waiter.whole):
                    for other in [each for each in self._waiting if each.log is waiter.log]:
                        self._wake(other)

    def feed_safely(self) -> None:
        """`feed`, for a caller that must not fail with it."""
        try:
            self.feed()
        except Exception:
            logger.exception("members of group %s were handed nothing", self.group.name)

    def _wake(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)
        if waiter.wake is not None:
            waiter.wake()

    def _wake_retries(self) -> None:
        progress = self.group.progress.get(self.subject.id)
        if progress is not None and progress.waiting.total:
            progress.wake(self._sharing.now_ms())
            self.set_timer()

    def reads(self, log: PullLog) -> None:
        """A share session reads here."""
        self._policy.read(log.member_id)

    def _sharers(self, progress: Progress, log: PullLog) -> int:
        """Among how many the messages are divided. Of a share group these are the members whose session is
        open: who has lost its connection stays a member for a while, and takes nothing."""
        return max(1, self._policy.readers) if log.begin == SHARE_PULL else len(progress.pull_logs)

    def give(
        self, log: PullLog, limit: int, wanted: int | None = None, *, whole: bool = False
    ) -> bool:
        """Lease messages to a member, as many as it may have and about fit the limit, and at most so
        many as are wanted; whether there were any. `whole`: a few more than wanted, where that saves a
        batch from being cut."""
        progress, subject, sharing = self._progress(log), self.subject, self._sharing
        if progress is None:
            return False
        is_share = log.begin == SHARE_PULL
        if is_share and log.member_id not in self.group.members:
            return False  # it has left, and may only acknowledge
        allowed = sharing.allowed(self.group.id, subject.id)
        if allowed is Allowed.NOTHING:
            return False
        if progress.waiting.total:
            self._wake_retries()
        if subject.earliest != self._earliest or progress.redelivery.total:
            self._expire(progress)
        now = self._sharing.now()
        config = sharing.config(self.group.name)
        most = config.lease_max_records
        caution = Caution(sharing.retry_policy(self.group).limit, most)
        if progress.redelivery.total or log.unacked == 1:
            found = self._alone_or_not(progress, log, caution, fresh=allowed is Allowed.ALL)
            if found is None:
                return False
            caution = found
        sharers = self._sharers(progress, log)
        everything = is_share and sharers == 1
        if not is_share:
            sharers = max(sharers, self._arriving(progress, now))
        unknown = not everything and not self._policy.pace(log.member_id).rate
        if unknown:
            most = min(most, FIRST_HAND_OUT if progress.redelivery.total else 2 * FIRST_HAND_OUT)
        if is_share:
            most = min(most, config.share_max_record_locks - log.unacked)
        bound = most
        if wanted is not None:
            most = min(most, wanted)
        ranges = hand_out(
            progress,
            log,
            self._policy,
            earliest=subject.earliest,
            readable_end=subject.readable_end if allowed is Allowed.ALL else progress.cursor,
            sharers=sharers,
            max_records=min(most, sharing.reader.fits(subject, limit)),
            caution=caution,
            now=now,
            everything=everything,
        )
        if not ranges:
            self._policy.nothing_given(log, now)
            return False
        if caution.alone(ranges[0].attempt):
            at = self._sharing.now_ms()
            self._alone_since = at if self._reserved is None else self._reserved_at
            self._alone, self._reserved = log, None
        if unknown and ranges[-1].size > FIRST_HAND_OUT:
            ranges[-1] = self._first(ranges[-1])
        if not everything:
            ranges[-1] = self._aligned(ranges[-1], progress)
        elif whole:
            bound -= sum(part.size for part in ranges[:-1])
            bound = min(bound, caution.part(ranges[-1].attempt))
            ranges[-1] = self._completed(ranges[-1], progress, bound)
        return sharing.lease(pull_action(self.group.id, subject.id, log, ranges))

    def _arriving(self, progress: Progress, now: float) -> int:
        """How many members will have a pull log, just after the group began to share; 0 later."""
        late = now - self._policy.opened_at >= ARRIVAL_SECONDS
        if late or len(progress.pull_logs) > MANY_SHARERS:
            return 0
        members = self.group.members
        if self._subscribed[0] != len(members):
            name = self.subject.name
            count = sum(name in member.subscription for member in members.values())
            self._subscribed = len(members), count
        return self._subscribed[1]

    def _alone_or_not(
        self, progress: Progress, log: PullLog, caution: Caution, *, fresh: bool
    ) -> Caution | None:
        """How careful to be with this member now; None: it is given nothing, for it handles a message
        alone, or is about to. `fresh`: messages that were never delivered may be handed out."""
        now = self._sharing.now_ms()
        if holds_alone(log, caution, now):
            return None
        alone, others = awaits_alone(progress, caution)
        if not alone:
            self._reserved = None
            return caution
        others = others or (fresh and progress.cursor < self.subject.readable_end)
        if not self._is_turn(caution, now) and others:
            return caution._replace(others_first=True)
        if self._reserved is None or not self._is_there(self._reserved):
            self._reserved, self._reserved_at = log, now
        if now - self._reserved_at >= ALONE_MS:
            return caution._replace(strict=False)
        return None if self._reserved is log and log.unacked else caution

    def _is_there(self, log: PullLog) -> bool:
        """Whether its member can be given something. Who left a share group may only acknowledge."""
        return log.member_id in self.group.members and self._progress(log) is not None

    def _is_turn(self, caution: Caution, now: int) -> bool:
        """Whether a message may be handed out alone although there are others."""
        if self._alone is not None:
            if self._progress(self._alone) is not None and holds_alone(self._alone, caution, now):
                return False
            self._others_until = now + (now - self._alone_since)
            self._alone = None
        return now >= self._others_until

    def _first(self, given: Range) -> Range:
        """FIRST_HAND_OUT, and the rest of the batch with it if that is wanted too."""
        few = given.first + FIRST_HAND_OUT
        behind = self.batch_end(few - 1)
        if behind is None or behind > given.first + given.size:
            behind = few
        return given._replace(size=behind - given.first)

    def _completed(self, given: Range, progress: Progress, most: int) -> Range:
        """With the rest of the batch in which it ends, where that makes at most so many. Of what is
        delivered again the rest may be elsewhere."""
        last = self.subject.readable_end
        if given.first < progress.cursor:
            together = progress.redelivery.find(given.first)
            last = given.end if together is None else together.end
        behind = self.batch_end(given.end - 1) if given.end < last else None
        if behind is None or behind > last or behind - given.first > most:
            return given
        return given._replace(size=behind - given.first)

    def batch_end(self, sequence: int) -> int | None:
        """Where the batch that holds a sequence ends, if that is cheap to find."""
        behind = self._sharing.reader.kept_until(self.subject, sequence)
        if behind is None:
            with suppress(WouldBlock, CorruptMessage):
                behind = self._sharing.log.bounds_nowait(self.subject, sequence)[1]
        return behind

    def _aligned(self, given: Range, progress: Progress) -> Range:
        """Cut down to where a batch ends, unless that costs more than half."""
        first, size, attempt, _ = given
        end, readable_end = first + size, self.subject.readable_end
        if first < progress.cursor or size < 2 or end >= readable_end:
            return given
        border = self._border(first, end)
        if border < end and 2 * (border - first) >= size:
            return Range(first, border - first, attempt)
        return given

    def _border(self, first: int, end: int) -> int:
        """The last end of a batch in a range that is cheap to find; `end` when there is none."""
        subject, reader = self.subject, self._sharing.reader
        known = reader.kept_until(subject, first)
        if known is not None and 2 * known >= first + end:
            return known
        if known is None and reader.length(subject) > end - first:
            return end  # it is most likely all of one batch
        try:
            return self._sharing.log.bounds_nowait(subject, end)[0]
        except (WouldBlock, CorruptMessage):
            return end

    def _expire(self, progress: Progress) -> None:
        """Move past what retention took."""
        earliest, lowest = self.subject.earliest, progress.redelivery.lowest
        if earliest == self._earliest and (lowest is None or lowest >= earliest):
            return
        expired = overtaken(self.group.id, self.subject.id, progress, earliest)
        if expired is not None:
            count = missed(progress, earliest)
            if not self._sharing.append_soon([expired]):
                return
            self._sharing.expired += count
            logger.warning(
                "group %s: %d messages of %s below %d were deleted before they were acked",
                *(self.group.name, count, self.subject.name, earliest),
            )
        self._earliest = earliest

    def _progress(self, log: PullLog) -> Progress | None:
        """Where the group is, as long as the pull log is alive."""
        progress = self.group.progress.get(self.subject.id)
        if progress is None or progress.pull_logs.get(log.slot) is not log:
            return None
        return progress

    @property
    def _steal_after_ms(self) -> int:
        return self._sharing.config(self.group.name).lease_steal_after_ms


class Rest:
    """What is left of a round, for a timer."""

    __slots__ = ("_hand_outs",)

    def __init__(self, hand_outs: HandOuts) -> None:
        self._hand_outs = hand_outs

    def feed(self) -> None:
        self._hand_outs.look_on()


def _idle_since(waiter: Waiter) -> float:
    return waiter.idle_since
