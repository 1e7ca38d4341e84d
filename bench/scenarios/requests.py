"""Requests per second and their latency: one record of 100 B in each request, by raw sockets.

"Pipelined" is 8 connections with up to 64 requests in flight on each. A request's latency is then
also that of the requests in front of it, so beside a producer at full speed it is measured with 5 in
flight too, the most that clients send by default.
"""

from __future__ import annotations

import os

from bench.load import client, topics
from bench.load import requests as load
from bench.scenario import Numbers, Run, Scenario, own, ratio

_FULL_SPEED = 1_000_000_000
"""Records: more than any run gets to."""


def _requests(run: Run) -> Numbers:
    numbers: Numbers = {}
    with run.column.broker() as broker:
        for acks, name in ((1, "1"), (-1, "all")):
            topic = f"requests-{name}"
            topics.make(broker.port, [topic])
            os.sync()
            run.say(f"pipelined requests, acks={name}")
            done = load.run(
                load.Pipelined(
                    broker.port, broker.pid, [topic], acks, run.scale.seconds, run.scale.warm_up
                )
            )
            numbers[f"acks={name}, requests/s"] = done.requests_per_second
            numbers[f"acks={name}, CPU µs per request"] = done.cpu_microseconds
    return numbers


def _beside(run: Run) -> Numbers:
    numbers: Numbers = {}
    with run.column.broker() as broker:
        topics.make(broker.port, ["loud", "beside-64", "beside-5"])
        os.sync()
        loud = client.start(
            client.Produce(broker.bootstrap, broker.pid, "loud", _FULL_SPEED, 1024, "1")
        )
        try:
            for window, chunk in ((64, 16), (5, 1)):
                run.say(f"acks=all, {window} in flight, beside a producer at full speed")
                done = load.run(
                    load.Pipelined(
                        broker.port,
                        broker.pid,
                        [f"beside-{window}"],
                        -1,
                        run.scale.seconds,
                        run.scale.warm_up / 2,
                        window=window,
                        chunk=chunk,
                    )
                )
                numbers[f"{window} in flight, requests/s"] = done.requests_per_second
                numbers[f"{window} in flight, p50 ms"] = done.p50_ms
                numbers[f"{window} in flight, p99 ms"] = done.p99_ms
        finally:
            loud.kill()
    return numbers


def _one_by_one(run: Run) -> Numbers:
    numbers: Numbers = {}
    with run.column.broker() as broker:
        for acks, name in ((1, "1"), (-1, "all")):
            topic = f"one-{name}"
            topics.make(broker.port, [topic])
            os.sync()
            run.say(f"one at a time, acks={name}")
            done = load.run(
                load.OneByOne(broker.port, topic, acks, run.scale.seconds, run.scale.warm_up)
            )
            numbers[f"acks={name}, p50 ms"] = done.p50_ms
            numbers[f"acks={name}, p99 ms"] = done.p99_ms
    return numbers


REQUESTS = [
    Scenario(
        "requests",
        "One record a request, pipelined over 8 connections",
        _requests,
        [
            ratio("acks=1, requests/s", "kafka", at_least=1.5),
            ratio("acks=all, requests/s", "kafka", at_least=1.0),
            ratio("acks=all, requests/s", "kafka-synced", at_least=5.0),
        ],
    ),
    Scenario(
        "requests-beside",
        "The same with acks=all, beside another producer at full speed with acks=1",
        _beside,
        [own("64 in flight, p99 ms", at_most=50), own("5 in flight, p99 ms", at_most=50)],
    ),
    Scenario(
        "one-by-one",
        "One record at a time, waiting for the answer",
        _one_by_one,
        [
            ratio("acks=1, p50 ms", "kafka", at_most=1.0),
            ratio("acks=1, p99 ms", "kafka", at_most=1.0),
            ratio("acks=all, p50 ms", "kafka-synced", at_most=1.0),
            ratio("acks=all, p99 ms", "kafka-synced", at_most=1.0),
        ],
    ),
]
