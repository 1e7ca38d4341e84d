"""Delayed messages: how late, how fast, how much memory and disk, a burst, the plain path, a restart.

Kafka has none, so the column beside is RocketMQ 5.5.0, which a user would choose instead. It is not run
here: its figures are those of one run on a machine of this size (2 cores, 24 GB, heap 1.5 GB, Java 17,
defaults, its own Java client on the same machine). They only show the order of magnitude.

Memory is the broker's resident set: what a further million adds to it, after a first one has filled
buffers and caches. Messages that are due later must add nothing; those that are due within the hour add
their entries in the wheel.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import time
from typing import TYPE_CHECKING

from bench.brokers import proc
from bench.brokers.process import free_ports
from bench.load import client, scheduling, topics
from bench.scenario import Columns, Floor, Numbers, Run, Scenario, own

if TYPE_CHECKING:
    from bench.brokers.process import BrokerProcess

SIZE = 200
HOUR = 3_600_000
DAY = 24 * HOUR
YEAR = 365 * DAY
LEAD_MS = 5_000
"""Between scheduling and the first due time, so that the two are measured apart."""
AROUND_MS = 1_500
"""How long after the instant of a burst other requests are measured."""
PATIENCE_SECONDS = 60.0
REST_SECONDS = 2.0
"""A broker that used less than a tenth of a core for so long is at rest."""
COUNTS = 20
TURNS = 3

ROCKETMQ: dict[str, Numbers] = {
    "delay-lateness": {
        "received, p50 ms": 580,
        "received, p99 ms": 1090,
        "received, max ms": 1240,
    },
    "delay-schedule": {"messages/s": 10_600, "disk, B each": 1300},
    "delay-burst": {"the last, ms after the instant": 980},
}
"""Not synced; 1,000 in flight. Its burst was of 20,000: the last came 0.86 to 1.1 s after the instant."""


def _quoted(run: Run, name: str) -> Numbers | None:
    return ROCKETMQ[name] if run.column.key == "rocketmq" else None


def _lateness(run: Run) -> Numbers:
    if (quoted := _quoted(run, "delay-lateness")) is not None:
        return quoted
    count, seconds = run.scale.delayed, run.scale.delayed_seconds
    with run.column.broker() as broker:
        topics.make(broker.port, ["late"])
        run.say(f"{count:,} messages due over {seconds} s")
        work = scheduling.Receive(broker.bootstrap, "late", count, PATIENCE_SECONDS)
        receiver = scheduling.receive(work)
        cpu = broker.cpu_seconds()
        latest = LEAD_MS + 1000 * seconds
        scheduling.schedule(
            scheduling.Schedule(broker.port, broker.pid, "late", count, SIZE, LEAD_MS, latest)
        )
        got = receiver.finish()
        cpu = broker.cpu_seconds() - cpu
    return {
        "received, p50 ms": got.p50_ms,
        "received, p99 ms": got.p99_ms,
        "received, p99.9 ms": got.p999_ms,
        "received, max ms": got.max_ms,
        "delivered, p50 ms": got.stamped_p50_ms,
        "delivered, p99 ms": got.stamped_p99_ms,
        "delivered, max ms": got.stamped_max_ms,
        "broker CPU µs, scheduled and delivered": cpu / count * 1e6,
    }


def _schedule(run: Run) -> Numbers:
    if (quoted := _quoted(run, "delay-schedule")) is not None:
        return quoted
    count = run.scale.scheduled
    with run.column.broker() as broker:
        topics.make(broker.port, ["many"])

        def put(records: int, least: int, most: int) -> tuple[scheduling.Scheduled, float]:
            """And by how many bytes each the broker grew."""
            before = _settled(broker)
            work = scheduling.Schedule(broker.port, broker.pid, "many", records, SIZE, least, most)
            done = scheduling.schedule(work)
            return done, (_settled(broker) - before) / done.records

        put(count, 2 * DAY, YEAR)
        os.sync()
        run.say(f"{count:,} due over a year")
        far, far_bytes = put(count, 2 * DAY, YEAR)
        run.say(f"{count:,} due within the hour")
        near, near_bytes = put(count, HOUR // 3, HOUR // 2)
        broker.stop()  # reserved disk space that is not used is given back
        on_disk = _on_disk(broker)
    return {
        "messages/s": far.records / far.seconds,
        "broker CPU µs each": far.cpu_seconds / far.records * 1e6,
        "memory, B each": far_bytes,
        "disk, B each": on_disk / (3 * count),
        "within the hour, messages/s": near.records / near.seconds,
        "within the hour, memory, B each": near_bytes,
    }


def _settled(broker: BrokerProcess) -> int:
    """Resident bytes when the broker has come to rest: it files what it was given, which takes memory."""
    end = time.monotonic() + PATIENCE_SECONDS
    spent = -1.0
    while time.monotonic() < end and broker.cpu_seconds() - spent > REST_SECONDS / 10:
        spent = broker.cpu_seconds()
        time.sleep(REST_SECONDS)
    return proc.resident_bytes(broker.pid)


def _on_disk(broker: BrokerProcess) -> int:
    """The log and the schedule files, as long as they are."""
    return sum(
        path.stat().st_size for path in (broker.folder / "data").rglob("*") if path.is_file()
    )


def _burst(run: Run) -> Numbers:
    if (quoted := _quoted(run, "delay-burst")) is not None:
        return quoted
    count = run.scale.delayed
    with run.column.broker() as broker:
        topics.make(broker.port, ["burst", "others"])
        instant = scheduling.now_ms() + LEAD_MS + count // 20
        run.say(f"{count:,} due in one instant")
        scheduling.schedule(
            scheduling.Schedule(broker.port, broker.pid, "burst", count, SIZE, at_ms=instant)
        )
        if scheduling.now_ms() > instant - 2000:
            raise RuntimeError("scheduling took until the instant: nothing was measured")
        work = scheduling.Receive(broker.bootstrap, "burst", count, PATIENCE_SECONDS)
        receiver = scheduling.receive(work)
        end = instant + AROUND_MS
        others = scheduling.others(scheduling.Others(broker.port, "others", instant, end))
        waited, got = others.finish(), receiver.finish()
    return {
        "the last, ms after the instant": got.stamped_max_ms,
        "received, the last, ms after the instant": got.max_ms,
        "produce of others, p50 ms": waited.p50_ms,
        "produce of others, p99 ms": waited.p99_ms,
        "produce of others, max ms": waited.max_ms,
    }


def _plain(run: Run) -> Numbers:
    """On and off take turns; the best of each counts, since other load only makes it slower."""
    records = run.scale.megabytes * 1_000_000 // 1024 // 2
    rates: dict[str, list[float]] = {"true": [], "false": []}
    spent: dict[str, list[float]] = {"true": [], "false": []}
    for _ in range(TURNS):
        for enabled in rates:
            with run.column.broker({"delay.enabled": enabled}) as broker:
                topics.make(broker.port, ["plain"])
                os.sync()
                run.say(f"{records:,} plain records, delay.enabled={enabled}")
                work = client.Produce(
                    broker.bootstrap,
                    broker.pid,
                    "plain",
                    records,
                    1024,
                    "1",
                    warm_up=records // 2,
                )
                done = client.run(work)
            rates[enabled].append(done.megabytes_per_second)
            spent[enabled].append(done.cpu_per_gigabyte)
    return {
        "on, MB/s": max(rates["true"]),
        "off, MB/s": max(rates["false"]),
        "on, CPU s per GB": min(spent["true"]),
        "off, CPU s per GB": min(spent["false"]),
    }


def _pending(run: Run) -> Numbers:
    count = run.scale.pending
    (port,) = free_ports(1)
    broker = run.column.broker({"admin.listener": f"HTTP://127.0.0.1:{port}"})
    try:
        broker.start()
        topics.make(broker.port, ["year"])
        run.say(f"{count:,} due over a year")
        scheduling.schedule(
            scheduling.Schedule(broker.port, broker.pid, "year", count, SIZE, HOUR, YEAR)
        )
        numbers: Numbers = {}
        for how, end in (("kill -9", broker.kill), ("stop", broker.stop)):
            run.say(f"restart after {how}")
            end()
            numbers[f"restart after {how}, s"] = broker.start(300)
            counted = [_count(port, count) for _ in range(COUNTS)]
            numbers[f"count after {how}, the first, ms"] = counted[0]
            numbers[f"count after {how}, median, ms"] = statistics.median(counted)
        numbers["resident, MB"] = proc.resident_bytes(broker.pid) / 1e6
        numbers["open files"] = proc.open_files(broker.pid)
    finally:
        broker.__exit__()
    return numbers


def _count(port: int, expected: int) -> float:
    """Milliseconds of one request for the pending of the subject."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        began = time.perf_counter()
        connection.request("GET", "/delay/count?subject=year")
        found = json.load(connection.getresponse())
        milliseconds = (time.perf_counter() - began) * 1000
    finally:
        connection.close()
    if found.get("count") != expected:
        raise RuntimeError(f"{expected} are pending, the answer says {found}")
    return milliseconds


