"""Members that ack, fail, die and hang, and a broker that is killed: what becomes of each message.

A model follows the actions as they are appended, and knows for each message where it is: never given, held,
left to be delivered again, doomed, or done with. It checks each action by the rules of give_back.py: who
may give what, which attempt it is, when it is due. Sharing, its hand-outs and its locks are the real ones.

At the end the members behave, and all must be acked or dead.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kumquat.core.delivery import actions, engine, give_back
from kumquat.core.delivery.acknowledge import ACCEPT, REJECT, RELEASE, RENEW, AckBatch
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.dead_letters.backlog import Backlog
from kumquat.core.delivery.engine import ALONE_MS, Allowed, Caution
from kumquat.core.delivery.give_back import Refused
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.pull_log import JUMP, PullLog, ShareLog, pull_offset
from kumquat.core.delivery.sharing.hand_outs import Waiter
from kumquat.core.delivery.state import Group, Groups
from kumquat.core.delivery.tests.rig import SID, Config, Frame, replayed, rig, stored
from kumquat.core.delivery.undo import Undo, remember
from kumquat.core.errors import InvalidRecordState, InvalidRequest, StorageError
from kumquat.core.logs.actions.recovery import repairs

PULLS, SHARES, PLAIN = 1, 2, 3
CONFIG = Config(
    retry_backoff_ms=100,
    retry_backoff_multiplier=3.0,
    retry_backoff_max_ms=1000,
    delivery_count_limit=5,
    share_delivery_count_limit=3,
    lease_max_records=8,
    share_record_lock_duration_ms=700,
)
LIMITS = {PULLS: 5, SHARES: 3, PLAIN: 5}
HOUR = 3_600_000


def backoff(attempt: int) -> int:
    return min(1000, 100 * int(3 ** (attempt - 1)))


@dataclass
class Left:
    attempt: int
    due: int = 0
    """By the time that groups live by."""
    true: int = 0
    """By a clock that nobody sets."""


@dataclass
class Held:
    slot: int
    pull: int
    attempt: int
    at: int


@dataclass
class Model:
    """A group: each message is in one of these, or was never given."""

    cursor: int = 0
    shared: bool = True
    left: dict[int, Left] = field(default_factory=dict)
    held: dict[int, Held] = field(default_factory=dict)
    doomed: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)

    def of(self, slot: int) -> dict[int, Held]:
        return {s: held for s, held in self.held.items() if held.slot == slot}


def places(progress: Progress, now: int) -> dict[int, tuple[Any, ...]]:
    """Where each message is. A retry that is due may be awake or not: that is a matter of time alone."""
    found: dict[int, tuple[Any, ...]] = {}

    def put(first: int, size: int, *place: Any) -> None:
        for sequence in range(first, first + size):
            assert sequence not in found, f"{sequence} is in two places"
            found[sequence] = place

    for part in progress.redelivery:
        put(part.first, part.size, "left", part.attempt, 0, part.since)
    for wait in progress.waiting:
        due = wait.due if wait.due > now else 0
        put(wait.first, wait.size, "left", wait.attempt, due, wait.since)
    for doomed in progress.doomed.values():
        put(doomed.first, doomed.size, "doomed", *doomed[2:])
    for slot, log in progress.pull_logs.items():
        for lease in log.leases:
            for i in range(lease.size):
                put(lease.first + i, 1, "held", slot, lease.pull + i, *lease[3:])
    return found


def shape(groups: Groups, now: int) -> dict[Any, Any]:
    """All that a replay must make again."""
    found: dict[Any, Any] = {"joined": groups.joined, "next": groups.next_id}
    for gid, group in groups.by_id.items():
        found[gid] = (group.name, sorted(group.members), group.last_kind)
        for subject_id, progress in group.progress.items():
            logs = {
                slot: (type(log), log.member_id, log.begin, log.acked, log.next, log.unacked)
                for slot, log in progress.pull_logs.items()
            }
            found[gid, subject_id] = (
                progress.shared,
                progress.position,
                progress.shared and progress.cursor,
                progress.expired,
                places(progress, now),
                logs,
            )
    found["slots"] = {
        subject_id: sorted(slots) for subject_id, slots in groups.slots.items() if slots
    }
    return found


class RetryMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.context = rig(copy.copy(CONFIG))
        self.rig = self.context.__enter__()
        self.models: dict[int, Model] = {}
        self.kept: list[dict[int, Model]] = []
        """The models after each frame of the log."""
        self.cause: Any = None
        self.waits: set[int] = set()
        self.listen()
        self.run(actions.Jump(0))
        for gid, share, sequence in ((PULLS, False, 0), (SHARES, True, 0), (PLAIN, False, None)):
            self.models[gid] = Model(shared=sequence is not None)
            self.rig.make_group(gid, share=share, sequence=sequence)
        self.run(actions.Commit(PLAIN, SID, 0, -1, ""))
        self.rig.subject.produce(30)
        for gid in (PULLS, PULLS, SHARES, SHARES):
            self.rig.join(gid)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.end_well()
        finally:
            self.context.__exit__(None, None, None)

    def listen(self) -> None:
        self.rig.actions.seen = self.follow
        self.backlog = Backlog(self.rig.groups)
        self.backlog.find_all()

    # --- the model follows -----------------------------------------------------------------------

    def run(self, *changes: Action, cause: Any = None) -> None:
        """Append what somebody decided; taken back first, as where the disk is full."""
        groups, now = self.rig.groups, self.rig.now()
        before, undo = copy.deepcopy(shape(groups, now)), Undo()
        numbers = copy.deepcopy(groups.numbers)
        if not any(isinstance(a, (actions.Jump, actions.Joined)) for a in changes):
            for action in changes:
                remember(undo, groups, action)
                groups.apply(action)
            undo.revert()
            assert shape(groups, now) == before, f"{changes} cannot be taken back"
            assert groups.numbers == numbers
        self.cause = cause
        self.rig.append(*changes)
        self.cause = None

    def follow(self, done: list[Action]) -> None:
        for action in done:
            name = f"see_{type(action).__name__.lower()}"
            if hasattr(self, name):
                getattr(self, name)(self.models[cast("Any", action).gid], action)
        self.kept.append(copy.deepcopy(self.models))

    def see_pull(self, model: Model, pull: actions.Pull) -> None:
        now, true, gid = self.rig.now(), self.rig.monotonic, pull.gid
        total = sum(part[1] for part in pull.ranges)
        caution, before = Caution(LIMITS[gid], CONFIG.lease_max_records), model.of(pull.slot)
        for held in before.values():
            if caution.alone(held.attempt) and len(before) == 1:
                assert now - held.at >= ALONE_MS, "a member that handles one alone is given another"
        at = pull.pull
        for first, size, attempt in pull.ranges:
            for sequence in range(first, first + size):
                known = model.left.pop(sequence, None)
                if known is None:
                    assert sequence == model.cursor, f"{sequence} is given again"
                    assert attempt == 1
                    model.cursor += 1
                else:
                    assert attempt == known.attempt
                    assert known.due <= now
                    assert known.true <= true, f"{sequence} comes early"
                assert sequence < self.rig.subject.readable_end
                assert attempt <= LIMITS[gid], "it is delivered once more than the limit says"
                near = attempt > 1 and attempt >= LIMITS[gid]
                assert not near or (total == 1 and not before), f"{sequence} is not alone"
                model.held[sequence] = Held(pull.slot, at, attempt, now)
                at += 1

    def see_ack(self, model: Model, ack: actions.Ack) -> None:
        for sequence, held in model.of(ack.slot).items():
            if held.pull < ack.pull:
                del model.held[sequence]
                model.done.add(sequence)

    def see_accept(self, model: Model, accept: actions.Accept) -> None:
        for first, size in accept.ranges:
            for sequence in range(first, first + size):
                if sequence in model.held:  # it may be named twice
                    assert model.held.pop(sequence).slot == accept.slot
                model.done.add(sequence)

    def see_release(self, model: Model, release: actions.Release) -> None:
        for sequence, held in model.of(release.slot).items():
            model.left[sequence] = Left(held.attempt)
            del model.held[sequence]

    def see_retry(self, model: Model, retry: actions.Retry) -> None:
        now, true = self.rig.now(), self.rig.monotonic
        for first, size, attempt, due in retry.ranges:
            for sequence in range(first, first + size):
                if retry.slot == 0:
                    assert not model.shared
                    model.dead.discard(sequence)  # its letter stays, and it comes once more
                    before = 1
                else:
                    held = model.held.pop(sequence)
                    assert held.slot == retry.slot
                    before = held.attempt
                if self.cause == "start":
                    wait, expected = 0, before
                else:
                    assert before < LIMITS[retry.gid], "it had its last attempt"
                    wait, expected = self.wait_after(before), before + 1
                assert attempt == expected
                assert due == (now + wait if wait or not retry.slot else 0)
                model.left[sequence] = Left(attempt, due, true + wait)

    def wait_after(self, attempt: int) -> int:
        if isinstance(self.cause, int):  # the client says how long
            return self.cause
        if self.cause == "close" or (self.cause == "lost" and attempt == 1):
            return 0
        return backoff(attempt)

    def see_doom(self, model: Model, doom: actions.Doom) -> None:
        for first, size, attempts in doom.ranges:
            for sequence in range(first, first + size):
                if doom.slot == 0:
                    assert not model.shared
                    assert attempts == 1
                else:
                    held = model.held.pop(sequence)
                    assert (held.slot, held.attempt) == (doom.slot, attempts)
                assert doom.reason == "rejected" or attempts == LIMITS[doom.gid]
                model.doomed[sequence] = attempts

    def see_settle(self, model: Model, settle: actions.Settle) -> None:
        for first, size in settle.ranges:
            for sequence in range(first, first + size):
                del model.doomed[sequence]
                model.dead.add(sequence)

    def see_expire(self, model: Model, expire: actions.Expire) -> None:
        lost = {s for s in [*model.left, *model.held] if s < expire.sequence}
        for sequence in lost:
            model.left.pop(sequence, None)
            model.held.pop(sequence, None)
        model.gone |= lost | set(range(model.cursor, expire.sequence))
        model.cursor = max(model.cursor, expire.sequence)

    def see_commit(self, model: Model, commit: actions.Commit) -> None:
        waits = model.left.keys() | model.doomed.keys() | model.dead
        model.done |= set(range(model.cursor, commit.sequence)) - waits
        model.cursor = commit.sequence

    def see_share(self, model: Model, share: actions.Share) -> None:
        model.shared = True
        waits = model.left.keys() | model.doomed.keys() | model.dead
        top = max([share.sequence, *(s + 1 for s in waits)])
        for sequence in range(share.sequence, top):
            if sequence not in waits:
                model.left[sequence] = Left(1)
        model.cursor = top

    def see_unshare(self, model: Model, unshare: actions.Unshare) -> None:
        assert not model.left
        assert not model.held
        model.shared = False

    def see_inorder(self, model: Model, in_order: actions.InOrder) -> None:
        """Only where nothing above is left."""
        assert not model.held
        assert all(sequence < in_order.sequence for sequence in model.left)
        assert in_order.sequence == model.cursor
        model.shared = False

    # --- the broker ------------------------------------------------------------------------------

    def restart(self, kept: int) -> None:
        frames = self.rig.actions.frames[:kept]
        del self.kept[kept:]
        self.models = copy.deepcopy(self.kept[-1])
        self.waits = set()
        self.rig.start(frames)
        assert self.rig.now() >= frames[-1].at, "time went back"
        self.listen()
        self.run(actions.Jump(JUMP))
        for action in repairs(self.rig.groups):
            self.run(action)
        for gid in self.models:
            self.rig.sharing.append([], {(gid, SID): Allowed.ALL})
        self.cause = "start"
        self.rig.sharing.shares.resume()
        self.cause = None
        assert not any(model.held for gid, model in self.models.items() if gid == SHARES)

    @rule()
    def be_killed(self) -> None:
        self.restart(len(self.rig.actions.frames))

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        low, high = self.rig.actions.synced, len(self.rig.actions.frames)
        self.restart(data.draw(st.integers(low, high)))

    @rule()
    def begin_a_segment(self) -> None:
        """Nothing older is read again."""
        log, groups = self.rig.actions, self.rig.groups
        made: list[Action] = [actions.Numbers(groups.next_id, groups.floor, groups.joined)]
        made += [groups.snapshot_slots(subject_id) for subject_id in groups.numbers]
        for group in groups.by_id.values():
            made += groups.snapshot(group)
        log.frames[:] = [Frame(self.rig.now(), made)]
        log.synced = 1
        self.kept = [copy.deepcopy(self.models)]

    @rule()
    def set_the_clock_back(self) -> None:
        self.rig.wall -= HOUR

    @rule(ms=st.sampled_from([1, 50, 100, 299, 300, 700, 1000, 11_000]))
    def pass_time(self, ms: int) -> None:
        self.rig.pass_time(ms)
        self.cause = "lock"
        self.rig.sharing.timers._fire()
        self.cause = None

    @rule(count=st.integers(1, 10))
    def produce(self, count: int) -> None:
        self.rig.subject.produce(count)

    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        subject = self.rig.subject
        subject.earliest = data.draw(st.integers(subject.earliest, subject.readable_end))

    @rule(most=st.integers(1, 5))
    def write_dead_letters(self, most: int) -> None:
        for gid in self.models:
            picked = self.backlog.pick((gid, SID), 0.0, most)
            if picked:
                ranges = [[each.first, each.size] for each in picked]
                end = self.rig.groups.joined + 1
                self.run(actions.Settle(gid, SID, ranges))
                self.run(actions.Joined(end))

    # --- members ---------------------------------------------------------------------------------

    def log(self, data: st.DataObject, *, share: bool | None = None) -> tuple[Group, PullLog]:
        logs = {
            slot: found
            for slot, found in self.rig.groups.slots.get(SID, {}).items()
            if share is None or isinstance(found[1], ShareLog) is share
        }
        return logs[data.draw(st.sampled_from(sorted(logs)))]

    def has(self, share: bool) -> bool:
        logs = self.rig.groups.slots.get(SID, {}).values()
        return any(isinstance(log, ShareLog) is share for _, log in logs)

    @precondition(lambda self: len(self.rig.groups.slots.get(SID, {})) < 7)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        self.rig.join(data.draw(st.sampled_from([g for g, m in self.models.items() if m.shared])))

    @precondition(lambda self: self.rig.groups.slots.get(SID))
    @rule(data=st.data(), most=st.integers(1, 12))
    def fetch(self, data: st.DataObject, most: int) -> None:
        group, log = self.log(data)
        self.ask(group, log, most)

    @rule(data=st.data(), most=st.integers(1, 12))
    def all_fetch(self, data: st.DataObject, most: int) -> None:
        slots = self.rig.groups.slots.get(SID, {})
        for slot in data.draw(st.permutations(sorted(slots))):
            self.ask(*slots[slot], most)

    def ask(self, group: Group, log: PullLog, most: int) -> None:
        if not self.rig.give(group.id, log, most) and log.slot not in self.waits:
            hand_outs = self.rig.sharing.hand_outs_of(group, cast("Any", self.rig.subject))
            waiter = Waiter(hand_outs, log, 1 << 20, most)
            self.waits.add(log.slot)
            hand_outs.enter(waiter, lambda: self.waits.discard(log.slot))

    @precondition(lambda self: self.has(share=False))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        _, log = self.log(data, share=False)
        self.say_done(log, data.draw(st.integers(log.position, log.next)))

    def say_done(self, log: PullLog, pull: int) -> None:
        group, _ = self.rig.groups.slots[SID][log.slot]
        ack = engine.ack(group.id, SID, log, pull)
        if ack is not None:
            self.run(ack)
            assert all(h.pull >= pull for h in self.models[group.id].of(log.slot).values())

    @precondition(lambda self: self.rig.groups.slots.get(SID))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        group, log = self.log(data)
        self.go(group, log)

    @precondition(lambda self: self.rig.groups.slots.get(SID))
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        group, log = self.log(data)
        policy = self.rig.sharing.retry_policy(group)
        now = self.rig.now()
        held = len(self.models[group.id].of(log.slot))
        given = give_back.give_back(group.id, SID, log.slot, log.leases, policy, now)
        assert held == sum(part[1] for action in given for part in cast("Any", action).ranges)
        self.go(group, log, *given)

    def go(self, group: Group, log: PullLog, *given: Action) -> None:
        gone = (actions.Release(group.id, SID, log.slot), actions.Left(group.id, log.member_id))
        self.run(*given, *gone)
        self.waits.discard(log.slot)

    # --- what clients say of single messages -----------------------------------------------------

    @precondition(lambda self: self.rig.groups.slots.get(SID))
    @rule(
        data=st.data(),
        reject=st.booleans(),
        after=st.sampled_from([None, None, 0, 30, 5000]),
        off=st.sampled_from([0, 0, 0, -1, 1]),
    )
    def say_that_it_failed(
        self, data: st.DataObject, reject: bool, after: int | None, off: int
    ) -> None:
        group, log = self.log(data)
        held = self.models[group.id].of(log.slot)
        if not held:
            return
        sequence = data.draw(st.sampled_from(sorted(held)))
        if isinstance(log, ShareLog):
            offset = sequence + off
        else:
            offset = pull_offset(log.slot, held[sequence].pull + off)
        self.fail(group, offset, reject, after)
        self.fail(group, offset, reject, after, again=True)

    @precondition(lambda self: not self.models[PLAIN].shared)
    @rule(
        offset=st.integers(0, 60), reject=st.booleans(), after=st.sampled_from([None, None, 0, 30])
    )
    def say_that_a_plain_one_failed(self, offset: int, reject: bool, after: int | None) -> None:
        group, model = self.rig.groups.by_id[PLAIN], self.models[PLAIN]
        known = model.left.keys() | model.doomed.keys()
        refused = offset >= self.rig.subject.readable_end or (
            offset not in known and offset < model.cursor
        )
        if refused:
            with pytest.raises(Refused):
                self.fail(group, offset, reject, after)
            return
        before = len(self.rig.actions.frames)
        self.fail(group, offset, reject, after)
        assert (len(self.rig.actions.frames) > before) == (offset not in known)
        assert offset in model.left or offset in model.doomed

    def fail(
        self, group: Group, offset: int, reject: bool, after: int | None, again: bool = False
    ) -> None:
        policy, model = self.rig.sharing.retry_policy(group), self.models[group.id]
        before = copy.deepcopy(model)
        try:
            changes = give_back.fail(
                self.rig.groups,
                group,
                SID,
                offset,
                readable_end=self.rig.subject.readable_end,
                reject=reject,
                after_ms=after,
                reason="why",
                policy=policy,
                now_ms=self.rig.now(),
            )
        except Refused:
            if not model.shared:
                raise
            return
        if changes:
            assert not again, "a failure that is told twice counts twice"
            self.run(*changes, cause=after)
            moved = before.held.keys() - model.held.keys()
            assert not model.shared or len(moved) == 1

    @precondition(lambda self: self.has(share=True))
    @rule(data=st.data(), full=st.booleans())
    def acknowledge(self, data: st.DataObject, full: bool) -> None:
        group, log = self.log(data, share=True)
        assert isinstance(log, ShareLog)
        model, subject = self.models[group.id], self.rig.subject
        batches = data.draw(
            st.lists(
                st.builds(
                    lambda first, size, kinds: AckBatch(first, first + size - 1, kinds[:size]),
                    st.integers(0, max(model.cursor, 1)),
                    st.integers(1, 4),
                    st.lists(st.sampled_from([0, 1, 1, 2, 2, 3, 4]), min_size=4, max_size=4),
                ),
                max_size=3,
            )
        )
        for first, size in data.draw(st.permutations(runs(model.of(log.slot))))[:2]:
            kind = data.draw(st.sampled_from([ACCEPT, RELEASE, REJECT, RENEW]))
            batches.append(AckBatch(first, first + size - 1, [kind]))
        spans = sorted((batch.first, batch.last) for batch in batches)
        if any(one[1] >= other[0] for one, other in pairwise(spans)):
            return
        told: dict[int, int] = {}
        for batch in batches:
            for first, end, kind in batch.runs():
                told.update(dict.fromkeys(range(first, end), kind))
        early = any(s >= model.cursor for s in told)
        foreign = any(
            s >= subject.earliest and (s not in model.held or model.held[s].slot != log.slot)
            for s in told
        )
        self.rig.actions.full = full
        before = copy.deepcopy(shape(self.rig.groups, self.rig.now()))
        try:
            self.rig.sharing.shares.acknowledge(group, cast("Any", subject), log, batches)
        except InvalidRequest:
            assert early
        except InvalidRecordState:
            assert foreign
        except StorageError:
            assert full
            assert any(kind != RENEW for kind in told.values())
        else:
            assert not early
            assert not foreign
            for sequence, kind in told.items():
                if sequence >= subject.earliest and kind == ACCEPT:
                    assert sequence in model.done
                if sequence >= subject.earliest and kind == REJECT:
                    assert sequence in model.doomed
            return
        finally:
            self.rig.actions.full = False
        assert shape(self.rig.groups, self.rig.now()) == before

    @precondition(lambda self: self.has(share=True))
    @rule(data=st.data(), lost=st.booleans())
    def close_the_session(self, data: st.DataObject, lost: bool) -> None:
        group, log = self.log(data, share=True)
        self.cause = "lost" if lost else "close"
        self.rig.sharing.shares.give_back_all(group, log.member_id, lost=lost)
        self.cause = None

    # --- a group that reads in order -------------------------------------------------------------

    @precondition(lambda self: not self.models[PLAIN].shared)
    @rule(count=st.integers(0, 9))
    def commit_in_order(self, count: int) -> None:
        at = min(self.models[PLAIN].cursor + count, self.rig.subject.readable_end)
        self.run(actions.Commit(PLAIN, SID, at, -1, ""))

    @precondition(lambda self: not self.models[PLAIN].shared)
    @rule()
    def begin_to_share(self) -> None:
        self.run(actions.Share(PLAIN, SID, self.models[PLAIN].cursor))
        self.rig.join(PLAIN)

    @precondition(lambda self: self.models[PLAIN].shared and self.rig.progress(PLAIN).settled)
    @rule()
    def end_sharing(self) -> None:
        group = self.rig.groups.by_id[PLAIN]
        for log in list(group.progress[SID].pull_logs.values()):
            self.go(group, log)
        self.run(actions.Unshare(PLAIN, SID))

    @precondition(lambda self: self.models[PLAIN].shared)
    @rule()
    def end_sharing_while_retries_wait(self) -> None:
        group = self.rig.groups.by_id[PLAIN]
        progress, now = group.progress[SID], self.rig.now()
        if progress.drained(now) and not progress.settled:
            for log in list(progress.pull_logs.values()):
                self.go(group, log)
            at = progress.in_order_from(now, exact=True)
            assert at == progress.in_order_from(now, exact=False) == progress.cursor
            self.run(actions.InOrder(PLAIN, SID, at))

    # --- what must hold --------------------------------------------------------------------------

    @invariant()
    def agrees_with_the_model(self) -> None:
        now = self.rig.now()
        for gid, model in self.models.items():
            progress = self.rig.progress(gid)
            expected: dict[int, tuple[Any, ...]] = {}
            for sequence, left in model.left.items():
                expected[sequence] = ("left", left.attempt, left.due if left.due > now else 0)
                assert left.due - now <= max(5000, CONFIG.retry_backoff_max_ms)
            for sequence, held in model.held.items():
                expected[sequence] = ("held", held.slot, held.pull, held.attempt)
            for sequence, attempts in model.doomed.items():
                expected[sequence] = ("doomed", attempts)
            found = places(progress, now)
            assert found.keys() == expected.keys(), (gid, found, expected)
            for sequence, place in expected.items():
                assert found[sequence][: len(place)] == place, sequence
            done = model.done | model.dead | model.gone
            assert not done & expected.keys()
            assert not model.dead & model.done
            assert model.shared == progress.shared
            assert model.cursor == (progress.cursor if model.shared else progress.position)
            kinds = [place[0] for place in expected.values()]
            assert progress.retries == kinds.count("left")
            assert progress.leased == kinds.count("held")
            assert progress.dying == kinds.count("doomed")
            assert progress.unacked == len(kinds)
            assert progress.redelivery.total == sum(r.size for r in progress.redelivery)
            assert progress.waiting.total == sum(w.size for w in progress.waiting)
            for log in progress.pull_logs.values():
                assert log.unacked == sum(lease.size for lease in log.leases)
                order = [one.first if isinstance(log, ShareLog) else one.pull for one in log.leases]
                assert order == sorted(order)
            if model.shared:
                assert progress.lowest_unacked() == min(expected, default=model.cursor)
                assert progress.settled == (not model.left and not model.held)
                assert expected.keys() | done >= set(range(model.cursor))

    @invariant()
    def a_replay_makes_the_same(self) -> None:
        now = self.rig.now()
        assert shape(replayed(self.rig.actions.frames), now) == shape(self.rig.groups, now)

    @invariant()
    def a_snapshot_makes_the_same(self) -> None:
        groups, twin, now = self.rig.groups, Groups(), self.rig.now()
        twin.apply(actions.Numbers(groups.next_id, groups.floor, groups.joined))
        for group in groups.by_id.values():
            for action in stored(groups.snapshot(group)):
                twin.apply(action)
        assert shape(twin, now) == shape(groups, now)

    # --- the end ---------------------------------------------------------------------------------

    def end_well(self) -> None:
        """Members that ack, a disk that works: nothing is left."""
        if not self.models:
            return
        if not self.models[PLAIN].shared:
            self.begin_to_share()
        for gid in self.models:
            self.rig.join(gid)
        for _ in range(400):
            self.pass_time(500)
            self.write_dead_letters(1000)
            for group, log in list(self.rig.groups.slots[SID].values()):
                self.ask(group, log, 100)
                if isinstance(log, ShareLog):
                    held = [
                        AckBatch(f, f + n - 1, [ACCEPT])
                        for f, n in runs(self.models[group.id].of(log.slot))
                    ]
                    self.rig.sharing.shares.acknowledge(
                        group, cast("Any", self.rig.subject), log, held
                    )
                else:
                    self.say_done(log, log.next)
            if all(self.is_over(model) for model in self.models.values()):
                return
        raise AssertionError(f"left at the end: {self.models}")

    def is_over(self, model: Model) -> bool:
        waits = model.left or model.held or model.doomed
        return not waits and model.cursor >= self.rig.subject.readable_end


def runs(held: dict[int, Held]) -> list[tuple[int, int]]:
    """First and size of each run of sequences."""
    found: list[tuple[int, int]] = []
    for sequence in sorted(held):
        if found and sum(found[-1]) == sequence:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((sequence, 1))
    return found


RetryMachine.TestCase.settings = settings(
    max_examples=max(20, settings().max_examples // 5), stateful_step_count=30, deadline=None
)
TestRetries = RetryMachine.TestCase
