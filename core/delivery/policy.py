"""How much a member is given, and from which one work is taken back. Volatile, and only advice: whatever is
decided here, no message is lost or acked by it.

Fetch is also how clients prefetch: some ask again only when the application has taken what they hold,
others until a hundred thousand messages are queued. What a client has handled is known only when it
commits. So per member there is a *pace*, learnt from its acks:

- rate: messages a second. Where something was left unacked the member was busy, and the ack is a measure;
  where nothing was left it may have been idle, and the ack is a lower bound.
- window: how many messages it may hold unacked. It begins as wide as clients prefetch, since a client that
  commits by itself does so every 5 s and a narrow one would be a rate limit. Once the member was seen busy
  it settles at about twice what it acks between two commits (never below a second's work).
- what it *queues*: its unacked messages, less those that its rate explains as handled since the last ack.

A member is given nothing more while it queues its share of all that is left (waiting, or queued by anyone);
except a little, each time it has been patient for a second: a client may commit only after many messages,
and others may never take their part.

Work is taken back when there is nothing to give, someone has waited for it long enough, and a member queues
far more than its share and would take long to work it off. Then that one is to be told to rebalance: it
commits, drops its queue, and what is left is shared again. Rarely per member.

Policies keeps one of these for each group and subject; `observe` is to see all actions as they are applied.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from collections.abc import Set as AbstractSet
from math import ceil, inf

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.state import Groups, Progress, PullLog

FIRST_WINDOW = 100_000
LARGEST_WINDOW = 4_000_000
SMALLEST_WINDOW = 10
PATIENCE = 1.0
"""Seconds after which a member that queues its share is given some more."""
STEAL_EVERY = 30.0
"""Seconds between two times that a member is told to rebalance."""
FAR_ABOVE = 1.5
"""A queue of so many times the member's share is far too much for it."""
SUMMED_FOR = 0.02
"""Seconds for which the sum of what all queue is not computed again; what is given out is added to it."""
_NO_PACE = (
    *(actions.Release, actions.Retry, actions.Doom, actions.Settle),
    *(actions.Share, actions.Expire, actions.Lost, actions.Holes),
)
"""They change what members hold and say nothing of how fast they are."""
ARRIVAL_SECONDS = 3.0
"""When a group begins to share, a share is kept so long for members that have joined and have no pull log
yet. Members come within a few round trips of each other; the first to fetch would be given everything."""
UNMEASURED = 6.0
"""Seconds without an ack after which a member counts as slow: more than clients take to commit by
themselves."""


