"""The engine against a model of a few lines: who has which message, and which pull offset named it.

Hypothesis drives joins, fetches, commits of any offset, leaves, retention, kills, power cuts, clean stops
and snapshots in any order, for two groups on one subject with few slots, and looks for a message that is
lost, that comes again after its ack was synced, or that shares its pull offset with another one.

The journal stands for the action log: a list of frames, of which a prefix is synced. A cut leaves any
prefix that holds the synced one. The model keeps its own state beside each frame, and goes back with it.
"""

import copy
import json
from dataclasses import dataclass, field
from unittest import mock

import pytest
from hypothesis import Phase, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kumquat.core.delivery import actions, engine, state
from kumquat.core.delivery.actions import Action, from_json, to_json
from kumquat.core.delivery.policy import Policies
from kumquat.core.delivery.state import JUMP, Group, Groups, Progress, PullLog
from kumquat.core.logs.actions.recovery import repairs

SID = 7
SLOTS = 5

Given = dict[int, int]
"""Pull sequence → sequence."""


@dataclass
class Model:
    """What one group should be: each message below the cursor is acked, held by a slot, or free."""

    cursor: int = 0
    free: set[int] = field(default_factory=set)
    held: dict[int, Given] = field(default_factory=dict)
    """By slot: unacked."""
    given: dict[int, set[int]] = field(default_factory=dict)
    """By slot: all pull sequences that were ever given through it and are known."""

    def give(self, slot: int, pull: int, sequence: int) -> None:
        assert sequence in self.free or sequence == self.cursor, f"{sequence} is not free"
        self.free.discard(sequence)
        self.cursor = max(self.cursor, sequence + 1)
        self.held[slot][pull] = sequence
        self.given[slot].add(pull)

    def ack(self, slot: int, pull: int) -> bool:
        """A commit counts if it says that a message is done which is known to have been given, or that
        one of those is next."""
        if not {pull, pull - 1} & self.given[slot]:
            return False
        done = [p for p in self.held[slot] if p < pull]
        for p in done:
            del self.held[slot][p]
        return bool(done)

    def release(self, slot: int) -> None:
        self.free |= set(self.held.pop(slot).values())
        del self.given[slot]

    def expire(self, earliest: int) -> None:
        self.free = {s for s in self.free if s >= earliest}
        for slot, held in self.held.items():
            self.held[slot] = {p: s for p, s in held.items() if s >= earliest}
        self.cursor = max(self.cursor, earliest)


def stored(done: list[Action]) -> list[Action]:
    """As they come back from the log."""
    return [from_json(array) for array in json.loads(json.dumps([to_json(a) for a in done]))]


class EngineMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.patch = mock.patch.object(state, "MAX_SLOT", SLOTS)
        self.patch.start()
        self.groups = Groups()
        self.policies = Policies(self.groups)
        self.models = {1: Model(), 2: Model()}
        self.journal: list[tuple[list[Action], dict[int, Model]]] = []
        self.synced = 0
        self.readable_end = self.earliest = 0
        self.now = 0.0
        self.named: dict[tuple[int, int], tuple[int, int, str]] = {}
        """Every pull offset that was ever sent to a client, and what it named: group, message, member."""
        self.positions: dict[str, int] = {}
        """By member: where the client reads on, which outlives any crash of the broker."""
        self.acked: dict[int, set[int]] = {1: set(), 2: set()}
        """Messages whose ack was synced: they must not come again."""
        self.acking: list[tuple[int, int, set[int]]] = []
        self.members = 0
        self.do([actions.Jump(0)])
        for gid in (1, 2):
            self.do([actions.Group(gid, f"g{gid}"), actions.Share(gid, SID, 0)])
        self.produce(200)
        self.enter(1)
        self.enter(1)
        self.enter(2)
        self.sync()

    def teardown(self) -> None:
        self.patch.stop()

    # --- the action log, in short ------------------------------------------------------------------

    def do(self, done: list[Action]) -> None:
        for action in done:
            self.groups.apply(action)
        self.policies.observe(done, self.now)
        self.journal.append((done, copy.deepcopy(self.models)))

    @rule()
    def sync(self) -> None:
        self.synced = len(self.journal)
        for gid, upto, messages in self.acking:
            assert upto <= self.synced
            self.acked[gid] |= messages
        self.acking = []

    def restart(self, kept: int, clean: bool) -> None:
        del self.journal[kept:]
        self.acking = []
        self.models = copy.deepcopy(self.journal[-1][1])
        self.groups = Groups()
        for done, _ in self.journal:
            for action in stored(done):
                self.groups.apply(action)
        self.policies = Policies(self.groups)
        self.do([actions.Jump(0 if clean else JUMP), *repairs(self.groups)])
        self.sync()

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        self.restart(data.draw(st.integers(self.synced, len(self.journal))), clean=False)

    @rule()
    def lose_power_and_all_that_is_not_synced(self) -> None:
        self.restart(self.synced, clean=False)

    @rule()
    def be_killed(self) -> None:
        self.restart(len(self.journal), clean=False)

    @rule()
    def stop_and_start(self) -> None:
        self.do([actions.Stopped()])
        self.sync()
        assert self.groups.clean
        self.restart(len(self.journal), clean=True)

    @rule()
    def replace_by_snapshot(self) -> None:
        """A new segment whose snapshot is complete: nothing older is read again."""
        self.sync()
        made: list[Action] = [actions.Numbers(self.groups.next_id, self.groups.floor)]
        made += [self.groups.snapshot_slots(subject_id) for subject_id in self.groups.numbers]
        for group in self.groups.by_id.values():
            made += self.groups.snapshot(group)
        self.journal = [(made, copy.deepcopy(self.models))]
        self.synced = 1

    # --- the world -----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 40))
    def produce(self, count: int) -> None:
        self.readable_end += count

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        self.earliest = data.draw(st.integers(self.earliest, self.readable_end))

    def log(self, data: st.DataObject) -> tuple[Group, PullLog]:
        logs = self.groups.slots.get(SID, {})
        assume(logs)
        return logs[data.draw(st.sampled_from(sorted(logs)))]

    @precondition(lambda self: len(self.groups.slots.get(SID, {})) < SLOTS)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        self.enter(data.draw(st.sampled_from([1, 2])))

    def enter(self, gid: int) -> None:
        group = self.groups.by_id[gid]
        self.members += 1
        opened = engine.open_pull_log(self.groups, group, SID, f"m{self.members}")
        slot, begin = opened.slot, opened.pull
        fields = {
            "id": f"m{self.members}",
            "generation": 1,
            "kind": "eager",
            "client_id": "c",
            "host": "h",
            "session_ms": 1,
            "rebalance_ms": 1,
            "holds": {SID: slot},
        }
        model = self.models[group.id]
        model.held[slot], model.given[slot] = {}, set()
        self.do([opened, actions.Member(group.id, fields)])
        self.positions[f"m{self.members}"] = begin
        if self.groups.numbers[SID].given > SLOTS:
            self.sync()  # a slot that another had is told only when its release is synced

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        group, log = self.log(data)
        self.models[group.id].release(log.slot)
        self.do(
            [
                actions.Release(group.id, SID, log.slot),
                actions.Left(group.id, log.member_id),
            ]
        )

    @rule(data=st.data())
    def fetch(self, data: st.DataObject) -> None:
        """A client asks where it stands, or again from the first that it has not acked."""
        group, log = self.log(data)
        at = data.draw(st.sampled_from([self.positions[log.member_id], log.position]))
        self.ask(group, log, at, data.draw(st.sampled_from([1, 3, 500])))

    @rule(data=st.data())
    def fetch_all(self, data: st.DataObject) -> None:
        """All clients ask where they stand, in any order."""
        logs = self.groups.slots.get(SID, {})
        for slot in data.draw(st.permutations(sorted(logs))):
            group, log = logs[slot]
            self.ask(group, log, self.positions[log.member_id], data.draw(st.integers(1, 9)))

    def ask(self, group: Group, log: PullLog, at: int, most: int) -> None:
        assert engine.owns(log, at), "a client's own position is taken for another's"
        if not engine.leases_from(log, at):
            self.hand_out(group, log, most)
        model = self.models[group.id]
        again = engine.leases_from(log, at)
        for lease in again:
            for i in range(lease.size):
                pull, sequence = lease.pull + i, lease.first + i
                named = (group.id, sequence, log.member_id)
                assert self.named.setdefault((log.slot, pull), named) == named
                assert sequence not in self.acked[group.id], f"{sequence} comes again"
                assert model.held[log.slot][pull] == sequence
                assert pull >= at
        if again:
            self.positions[log.member_id] = again[-1].end

    def hand_out(self, group: Group, log: PullLog, most: int) -> None:
        progress, model = group.progress[SID], self.models[group.id]
        expired = engine.overtaken(group.id, SID, progress, self.earliest)
        if expired is not None:
            model.expire(self.earliest)
            self.do([expired])
        ranges = engine.hand_out(
            progress,
            log,
            self.policies.of(group.id, SID),
            earliest=self.earliest,
            readable_end=self.readable_end,
            sharers=len(progress.pull_logs),
            max_records=most,
            caution=engine.Caution(16, 500),
            now=self.now,
        )
        if not ranges:
            return
        pull = log.next
        for part in ranges:
            assert self.earliest <= part.first
            assert part.end <= self.readable_end
            for sequence in range(part.first, part.end):
                model.give(log.slot, pull, sequence)
                pull += 1
        assert pull - log.next <= most
        self.do([engine.pull_action(group.id, SID, log, ranges)])

    @rule(
        data=st.data(),
        off=st.integers(-3, 3),
        kind=st.sampled_from(["position", "next", "acked", "any"]),
    )
    def commit(self, data: st.DataObject, off: int, kind: str) -> None:
        group, log = self.log(data)
        near = {
            "position": self.positions[log.member_id],
            "next": log.next,
            "acked": log.acked,
            "any": data.draw(st.sampled_from(sorted(p for _, p in self.named) or [0])),
        }
        self.say_done(group, log, near[kind] + (off if kind != "position" else min(off, 0)))

    @rule()
    def commit_all(self) -> None:
        """All clients commit where they stand."""
        for group, log in self.groups.slots.get(SID, {}).values():
            self.say_done(group, log, self.positions[log.member_id])

    def say_done(self, group: Group, log: PullLog, pull: int) -> None:
        before = dict(self.models[group.id].held[log.slot])
        counts = self.models[group.id].ack(log.slot, pull)
        action = engine.ack(group.id, SID, log, pull)
        if pull == log.next and action is not None:
            # Where the pull log has leapt to: everything that is known is below it.
            self.models[group.id].held[log.slot].clear()
            counts = True
        assert (action is not None) == counts, f"a commit of {pull}"
        if action is None:
            return
        self.do([action])
        done = before.keys() - self.models[group.id].held[log.slot].keys()
        self.acking.append((group.id, len(self.journal), {before[p] for p in done}))

    @invariant()
    def no_pull_log_answers_for_another(self) -> None:
        for (slot, pull), (_, _, member_id) in self.named.items():
            _, log = self.groups.slots.get(SID, {}).get(slot, (None, None))
            if log is not None and log.member_id != member_id:
                assert not engine.owns(log, pull)
                assert not engine.owns(log, pull + 1)
                assert engine.ack(1, SID, log, pull + 1) is None

    # --- what must hold --------------------------------------------------------------------------------

    @invariant()
    def agrees_with_the_model(self) -> None:
        for gid, model in self.models.items():
            progress = self.groups.by_id[gid].progress[SID]
            assert progress.cursor == model.cursor
            assert {s for r in progress.redelivery for s in range(r.first, r.end)} == model.free
            assert progress.redelivery.total == len(model.free)
            assert progress.pull_logs.keys() == model.held.keys()
            for slot, log in progress.pull_logs.items():
                held = {
                    lease.pull + i: lease.first + i
                    for lease in log.leases
                    for i in range(lease.size)
                }
                assert held == model.held[slot]
                assert log.unacked == len(held)
                assert self.groups.slots[SID][slot] == (self.groups.by_id[gid], log)
            unacked = model.free.union(*(set(held.values()) for held in model.held.values()))
            assert progress.lowest_unacked() == min(unacked, default=model.cursor)
            assert progress.settled == (not unacked)
            for done in self.acked[gid]:
                assert done not in unacked
                assert done < model.cursor

    @invariant()
    def a_snapshot_makes_the_same(self) -> None:
        twin = Groups()
        for subject_id in self.groups.numbers:
            twin.apply(self.groups.snapshot_slots(subject_id))
        for group in self.groups.by_id.values():
            for action in stored(self.groups.snapshot(group)):
                twin.apply(action)
        for group in self.groups.by_id.values():
            assert twin.snapshot(twin.by_id[group.id]) == self.groups.snapshot(group)
        for subject_id, numbers in self.groups.numbers.items():
            assert twin.numbers[subject_id].given == numbers.given
            assert twin.numbers[subject_id].top >= numbers.top


