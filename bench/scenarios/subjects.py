"""Many subjects: files, restarts, the rate of produce, memory, and who waits for a full Metadata.

The rate is that of one-record requests which take the subjects in turn, so that requests have one
shape for any number of subjects; a client that batches would have less to batch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.brokers import proc
from bench.load import frames, topics
from bench.load import requests as load
from bench.scenario import Numbers, Run, Scenario, own, share

if TYPE_CHECKING:
    from bench.brokers.process import BrokerProcess

_FEW = 10
_RESTART_SECONDS = 300
_FILES = 1024


def _rate(run: Run, broker: BrokerProcess, names: list[str]) -> float:
    work = load.Pipelined(
        broker.port, broker.pid, names, 1, run.scale.seconds / 2, run.scale.warm_up / 2
    )
    return load.run(work).requests_per_second


def _many(run: Run) -> Numbers:
    count = run.scale.many_subjects
    numbers: Numbers = {}
    broker = run.column.broker()
    try:
        broker.start()
        few = [f"few-{index:06}" for index in range(_FEW)]
        topics.make(broker.port, few)
        numbers["open files with 10"] = proc.open_files(broker.pid)
        run.say("rate with 10 subjects")
        numbers["produce to 10, requests/s"] = _rate(run, broker, few)
        run.say(f"making {count:,} subjects")
        names = [f"sub-{index:06}" for index in range(count)]
        began = time.perf_counter()
        topics.make(broker.port, names)
        numbers["made, subjects/s"] = count / (time.perf_counter() - began)
        run.say(f"writing 9 more messages to each of {count:,} subjects")
        topics.write_each(broker.port, names, 9)
        numbers["open files with all"] = proc.open_files(broker.pid)
        numbers["resident, MB"] = proc.resident_bytes(broker.pid) / 1e6
        run.say(f"rate with {count:,} subjects")
        numbers["produce to all, requests/s"] = _rate(run, broker, names)
        run.say("restart")
        broker.stop()
        numbers["restart, s"] = broker.start(_RESTART_SECONDS)
        run.say("restart after kill -9")
        topics.write_each(broker.port, names[:100], 1)
        broker.kill()
        numbers["restart after kill -9, s"] = broker.start(_RESTART_SECONDS)
    finally:
        broker.__exit__()
    return numbers


def _most(run: Run) -> Numbers:
    count = run.scale.most_subjects
    numbers: Numbers = {}
    broker = run.column.broker()
    broker.file_limit = _FILES
    try:
        broker.start()
        run.say(f"making {count:,} subjects under ulimit -n {_FILES}")
        names = [f"sub-{index:06}" for index in range(count)]
        began = time.perf_counter()
        topics.make(broker.port, names)
        numbers["made, subjects/s"] = count / (time.perf_counter() - began)
        numbers["resident, MB"] = proc.resident_bytes(broker.pid) / 1e6
        numbers["open files"] = proc.open_files(broker.pid)
        run.say("full Metadata while another connection waits for small answers")
        numbers |= _stalls(run, broker)
        numbers["resident afterwards, MB"] = proc.resident_bytes(broker.pid) / 1e6
        run.say("restart")
        broker.stop()
        numbers["restart, s"] = broker.start(_RESTART_SECONDS)
        broker.kill()
        numbers["restart after kill -9, s"] = broker.start(_RESTART_SECONDS)
    finally:
        broker.__exit__()
    return numbers


def _stalls(run: Run, broker: BrokerProcess) -> Numbers:
    quiet = load.run(load.Ping(broker.port, run.scale.seconds / 2))
    with load.connect(broker.port) as connection:
        # The first answer may build what later ones use: it counts too.
        pinging = load.start(load.Ping(broker.port, run.scale.seconds))
        slowest, answers = 0.0, 0
        while pinging.process.poll() is None:
            began = time.perf_counter()
            connection.sendall(frames.all_topics_request())
            size = len(frames.receive(connection))
            slowest = max(slowest, time.perf_counter() - began)
            answers += 1
        pinged = pinging.finish()
    return {
        "full Metadata, MB": size / 1e6,
        "full Metadata answers": answers,
        "slowest full Metadata, ms": slowest * 1e3,
        "longest wait without it, ms": quiet.max_ms,
        "longest wait beside it, ms": pinged.max_ms,
        "p99 wait beside it, ms": pinged.p99_ms,
    }


SUBJECTS = [
    Scenario(
        "many-subjects",
        "10,000 subjects with 10 messages each",
        _many,
        [
            share("open files with all", "open files with 10", at_most=1.0),
            own("restart, s", at_most=2.0),
            own("restart after kill -9, s", at_most=3.0),
            share("produce to all, requests/s", "produce to 10, requests/s", at_least=0.8),
        ],
        columns=("kumquat", "kafka"),
    ),
    Scenario(
        "most-subjects",
        "100,000 subjects under ulimit -n 1024",
        _most,
        [
            own("resident afterwards, MB", at_most=500),
            own("open files", at_most=1024),
            own("longest wait beside it, ms", at_most=20),
        ],
        columns=("kumquat",),
    ),
]
