"""Any history of joins, leaves, kills, freezes, cut connections, restarts and changes of mode, with all
kinds of clients: nobody slips into the wrong space, nothing is lost, nothing is handled twice but what a
killed member had read."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kumquat.gateway.groups.tests.clients import Classic, Client, Modern
from kumquat.gateway.groups.tests.simulation import GROUP, Simulation

TOPICS = ["t", "u"]
KINDS = ["range", "keeper", "eager", "cooperative", "modern", "explicit", "stranger"]
SOFTWARE = {"range": "librdkafka", "stranger": "other"}
MODES = ["auto", "auto", "shared", "exclusive"]
SUBSCRIPTIONS = [["t"], ["t", "u"], ["u"]]
MOST_CLIENTS = 5
MOVES = {
    "live": 30, "step": 15, "read": 15, "come": 8, "go": 4, "die": 3, "freeze": 2, "thaw": 4,
    "cut": 4, "lose": 6, "restart": 2, "mode": 1, "steal": 4, "topics": 4,
}  # fmt: skip
"""How often each move is made in a long life."""
ROUNDS = 400


def make(world: Simulation, kind: str, name: str, topics: list[str]) -> Client:
    if kind in ("modern", "explicit"):
        return Modern(world, name, topics, explicit=kind == "explicit")
    protocol = "cooperative-sticky" if kind == "cooperative" else "range"
    software = SOFTWARE.get(kind, "kafka-python")
    return Classic(
        world, name, topics, software=software, protocol=protocol, keeps=kind == "keeper"
    )


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = Simulation(*TOPICS, checked=True)
        self.clients: list[Client] = []
        self.frozen: set[str] = set()
        self.count = 0

    def pick(self, number: int) -> Client | None:
        awake = [client for client in self.clients if client.name not in self.frozen]
        return awake[number % len(awake)] if awake else None

    @initialize(
        kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
        mode=st.sampled_from(MODES),
    )
    def begin(self, kinds: list[str], mode: str) -> None:
        self.world.set_mode(mode)
        for topic in TOPICS:
            self.world.produce(topic, 30)
        for kind in kinds:
            self.come(kind, ["t"])
            self.live(1.0, 3, True)

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(kind=st.sampled_from(KINDS), topics=st.sampled_from(SUBSCRIPTIONS))
    def come(self, kind: str, topics: list[str]) -> None:
        self.count += 1
        self.clients.append(make(self.world, kind, f"{kind}{self.count}", topics))

    @rule(number=st.integers(0, MOST_CLIENTS), times=st.integers(1, 4))
    def step(self, number: int, times: int) -> None:
        client = self.pick(number)
        for _ in range(times if client is not None else 0):
            client.step()  # type: ignore[union-attr]

    @rule(number=st.integers(0, MOST_CLIENTS), most=st.integers(1, 8), commits=st.booleans())
    def read(self, number: int, most: int, commits: bool) -> None:
        client = self.pick(number)
        if client is not None:
            client.read(most)
            if commits:
                client.commit()

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]), rounds=st.integers(1, 8), commits=st.booleans())
    def live(self, seconds: float, rounds: int, commits: bool) -> None:
        """Everybody who is awake does what it does."""
        for _ in range(rounds):
            self.world.pass_time(seconds)
            for client in self.clients:
                if client.name not in self.frozen:
                    client.step()
                    client.read(3)
                    if commits:
                        client.commit()
            self.world.check()

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 20))
    def produce(self, topic: str, count: int) -> None:
        self.world.produce(topic, count)

    @rule(number=st.integers(0, MOST_CLIENTS))
    def go(self, number: int) -> None:
        client = self.pick(number)
        if client is not None:
            client.leave()
            self.clients.remove(client)

    @rule(number=st.integers(0, MOST_CLIENTS))
    def die(self, number: int) -> None:
        client = self.pick(number)
        if client is not None:
            client.lost()
            self.clients.remove(client)

    @rule(number=st.integers(0, MOST_CLIENTS))
    def freeze(self, number: int) -> None:
        client = self.pick(number)
        if client is not None:
            self.frozen.add(client.name)

    @rule()
    def thaw(self) -> None:
        self.frozen.clear()

    @rule(number=st.integers(0, MOST_CLIENTS))
    def cut(self, number: int) -> None:
        client = self.pick(number)
        if client is not None:
            client.reconnect()

    @rule(number=st.integers(0, MOST_CLIENTS))
    def lose(self, number: int) -> None:
        client = self.pick(number)
        if client is not None:
            client.loses = True

    @rule(number=st.integers(0, MOST_CLIENTS))
    def steal(self, number: int) -> None:
        client = self.pick(number)
        group = self.world.groups.by_name.get(GROUP)
        if client is not None and group is not None:
            self.world.coordinator.request_rebalance(group, client.member_id, self.world.now)

    @rule(number=st.integers(0, MOST_CLIENTS), topics=st.sampled_from(SUBSCRIPTIONS))
    def resubscribe(self, number: int, topics: list[str]) -> None:
        client = self.pick(number)
        if client is not None:
            client.subscribe(topics)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        for client in self.clients:
            client.broker_restarted()

    @rule(mode=st.sampled_from(MODES))
    def change_mode(self, mode: str) -> None:
        self.world.set_mode(mode)

    @invariant()
    def nobody_holds_what_it_must_not(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Left alone, the clients that are there come to the end of everything, and commit it."""
        self.frozen.clear()
        self.clients.append(make(self.world, "range", "last", TOPICS))
        for _ in range(ROUNDS):
            for client in self.clients:
                client.step()
                client.read(50)
                client.commit()
            self.world.pass_time(1.0)
            if self._finished():
                break
        assert self._finished(), "the end was not reached"
        self._check_who_reads()
        self.world.check()
        for topic in TOPICS:
            end = self.world.subjects.by_name[topic].readable_end
            handled = self.world.handled[topic]
            missing = [n for n in range(end) if not handled[n]]
            assert not missing, f"{topic}: {missing} were never handled"
            twice = {n for n in range(end) if handled[n] > 1} - self.world.excused[topic]
            assert not twice, f"{topic}: {sorted(twice)} were handled twice"

    def _check_who_reads(self) -> None:
        """Once it is quiet, everybody who should read does."""
        for _ in range(150):
            self.world.pass_time(1.0)
            for client in self.clients:
                client.step()
                client.read(1)
        group, mode = self.world.groups.by_name[GROUP], self.world.mode(GROUP, 0)
        for topic in TOPICS:
            subject_id = self.world.subjects.by_name[topic].id
            subscribed = [client for client in self.clients if topic in client.topics]
            holds = [group.members[client.member_id].holds.get(subject_id) for client in subscribed]
            known = all(client.software != SOFTWARE["stranger"] for client in subscribed)
            if mode == "shared" or (mode == "auto" and len(subscribed) > 1 and known):
                assert all(holds), f"{topic} is not shared by all: {holds}"
            else:
                assert sorted(holds, key=str) == [0] + [None] * (len(holds) - 1), (
                    f"{topic}: {holds}"
                )

    def _finished(self) -> bool:
        group = self.world.groups.by_name.get(GROUP)
        return group is not None and all(
            (progress := group.progress.get(self.world.subjects.by_name[topic].id)) is not None
            and progress.lowest_unacked() == self.world.subjects.by_name[topic].readable_end
            for topic in TOPICS
        )


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=settings().max_examples * 4 // 5, stateful_step_count=30, deadline=None
)
LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8)]