FEW = settings(max_examples=80, stateful_step_count=50, deadline=None, derandomize=True)
EngineMachine.TestCase.settings = settings(FEW, max_examples=settings().max_examples)
TestEngine = EngineMachine.TestCase


def never_leaps(self: Groups, distance: int) -> None:
    pass


def leaps_in_part(self: Groups, distance: int) -> None:
    for logs in self.slots.values():
        for _, log in logs.values():
            log.leap(distance)


def acks_too_much(gid: int, subject_id: int, log: PullLog, pull: int) -> Action | None:
    return actions.Ack(gid, subject_id, log.slot, pull) if log.leases else None


def loses_what_was_leased(self: Progress, slot: int) -> PullLog:
    return self.pull_logs.pop(slot)


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (Groups, "_jump", never_leaps),
        pytest.param(Groups, "_jump", leaps_in_part, marks=pytest.mark.long),  # 3,000 examples
        (engine, "ack", acks_too_much),
        (Progress, "release", loses_what_was_leased),
        (PullLog, "in_gap", lambda log, pull: False),
    ],
)
def test_a_broken_engine_is_caught(owner: object, name: str, broken: object) -> None:
    settings_ = settings(
        FEW, max_examples=4000, report_multiple_bugs=False, phases=[Phase.generate]
    )
    with mock.patch.object(owner, name, broken), pytest.raises(AssertionError):
        run_state_machine_as_test(EngineMachine, settings=settings_)
