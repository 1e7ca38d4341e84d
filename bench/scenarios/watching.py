"""What it costs others to look at a broker with many subjects: three open consoles, and Prometheus.

The latency of a producer that waits for each answer is measured in turns, without and with consoles, and
the medians of the turns are compared: on a shared machine a single pair says little.
"""

from __future__ import annotations

import statistics
import time

from bench.brokers import proc
from bench.brokers.process import free_ports
from bench.load import consoles, topics
from bench.load import requests as load
from bench.scenario import Numbers, Run, Scenario, own, share

TURNS = 5
SCRAPES = 10
SCRAPE_SECONDS = 15
"""How often Prometheus asks, by its default."""


def _watching(run: Run) -> Numbers:
    port, few, all_ = free_ports(1)[0], run.scale.many_subjects, run.scale.most_subjects
    names = [f"subject-{number}" for number in range(all_)]
    numbers: Numbers = {}
    with run.column.broker({"admin.listener": f"HTTP://127.0.0.1:{port}"}) as broker:
        topics.make(broker.port, names[:few])
        run.say(f"{SCRAPES} scrapes of {few:,} subjects")
        numbers["scrape, % of a core at one in 15 s"] = _scrape(broker.pid, port)
        run.say(f"{all_:,} subjects")
        topics.make(broker.port, names[few:])
        began = time.perf_counter()
        status, page = consoles.get(port, "/")
        if status != 200 or b"Kumquat" not in page:
            raise RuntimeError(f"the console was answered {status}")
        numbers["first page, ms"] = (time.perf_counter() - began) * 1e3
        alone: list[load.Loaded] = []
        watched: list[load.Loaded] = []
        for turn in range(TURNS):
            run.say(f"one record at a time, without and with consoles: {turn + 1} of {TURNS}")
            alone.append(_produce(run, broker.port))
            with consoles.opened(port):
                watched.append(_produce(run, broker.port))
    for name, found in (("alone", alone), ("three consoles", watched)):
        numbers[f"{name}, p50 ms"] = statistics.median(one.p50_ms for one in found)
        numbers[f"{name}, p99 ms"] = statistics.median(one.p99_ms for one in found)
    return numbers


def _produce(run: Run, port: int) -> load.Loaded:
    return load.run(load.OneByOne(port, "subject-0", 1, run.scale.seconds / 2, 0.5))


def _scrape(pid: int, port: int) -> float:
    consoles.get(port, "/metrics")
    cpu = proc.cpu_seconds(pid)
    for _ in range(SCRAPES):
        status, text = consoles.get(port, "/metrics")
        if status != 200 or b"kafka_topic_partition_current_offset" not in text:
            raise RuntimeError(f"/metrics was answered {status}")
    return (proc.cpu_seconds(pid) - cpu) / SCRAPES / SCRAPE_SECONDS * 100


WATCHING = [
    Scenario(
        "watching",
        "Prometheus asks, with 10,000 subjects; three consoles are open, with 100,000",
        _watching,
        [
            own("first page, ms", at_most=200),
            own("scrape, % of a core at one in 15 s", at_most=1),
            share("three consoles, p99 ms", "alone, p99 ms", at_most=1.05),
        ],
        columns=("kumquat",),
    )
]