class Pace:
    """What is known of a member's work in one subject."""

    __slots__ = (
        "busy_since",
        "idle_since",
        "outstanding",
        "over_since",
        "rate",
        "stolen_at",
        "window",
    )

    def __init__(self) -> None:
        self.rate = 0.0
        self.window = FIRST_WINDOW
        self.outstanding = 0
        """Its unacked messages, as last seen."""
        self.busy_since = 0.0
        """When it last acked, or was given something and had nothing."""
        self.idle_since: float | None = None
        """Since when it asks and gets nothing."""
        self.over_since: float | None = None
        """Since when it asks for more than its share."""
        self.stolen_at = -inf

    def queued(self, unacked: int, now: float) -> float:
        """What it holds and, by its pace, has not handled yet."""
        return max(0.0, unacked - self.rate * (now - self.busy_since))

    def given(self, unacked: int, now: float) -> None:
        if not self.outstanding:
            self.busy_since = now
        self.outstanding = unacked
        self.idle_since = self.over_since = None

    def acked(self, unacked: int, now: float) -> None:
        before, self.outstanding = self.outstanding, unacked
        count = before - unacked
        if count <= 0:
            return
        rate = count / max(now - self.busy_since, 0.001)
        if unacked:
            target = max(2 * count, int(rate), SMALLEST_WINDOW)
            first = not self.rate or target > self.window
            self.window = min(target if first else (self.window + target) // 2, LARGEST_WINDOW)
            self.rate = (self.rate + rate) / 2 if self.rate else rate
        else:
            if 2 * before >= self.window:
                self.window = min(2 * self.window, LARGEST_WINDOW)
            self.rate = max(self.rate, rate)
        self.busy_since = now


class SharePolicy:
    """The paces of a group's members in one subject."""

    def __init__(self) -> None:
        self.opened_at = -inf
        """When the group began to share the subject."""
        self._paces: dict[str, Pace] = {}
        self._readers: set[str] = set()
        """Members of a share group whose share session reads this subject."""
        self._queued = 0.0
        self._summed_at = -inf
        self._looked_at = -inf
        """When all queues were last compared."""

    def given(self, log: PullLog, now: float) -> None:
        pace = self.pace(log.member_id)
        self._queued += log.unacked - pace.outstanding
        pace.given(log.unacked, now)

    def acked(self, log: PullLog, now: float) -> None:
        self.pace(log.member_id).acked(log.unacked, now)
        self._summed_at = -inf

    def pace(self, member_id: str) -> Pace:
        found = self._paces.get(member_id)
        if found is None:
            found = self._paces[member_id] = Pace()
        return found

    @property
    def readers(self) -> int:
        return len(self._readers)

    @property
    def members(self) -> AbstractSet[str]:
        """Of whom something is known."""
        return self._paces.keys() | self._readers

    def read(self, member_id: str) -> None:
        """A share session of this member reads the subject."""
        self._readers.add(member_id)

    def stop(self, member_id: str) -> None:
        """Its share session has ended."""
        self._readers.discard(member_id)

    def forget(self, member_id: str) -> None:
        self._paces.pop(member_id, None)
        self._readers.discard(member_id)

    def hold(self, unacked: dict[str, int], members: Container[str]) -> None:
        """What each member holds now, by its id; nothing, if it is not named. Who has left the group is
        forgotten with its pull log."""
        self._summed_at = -inf
        self._readers.intersection_update(unacked)
        for member_id, pace in list(self._paces.items()):
            pace.outstanding = unacked.get(member_id, 0)
            if member_id not in unacked and member_id not in members:
                del self._paces[member_id]

    def room(
        self, progress: Progress, log: PullLog, readable_end: int, sharers: int, now: float
    ) -> int:
        """How many more messages this member may hold."""
        pace = self.pace(log.member_id)
        room = pace.window - log.unacked
        if room <= 0 or sharers < 2:
            return max(0, room)
        share = self._share(progress, readable_end, sharers, now)
        left = int(share - pace.queued(log.unacked, now))
        if left > 0:
            pace.over_since = None
            return min(room, left)
        if pace.over_since is None:
            pace.over_since = now
        return min(room, max(1, share // 64)) if now - pace.over_since >= PATIENCE else 0

    def _share(self, progress: Progress, readable_end: int, sharers: int, now: float) -> int:
        """A member's share of all that is not handled yet."""
        if now - self._summed_at >= SUMMED_FOR:
            self._summed_at = now
            self._queued = sum(
                self.pace(log.member_id).queued(log.unacked, now)
                for log in progress.pull_logs.values()
            )
        return ceil((waiting(progress, readable_end) + self._queued) / sharers)

    def nothing_given(self, log: PullLog, now: float) -> None:
        """The member asked and got nothing."""
        pace = self.pace(log.member_id)
        if pace.idle_since is None:
            pace.idle_since = now

    def ask_again_at(self, log: PullLog) -> float | None:
        """When a member that got nothing, for it queues its share, should be looked at again."""
        over_since = self.pace(log.member_id).over_since
        return None if over_since is None else over_since + PATIENCE

    def steal(
        self,
        progress: Progress,
        *,
        readable_end: int,
        sharers: int,
        now: float,
        after_ms: int,
    ) -> str | None:
        """The member that is to be told to rebalance; it is not named again for a while."""
        if sharers < 2 or waiting(progress, readable_end):
            return None
        if 0 <= now - self._looked_at < SUMMED_FOR:  # whoever asks, the answer is the same
            return None
        self._looked_at = now
        queues = {
            log.member_id: self.pace(log.member_id).queued(log.unacked, now)
            for log in progress.pull_logs.values()
        }
        if not queues:
            return None
        holder = max(queues, key=queues.__getitem__)
        pace, most = self.pace(holder), queues[holder]
        if (
            most < 2
            or most < FAR_ABOVE * sum(queues.values()) / sharers
            or now - pace.stolen_at < STEAL_EVERY
            or not self._slow(pace, most, now, after_ms / 1000)
            or not any(self._hungry(m, most, queues, now, after_ms / 1000) for m in queues)
        ):
            return None
        pace.stolen_at = now
        return holder

    def _slow(self, pace: Pace, queued: float, now: float, after: float) -> bool:
        if not pace.rate:
            return now - pace.busy_since >= UNMEASURED
        return queued / pace.rate > 2 * after

    def _hungry(
        self, member_id: str, most: float, queues: dict[str, float], now: float, after: float
    ) -> bool:
        """Whether a member waits, has waited long enough, and queues next to nothing itself."""
        since = self.pace(member_id).idle_since
        return since is not None and now - since >= after and queues[member_id] <= most / 4


def waiting(progress: Progress, readable_end: int) -> int:
    """How many messages could be handed out."""
    return max(0, readable_end - progress.cursor) + progress.redelivery.total


class Policies:
    """A policy for each group and subject that shares."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._policies: dict[int, dict[int, SharePolicy]] = {}
        """Group id → subject id → policy."""

    def of(self, gid: int, subject_id: int) -> SharePolicy:
        return self._policies.setdefault(gid, {}).setdefault(subject_id, SharePolicy())

    def observe(self, applied: Sequence[Action], now: float) -> None:
        """These actions were applied just now."""
        for action in applied:
            if isinstance(action, actions.Share):
                self.of(action.gid, action.subject_id).opened_at = now
            if isinstance(action, (actions.Pull, actions.Ack, actions.Accept)):
                self._moved(action, now)
            elif isinstance(action, _NO_PACE):
                self._rest(action.gid, action.subject_id)
            elif isinstance(action, (actions.Unshare, actions.InOrder, actions.Drop)):
                self._policies.get(action.gid, {}).pop(action.subject_id, None)
            elif isinstance(action, actions.Forget):
                self._policies.pop(action.gid, None)
            elif isinstance(action, actions.Left):
                for policy in self._policies.get(action.gid, {}).values():
                    policy.forget(action.member_id)
            elif isinstance(action, actions.Gone):
                for policies in self._policies.values():
                    policies.pop(action.subject_id, None)

    def stop(self, gid: int, member_id: str) -> None:
        """A share session has ended."""
        for policy in self._policies.get(gid, {}).values():
            policy.stop(member_id)

    def _moved(self, action: actions.Pull | actions.Ack | actions.Accept, now: float) -> None:
        found = self._groups.slots.get(action.subject_id, {}).get(action.slot)
        if found is not None:
            policy = self.of(action.gid, action.subject_id)
            (policy.given if type(action) is actions.Pull else policy.acked)(found[1], now)

    def _rest(self, gid: int, subject_id: int) -> None:
        """What members hold has changed by something that says nothing about their pace."""
        policy, group = self._policies.get(gid, {}).get(subject_id), self._groups.by_id.get(gid)
        progress = group.progress.get(subject_id) if group is not None else None
        if policy is not None and group is not None and progress is not None:
            unacked = {log.member_id: log.unacked for log in progress.pull_logs.values()}
            policy.hold(unacked, group.members)
