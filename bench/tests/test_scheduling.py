"""A load of delayed messages that loses some, or takes errors for answers, must fail and not report."""

from __future__ import annotations

import pytest

from bench.load import scheduling, topics
from bench.load.scheduling import IN_A_BATCH, Others, Receive, Schedule, now_ms
from kumquat.gateway.testing.broker import broker


def test_all_that_is_scheduled_is_received_and_others_are_timed_meanwhile() -> None:
    with broker() as running:
        topics.make(running.port, ["late", "others"])
        records = 3 * IN_A_BATCH
        receiver = scheduling.receive(Receive(running.bootstrap, "late", records, 60))
        others = scheduling.others(Others(running.port, "others", 0, now_ms() + 3000))
        work = Schedule(running.port, running.pid, "late", records, 50, 0, 300)
        assert scheduling.schedule(work).records == records
        got, waited = receiver.finish(), others.finish()
        assert 0 <= got.p50_ms <= got.p99_ms <= got.p999_ms <= got.max_ms
        assert 0 <= got.stamped_p50_ms <= got.stamped_p99_ms <= got.stamped_max_ms
        assert waited.p50_ms <= waited.p99_ms <= waited.max_ms


def test_refused_schedules_are_not_counted_as_work(capfd: pytest.CaptureFixture[str]) -> None:
    with broker(delay_max_ms=1000) as running:
        topics.make(running.port, ["late"])
        work = Schedule(running.port, running.pid, "late", IN_A_BATCH, 50, 2000, 3000)
        with pytest.raises(RuntimeError, match="ended with 1"):
            scheduling.schedule(work)
    assert "error code 87" in capfd.readouterr().err
