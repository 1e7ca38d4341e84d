"""Clients that share a subject, in simulated time: who gets how much, and how long it takes.

Two sorts, as they are out there. A *greedy* one (librdkafka) goes on asking until 100,000 messages are
queued; a *modest* one (Java, kafka-python, aiokafka) asks again when the application has taken what it had.
Both commit by themselves every 5 s. A client told to rebalance hears of it with its next heartbeat (3 s),
commits, drops its queue and comes back with a new pull log.
"""

from dataclasses import dataclass, field
from random import Random

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.policy import Policies
from kumquat.core.delivery.state import Groups, PullLog

SID = 1
TICK = 0.005
COMMIT_EVERY = 5.0
HEARTBEAT_EVERY = 3.0
QUEUE = 100_000


@dataclass
class Client:
    name: str
    greedy: bool
    seconds: float
    """That its handler takes for a message."""
    asks: int = 5
    """A tick, at most."""
    commit_every: float = COMMIT_EVERY
    log: PullLog | None = None
    position: int = 0
    queue: list[tuple[int, int]] = field(default_factory=list)
    """Pull sequence and how many from there on."""
    queued: int = 0
    done: int = 0
    handled_upto: int = 0
    spare: float = 0.0
    next_commit: float = 0.0
    told: float | None = None


class Simulation:
    def __init__(self, messages: int, seed: int = 0, max_records: int = 500) -> None:
        self.groups = Groups()
        self.policies = Policies(self.groups)
        self.policy = self.policies.of(1, SID)
        self.rng = Random(seed)
        self.now = 0.0
        self.messages = self.readable_end = messages
        self.max_records = max_records
        self.clients: list[Client] = []
        self.steals: list[str] = []
        self.handled = 0
        self.do(actions.Group(1, "g"), actions.Share(1, SID, 0))
        self.progress = self.groups.by_id[1].progress[SID]

    def do(self, *done: Action) -> None:
        for action in done:
            self.groups.apply(action)
        self.policies.observe(done, self.now)

    def join(self, client: Client) -> Client:
        self.clients.append(client)
        client.next_commit = self.now + client.commit_every * self.rng.uniform(0.5, 1)
        self._begin(client)
        return client

    def _begin(self, client: Client) -> None:
        opened = engine.open_pull_log(self.groups, self.groups.by_id[1], SID, client.name)
        self.do(opened)
        client.log = self.groups.slots[SID][opened.slot][1]
        client.position = client.handled_upto = client.log.position

    # --- a tick --------------------------------------------------------------------------------------

    def run(self, until: float | None = None, limit: float = 600.0) -> float:
        """Until that time, or until all is handled; gives the time."""
        while self.now < (limit if until is None else until):
            if until is None and self.handled >= self.messages:
                return self.now
            self.now += TICK
            for client in self.rng.sample(self.clients, len(self.clients)):
                self._ask(client)
                self._handle(client)
                if self.now >= client.next_commit:
                    self._commit(client)
                if client.told is not None and self.now >= client.told:
                    self._rebalance(client)
        return self.now

    def _ask(self, client: Client) -> None:
        assert client.log is not None
        for _ in range(client.asks):
            if client.queued >= QUEUE or (client.queue and not client.greedy):
                return
            ranges = engine.hand_out(
                self.progress,
                client.log,
                self.policy,
                earliest=0,
                readable_end=self.readable_end,
                sharers=len(self.clients),
                max_records=self.max_records,
                caution=engine.Caution(16, self.max_records),
                now=self.now,
            )
            if not ranges:
                self.policy.nothing_given(client.log, self.now)
                self._steal()
                return
            size = sum(part.size for part in ranges)
            client.queue.append((client.log.next, size))
            self.do(engine.pull_action(1, SID, client.log, ranges))
            client.queued += size

    def _steal(self) -> None:
        holder = self.policy.steal(
            self.progress,
            readable_end=self.readable_end,
            sharers=len(self.clients),
            now=self.now,
            after_ms=1000,
        )
        if holder is not None:
            self.steals.append(holder)
            client = next(c for c in self.clients if c.name == holder)
            client.told = self.now + HEARTBEAT_EVERY * self.rng.random()

    def _handle(self, client: Client) -> None:
        client.spare += TICK
        while client.queue and client.spare >= client.seconds:
            pull, size = client.queue[0]
            count = size if not client.seconds else min(size, int(client.spare / client.seconds))
            client.spare -= count * client.seconds
            client.queue[0:1] = [(pull + count, size - count)] if size > count else []
            client.handled_upto = pull + count
            client.queued -= count
            client.done += count
            self.handled += count
        client.spare = min(client.spare, max(TICK, client.seconds))

    def _commit(self, client: Client) -> None:
        assert client.log is not None
        client.next_commit = self.now + client.commit_every
        action = engine.ack(1, SID, client.log, client.handled_upto)
        if action is not None:
            self.do(action)

    def _rebalance(self, client: Client) -> None:
        assert client.log is not None
        client.told = None
        self._commit(client)
        client.queue, client.queued = [], 0
        self.do(actions.Release(1, SID, client.log.slot))
        self._begin(client)


def crowd(count: int, seconds: float, kind: str = "greedy") -> list[Client]:
    """`kind`: greedy, modest, or mixed."""
    return [
        Client(
            f"{kind}-{number}",
            greedy=kind == "greedy" or (kind == "mixed" and number % 2 == 0),
            seconds=seconds,
            asks=1 if kind == "modest" or (kind == "mixed" and number % 2) else 5,
        )
        for number in range(count)
    ]
