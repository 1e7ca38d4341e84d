"""A history that holds clients up, fails their requests, grows without a bound, or hides what it lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kumquat.gateway.history.buffer import Buffer
from kumquat.gateway.history.events import MISSED, MOST_RANGES, batches
from kumquat.gateway.history.recorder import Recorder
from kumquat.gateway.history.tests.told import brief, told
from kumquat.gateway.metrics.exposition import render
from kumquat.gateway.tests.harness import IO_ERROR, NO_SPACE, Served, produce, serve
from kumquat.gateway.tests.sharing.test_sharing import fill
from kumquat.gateway.topics.table import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pytest

    from kumquat.gateway.history.events import Event


def test_a_fault_in_the_history_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 1)
        await told(served)

        def fault(events: Sequence[Event]) -> Iterator[bytearray]:
            raise ZeroDivisionError("a fault")

        with monkeypatch.context() as patched:
            patched.setattr("kumquat.gateway.history.service.batches", fault)
            await fill(served, "t", 1)
            served.clock.jump(1)
            await served.settled()
            statistics = served.broker.statistics().history
            assert statistics.failing == "ZeroDivisionError: a fault"
            assert "Traceback" in caplog.text, "it is a fault: somebody has to mend it"
            await fill(served, "t", 1)  # clients do not notice
        served.clock.jump(2)
        await served.settled()
        assert brief(await told(served), "count") == [
            ("produced", [[0, 1]], None),
            ("produced", [[2, 1]], None),
            ("missed", None, 1),
        ]

    serve(check, tmp_path)


def test_a_full_disk_drops_the_history_and_tells_how_much(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 1)
        await told(served)
        await fill(served, "t", 1, 1)
        served.files.write_error = NO_SPACE
        for _ in range(3):
            await served.broker.history.flush()
        statistics = served.broker.statistics().history
        assert statistics.failing is not None
        assert "No space left" in statistics.failing
        assert statistics.missed == 2
        scraped = (await render(served.broker)).decode()
        assert "kumquat_history_missed_total 2.0\n" in scraped
        assert "kumquat_history_failing 1.0\n" in scraped
        assert "the history of messages cannot be written" in caplog.text
        served.files.write_error = None
        await fill(served, "t", 1)
        assert brief(await told(served), "count") == [
            ("produced", [[0, 1]], None),
            ("produced", [[3, 1]], None),
            ("missed", None, 2),
        ]
        assert served.broker.statistics().history.failing is None
        assert served.broker.statistics().history.missed == 2

    serve(check, tmp_path)


def test_a_fenced_log_stops_the_history_and_a_stop_does_not_wait_for_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 1)
        await told(served)
        async with served.client() as client:
            served.files.sync_error = IO_ERROR
            await client.call(produce("t", b"never synced"), 9)
        await served.broker.history.flush()
        failing = served.broker.statistics().history.failing
        assert failing is not None

        for _ in range(3):
            served.clock.jump(2)
            await served.settled()
            assert served.broker.statistics().history.failing == failing

    serve(check, tmp_path)


def test_a_subject_that_cannot_be_made_is_made_later(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        subject = served.broker.log.subjects.by_name["t"]
        served.files.write_error = NO_SPACE
        await served.broker.subjects.alter(subject, {"history": "all"})  # SQL has room
        await served.broker.history.flush()
        assert served.broker.statistics().history.failing
        assert ACTIONS not in served.broker.log.subjects.by_name
        served.files.write_error = None
        await served.settled()
        served.clock.jump(2)
        await served.settled()
        assert ACTIONS in served.broker.log.subjects.by_name
        await fill(served, "t", 1)
        assert brief(await told(served)) == [("produced", [[0, 1]])]

    serve(check, tmp_path)


def test_a_sync_that_hangs_holds_no_client_up(tmp_path: Path) -> None:
    """acks=1 is answered when it is written; the history waits for nobody, and nobody for it."""

    async def check(served: Served) -> None:
        await served.create("t", history="all")
        await fill(served, "t", 1)
        await told(served)
        served.files.hold_syncs()
        async with served.client() as client:
            for _ in range(20):
                await client.call(produce("t", b"x", acks=1), 9)
                served.clock.jump(0.2)
        served.files.release_syncs()
        assert len(await told(served, "t", "produced")) == 21

    serve(check, tmp_path)


def test_a_full_buffer_drops_and_counts_by_subject(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("a", history="all")
        await served.create("b", history="all")
        await told(served)
        async with served.client() as client:
            await client.send(*[(produce("a", b"x"), 9)] * 150)
            for _ in range(150):
                await client.receive()
            await client.call(produce("b", b"x"), 9)
        events = await told(served)
        produced = [e for e in events if e["event"] == "produced"]
        missed = {e["subject"]: e["count"] for e in events if e["event"] == "missed"}
        assert len(produced) == 100
        assert missed == {"a": 50, "b": 1}
        assert served.broker.statistics().history.missed == 51

    serve(check, tmp_path, history_buffer_events=100)


def test_an_event_about_very_many_ranges_fills_the_buffer_as_what_it_is(tmp_path: Path) -> None:
    buffer = Buffer(lambda: 1, 1_000)
    buffer.add(1, "acked", "t", [[2 * n, 1] for n in range(2 * MOST_RANGES + 1)], {})
    assert len(buffer) == 2
    assert buffer.missed == 1
    *kept, missed = buffer.take()
    assert [len(ranges or ()) for _, _, _, ranges, _ in kept] == [MOST_RANGES, MOST_RANGES]
    assert missed[1] == MISSED
    buffer.add(1, "acked", "t", [[0, 1]], {})
    assert len(buffer) == 1, "what was taken leaves room"


def test_lists_of_schedule_ids_outgrow_the_bound_of_the_buffer() -> None:
    """One range, and five hundred ids and times: a thousand such events are not a thousand small ones."""
    nothing, most = cast("Any", None), 10_000
    buffer = Buffer(lambda: 1, most)
    recorder = Recorder(nothing, nothing, lambda: 1, buffer)
    subject: Any = SimpleNamespace(name="t", config=SimpleNamespace(history=1))
    recorder.delivered(
        subject, 0, range(3 * most), {schedule_id: schedule_id for schedule_id in range(3 * most)}
    )
    *kept, _ = buffer.take()
    assert sum(len(fields["schedule_id"]) for *_, fields in kept) == most


def test_a_delivery_without_a_due_time_fails_after_it_was_written() -> None:
    """Its messages would be delivered once more."""
    nothing, buffer = cast("Any", None), Buffer(lambda: 1, 100)
    subject: Any = SimpleNamespace(name="t", config=SimpleNamespace(history=1))
    Recorder(nothing, nothing, lambda: 1, buffer).delivered(subject, 0, [7, 8], {7: 1})
    assert [event[1] for event in buffer.take()] == [MISSED]


def test_subjects_without_number_do_not_make_the_count_of_what_was_missed_grow() -> None:
    buffer = Buffer(lambda: 1, 1)
    buffer.add(1, "produced", "t", [[0, 1]], {})
    for n in range(5_000):
        buffer.miss(f"t{n}", 1)
    missed = buffer.take()[1:]
    assert len(missed) == 1_001
    assert sum(fields["count"] for *_, fields in missed) == 5_000
    buffer.lost(missed)
    assert buffer.missed == 5_000, "what is missed is counted once, however often it is told"


def test_events_become_batches_that_a_log_takes() -> None:
    """Very many that are alike compress to almost nothing: the log must not refuse them."""
    from kumquat.core.records.batch import check

    events = [(1, "produced", "t", [[0, 1]], {"producer": None})] * 50_000
    made = list(batches(events))
    assert sum(check(memoryview(batch)).record_count for batch in made) == 50_000
    assert max(map(len, made)) < 1 << 20
