"""A load generator that miscounts, or takes errors for answers, must fail and not report a rate."""

from __future__ import annotations

import pytest

from bench.load import requests as load
from bench.load import topics
from kumquat.gateway.testing.broker import broker


def test_every_answered_request_is_counted_and_checked_against_the_log() -> None:
    with broker() as running:
        names = [f"topic-{index:02}" for index in range(20)]
        topics.make(running.port, names)
        for acks, window, chunk in ((1, 64, 16), (-1, 5, 1)):
            work = load.Pipelined(
                running.port, running.pid, names, acks, 0.2, 0.0, window=window, chunk=chunk
            )
            done = load.run(work)
            assert done.requests > 0
            assert 0 < done.p50_ms <= done.p99_ms <= done.max_ms


def test_errors_are_not_counted_as_work(capfd: pytest.CaptureFixture[str]) -> None:
    with broker() as running:
        work = load.Pipelined(running.port, running.pid, ["not-there"], 1, 0.2, 0.0)
        with pytest.raises(RuntimeError, match="ended with 1"):
            load.run(work)
    assert "error code 3" in capfd.readouterr().err