@pytest.mark.parametrize("seed", [0, 1, *LONG])
def test_a_long_life_of_a_group(seed: int) -> None:
    churn(seed, 250)


def churn(seed: int, steps: int) -> None:
    """The same moves as above, in long histories that are the same each time."""
    choose = random.Random(seed)
    life = Groups()
    life.begin([choose.choice(KINDS) for _ in range(choose.randint(1, 3))], choose.choice(MODES))
    for _ in range(steps):
        number = choose.randrange(MOST_CLIENTS)
        move = choose.choices(list(MOVES), list(MOVES.values()))[0]
        if move == "live":
            life.live(choose.choice([0.5, 1.0, 3.0]), choose.randint(1, 6), choose.random() < 0.7)
        elif move == "step":
            life.step(number, choose.randint(1, 4))
        elif move == "read":
            life.read(number, choose.randint(1, 8), choose.random() < 0.5)
            life.produce(choose.choice(TOPICS), choose.randint(1, 4))
        elif move == "come":
            if len(life.clients) < MOST_CLIENTS:
                life.come(choose.choice(KINDS), choose.choice(SUBSCRIPTIONS))
        elif move == "topics":
            life.resubscribe(number, choose.choice(SUBSCRIPTIONS))
        elif move == "mode":
            life.change_mode(choose.choice(MODES))
        elif move in ("thaw", "restart"):
            getattr(life, move)()
        else:
            getattr(life, move)(number)
        life.world.check()
    life.teardown()