def _slower(columns: Columns) -> float:
    numbers = columns["kumquat"]
    return numbers["on, CPU s per GB"] / numbers["off, CPU s per GB"]


DELAY = [
    Scenario(
        "delay-lateness",
        "100,000 of 200 B due over a minute: how late",
        _lateness,
        [own("received, p50 ms", at_most=5), own("received, p99 ms", at_most=20)],
        columns=("kumquat", "rocketmq"),
    ),
    Scenario(
        "delay-schedule",
        "Schedule 1,000,000 of 200 B in batches, acks=all",
        _schedule,
        [
            Floor("messages/s", 100_000, True, lambda c: c["kumquat"]["messages/s"]),
            own("within the hour, memory, B each", at_most=40),
            own("memory, B each", at_most=8),
            own("disk, B each", at_most=600),
        ],
        columns=("kumquat", "rocketmq"),
    ),
    Scenario(
        "delay-burst",
        "100,000 of 200 B due in one instant",
        _burst,
        [
            own("the last, ms after the instant", at_most=1000),
            own("produce of others, p99 ms", at_most=50),
        ],
        columns=("kumquat", "rocketmq"),
    ),
    Scenario(
        "delay-plain",
        "Plain 1 KiB records, acks=1, with delay.enabled on and off",
        _plain,
        [Floor("on ÷ off, CPU s per GB", 1.03, False, _slower)],
        columns=("kumquat",),
    ),
    Scenario(
        "delay-pending",
        "10,000,000 pending over a year",
        _pending,
        [
            own("restart after kill -9, s", at_most=3),
            own("count after kill -9, median, ms", at_most=10),
        ],
        columns=("kumquat",),
    ),
]
