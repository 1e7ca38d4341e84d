"""Share groups (KIP-932) with Java's KafkaShareConsumer at its defaults: how fast, how wide, how soon.

All members are threads of one JVM. For a drain they hold the subject and stand still while the messages
are written, so that neither the writing nor the joins are in the time or in the broker's CPU. For handlers
they wait in a poll, and the clock begins with the writing of the messages, which takes some tens of
milliseconds.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from bench.load import topics
from bench.load.numbered import Writer
from bench.load.shares import ShareProcess
from bench.scenario import Columns, Floor, Numbers, Run, Scenario, own, ratio, share
from bench.scenarios.sharing import HANDLER_MS, configure

if TYPE_CHECKING:
    from bench.brokers.process import BrokerProcess

SIZE = 200
BATCH = 75
"""Messages that fit into 16 KiB, the batch of a producer at its defaults. Kafka hands out whole batches."""
DRAINERS = (1, 4, 16)
HANDLERS = (1, 4, 16, 32)
STARTS = 5
HOLDERS = 5
BACK_OFF_MS = 500
COLUMNS = ("kumquat", "kafka")
EARLIEST = {"share.auto.offset.reset": "earliest"}
MILLISECOND = 1e6
ONE_AT_A_TIME = {"share.acquire.mode": "record_limit", "max.poll.records": "1"}


def make(broker: BrokerProcess, name: str, **configs: str) -> Writer:
    """A topic, a group of the same name that begins with its first message, and a writer."""
    topics.make(broker.port, [name])
    configure(broker, name, **{**EARLIEST, **configs})
    return Writer(broker.bootstrap, name, SIZE, batch=BATCH)


def without_back_off(run: Run) -> dict[str, str]:
    """Kafka knows none."""
    return {"retry.backoff.ms": "0"} if run.column.key == "kumquat" else {}


def drain(
    broker: BrokerProcess, process: ShareProcess, name: str, members: int, count: int
) -> tuple[float, float]:
    """Messages in a second, and the broker's CPU seconds, from go to the last message."""
    writer = make(broker, name)
    process.join(name, name, members=members, count=count)
    process.ask("pause")
    writer.write(count)
    cpu, began = broker.cpu_seconds(), time.monotonic()
    process.ask("go")
    seconds = process.wait() - began
    cpu = broker.cpu_seconds() - cpu
    _, twice = process.leave()
    if twice:
        raise RuntimeError(f"{twice} messages came twice")
    return count / seconds, cpu


def _drain(run: Run) -> Numbers:
    count = run.scale.drained_messages
    numbers: Numbers = {}
    with run.column.broker() as broker, ShareProcess(broker.bootstrap) as process:
        drain(broker, process, "warm-up", 4, count // 2)
        for members in DRAINERS:
            run.say(f"{count:,} of {SIZE} B by {members}")
            rate, cpu = drain(broker, process, f"drain-{members}", members, count)
            numbers[f"{members} consumers, msg/s"] = rate
            numbers[f"{members} consumers, CPU s"] = cpu
    return numbers


def _handlers(run: Run) -> Numbers:
    count = run.scale.shared_messages
    numbers: Numbers = {}
    with run.column.broker() as broker, ShareProcess(broker.bootstrap) as process:
        for members in HANDLERS:
            run.say(f"{count:,} messages of {HANDLER_MS:.0f} ms by {members}")
            seconds, handled, twice = _handle(broker, process, members, count)
            run.say(f"{twice} messages came twice")
            numbers[f"{members} consumers, s"] = seconds
            numbers[f"{members} consumers, that got some"] = sum(each > 0 for each in handled)
    return numbers


def _handle(
    broker: BrokerProcess, process: ShareProcess, members: int, count: int
) -> tuple[float, list[int], int]:
    name = f"handler-{members}"
    writer = make(broker, name)
    process.join(name, name, members=members, count=count, handler_ms=HANDLER_MS)
    began = time.monotonic()
    writer.write(count)
    seconds = process.wait() - began
    return seconds, *process.leave()


def _start(run: Run) -> Numbers:
    with run.column.broker() as broker, ShareProcess(broker.bootstrap) as process:
        make(broker, "start").write(100)
        found = []
        for number in range(1 + STARTS):
            configure(broker, f"start-{number}", **EARLIEST)
            found.append(process.start(f"start-{number}", "start"))
    run.say(f"the first, in a cold JVM: {found[0]:.0f} ms")
    warm = found[1:]
    return {"first record, p50 ms": statistics.median(warm), "first record, max ms": max(warm)}


def _release(run: Run) -> Numbers:
    rounds = run.scale.bounces
    numbers: Numbers = {}
    with run.column.broker() as broker, ShareProcess(broker.bootstrap) as process:
        for members, title in ((1, "to itself"), (2, "two members")):
            run.say(f"{rounds} messages are released, {title}")
            took = _bounce(
                broker, process, f"bounce-{members}", members, rounds, without_back_off(run)
            )
            numbers[f"{title}, p50 ms"] = statistics.median(took)
            numbers[f"{title}, p99 ms"] = statistics.quantiles(took, n=100)[98]
        if run.column.key == "kumquat":
            run.say(f"{rounds} messages are released for {BACK_OFF_MS} ms")
            configs = {"retry.backoff.ms": str(BACK_OFF_MS)}
            took = _bounce(broker, process, "back-off", 4, rounds, configs, together=True)
            numbers["back-off of 500 ms, early ms"] = max(0.0, BACK_OFF_MS - min(took))
            numbers["back-off of 500 ms, late p50 ms"] = statistics.median(took) - BACK_OFF_MS
            numbers["back-off of 500 ms, late max ms"] = max(took) - BACK_OFF_MS
    return numbers


def _bounce(
    broker: BrokerProcess,
    process: ShareProcess,
    name: str,
    members: int,
    rounds: int,
    configs: dict[str, str],
    *,
    together: bool = False,
) -> list[float]:
    """Each message is released once: the ms from just before the release is sent to the record. One after
    the other, or all at once."""
    writer = make(broker, name, **configs)
    process.join(name, name, members=members, count=rounds, deed="bounce", settings=ONE_AT_A_TIME)
    if together:
        writer.write(rounds)
    took = []
    for _ in range(rounds):
        if not together:
            writer.write(1)
        took.append(int(process.expect("bounced")[1]) / MILLISECOND)
    process.leave()
    return took


def _lost(run: Run) -> Numbers:
    with run.column.broker() as broker, ShareProcess(broker.bootstrap) as watcher:
        holders = [ShareProcess(broker.bootstrap) for _ in range(HOLDERS)]
        try:
            took = _kill_all(make(broker, "lost"), holders, watcher)
        finally:
            for holder in holders:
                holder.kill()
    return {"with another, p50 ms": statistics.median(took), "with another, max ms": max(took)}


def _kill_all(writer: Writer, holders: list[ShareProcess], watcher: ShareProcess) -> list[float]:
    """Each holds one message and is killed, which closes its socket; another waits in a poll."""

    def join(holder: ShareProcess) -> None:
        holder.join("lost", "lost", count=HOLDERS, deed="hold", settings=ONE_AT_A_TIME)

    with ThreadPoolExecutor(HOLDERS) as pool:
        list(pool.map(join, holders))
    writer.write(HOLDERS)
    held = [int(holder.expect("held")[0]) for holder in holders]
    watcher.join("lost", "lost", count=HOLDERS, deed="watch")
    took = []
    for holder, number in zip(holders, held, strict=True):
        began = time.monotonic()
        holder.kill()
        found, count, at = map(int, watcher.expect("record"))
        if (found, count) != (number, 2):
            raise RuntimeError(f"message {found} came, delivery {count}; {number} was held")
        took.append((at / 1e9 - began) * 1000)
    return took


def _spread(columns: Columns) -> float:
    numbers = columns["kumquat"]
    return numbers["32 consumers, s"] * 32 / numbers["1 consumers, s"]


SHARES = [
    Scenario(
        "share-drain",
        "300,000 of 200 B, share consumers, implicit acknowledgement",
        _drain,
        [
            *[ratio(f"{members} consumers, msg/s", "kafka", at_least=1.0) for members in DRAINERS],
            *[ratio(f"{members} consumers, CPU s", "kafka", at_most=1.0) for members in DRAINERS],
            share("16 consumers, msg/s", "4 consumers, msg/s", at_least=1.0),
        ],
        columns=COLUMNS,
    ),
    Scenario(
        "share-handler",
        "5,000 messages, a handler of 5 ms, share consumers",
        _handlers,
        [Floor("32 consumers, time ÷ a 32nd of the time of one", 1.2, False, _spread)],
        columns=COLUMNS,
    ),
    Scenario(
        "share-start",
        "A share consumer's start, warm JVM",
        _start,
        [own("first record, max ms", at_most=1000)],
        columns=COLUMNS,
    ),
    Scenario(
        "share-release",
        "A release to the next delivery",
        _release,
        [
            own("to itself, p99 ms", at_most=20),
            own("two members, p99 ms", at_most=20),
            own("back-off of 500 ms, early ms", at_most=0),
            own("back-off of 500 ms, late max ms", at_most=100),
        ],
        columns=COLUMNS,
    ),
    Scenario(
        "share-lost",
        "A share consumer is killed with -9 while it holds a message",
        _lost,
        [own("with another, max ms", at_most=200)],
        columns=COLUMNS,
    ),
]
