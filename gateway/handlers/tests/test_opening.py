"""Batches that have to be opened: order, answers and failures, whatever else their request and burst hold.

The delay service here is a fake that stores each batch as it came, when it is told to go on: what is
tried is the way of a request there and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from kumquat.core.errors import InvalidRecord, KumquatError
from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.handlers.common.produce_template import Template
from kumquat.gateway.net.repeats import ToOpen
from kumquat.gateway.net.tests.test_connection import alive
from kumquat.gateway.tests.harness import IO_ERROR, NO_SPACE, Served, produce, serve
from kumquat.gateway.wire import (
    ApiVersionsRequest,
    ErrorCode,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.logs.messages.writer import Appended
    from kumquat.core.records.look import Look

LATER = b"qmq-delay-ms"
"""A batch with these bytes in it has to be opened."""


class FakeDelay:
    def __init__(self, served: Served) -> None:
        self._log = served.broker.log
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.go = trio.Event()
        self.go.set()

    def hold(self) -> None:
        self.go = trio.Event()

    async def count(self, subject: Subject, due_from: int, due_to: int) -> int:
        return 0

    async def produce(self, subject: Subject, data: memoryview, look: Look) -> Appended:
        self.asked.append(subject.name)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        appended = self._log.append_nowait(subject, data, look.head)
        self._log.write_nowait()
        return appended


def run(
    check: Callable[[Served, FakeDelay], Awaitable[None]], folder: Path, **options: Any
) -> None:
    async def prepared(served: Served) -> None:
        for name in ("a", "b", "c"):
            await served.create(name)
        delay = FakeDelay(served)
        served.broker.delay = delay  # type: ignore[assignment]
        await check(served, delay)

    serve(prepared, folder, **options)


def several(*parts: tuple[str, bytes], acks: int = -1) -> ProduceRequest:
    """One request with a batch for each of these topics."""
    return ProduceRequest(
        acks=acks,
        topic_data=[
            TopicProduceData(name, bytes(16), [PartitionProduceData(0, bytes(batch(value)))])
            for name, value in parts
        ],
    )


def outcomes(answer: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, partition.error_code, partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


def ends(served: Served) -> dict[str, int]:
    return {s.name: s.next_sequence for s in served.broker.log.subjects if s.next_sequence}


def test_requests_behind_one_that_is_opened_do_not_overtake_it(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.hold()
        async with served.client() as client, served.client() as other:
            await client.send(
                (produce("a", b"1"), 9),
                (produce("a", LATER), 9),
                (produce("a", b"3"), 9),
                (ApiVersionsRequest(), 0),
                (produce("a", b"4", acks=1), 9),
            )
            assert outcomes(await client.receive()) == [("a", 0, 0)]
            await served.settled()
            assert ends(served) == {"a": 1}
            assert outcomes(await other.call(produce("b", b"1"), 9)) == [("b", 0, 0)]
            delay.go.set()
            for offset in (1, 2):
                assert outcomes(await client.receive()) == [("a", 0, offset)]
            assert len((await client.receive()).api_keys) > 10
            assert outcomes(await client.receive()) == [("a", 0, 3)]

    run(check, tmp_path)


def test_all_batches_of_a_request_are_answered_in_their_places(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        async with served.client() as client:
            request = several(
                ("a", b"1"), ("nowhere", b"2"), ("b", LATER), ("c", b"3"), ("c", LATER), ("c", b"4")
            )
            nowhere = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert outcomes(await client.call(request, 9)) == [
                ("a", 0, 0),
                ("nowhere", nowhere, -1),
                ("b", 0, 0),
                ("c", 0, 0),
                ("c", 0, 1),
                ("c", 0, 2),
            ]
            assert delay.asked == ["b", "c"]

    run(check, tmp_path)


def test_a_batch_that_cannot_be_opened_harms_no_other_of_its_request(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.error = InvalidRecord("record 3: qmq-delay-ms is '-5'")
        async with served.client() as client:
            answer = await client.call(several(("a", b"1"), ("b", LATER), ("c", b"2")), 9)
            assert outcomes(answer) == [
                ("a", 0, 0),
                ("b", ErrorCode.INVALID_RECORD, -1),
                ("c", 0, 0),
            ]
            (refused,) = answer.responses[1].partition_responses
            assert refused.error_message == "record 3: qmq-delay-ms is '-5'"
            assert ends(served) == {"a": 1, "c": 1}

    run(check, tmp_path)


def test_what_was_staged_before_and_could_not_be_written_is_not_acked(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        async with served.client() as client:
            served.files.write_error = NO_SPACE
            await client.send(
                (produce("a", b"1", acks=1), 9), (several(("a", b"2"), ("b", LATER), acks=1), 9)
            )
            full = ErrorCode.KAFKA_STORAGE_ERROR
            assert outcomes(await client.receive()) == [("a", full, -1)]
            assert outcomes(await client.receive()) == [("a", full, -1), ("b", full, -1)]
            assert delay.asked == []
            assert ends(served) == {}
            served.files.write_error = None
            again = await client.call(several(("a", b"2"), ("b", LATER)), 9)
            assert outcomes(again) == [("a", 0, 0), ("b", 0, 0)]

    run(check, tmp_path)


def test_a_disk_that_fills_while_a_batch_is_opened_refuses_what_comes_behind_it(
    tmp_path: Path,
) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.hold()
        async with served.client() as client:
            await client.send((several(("a", b"1"), ("b", LATER), ("c", b"2")), 9))
            await served.settled()
            served.files.write_error = NO_SPACE
            delay.go.set()
            full = ErrorCode.KAFKA_STORAGE_ERROR
            assert outcomes(await client.receive()) == [
                ("a", 0, 0),
                ("b", full, -1),
                ("c", full, -1),
            ]
            assert ends(served) == {"a": 1}

    run(check, tmp_path)


@pytest.mark.parametrize("fails", [False, True])
def test_acks_all_waits_for_the_sync_of_what_was_opened(tmp_path: Path, fails: bool) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        async with served.client() as client:
            served.files.hold_syncs()
            await client.send((produce("a", LATER), 9))
            await served.settled()
            assert ends(served) == {"a": 1}
            (connection,) = served.acceptor.connections
            assert connection.pending == 1
            if fails:
                served.files.sync_error = IO_ERROR
            served.files.release_syncs()
            code = ErrorCode.KAFKA_STORAGE_ERROR if fails else 0
            ((_, answered, _),) = outcomes(await client.receive())
            assert answered == code

    run(check, tmp_path)


def test_acks_1_does_not_wait_for_the_sync_of_what_was_opened(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        async with served.client() as client:
            served.files.hold_syncs()
            answer = await client.call(produce("a", LATER, acks=1), 9)
            assert outcomes(answer) == [("a", 0, 0)]

    run(check, tmp_path)


def test_acks_0_is_not_answered_when_it_is_opened(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        async with served.client() as client:
            await client.stream.send_all(
                client.frame(several(("a", b"1"), ("b", LATER), acks=0), 9, answered=False)
            )
            assert await alive(client)
            assert ends(served) == {"a": 1, "b": 1}

    run(check, tmp_path)


def test_acks_0_that_cannot_be_opened_ends_the_connection_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.error = InvalidRecord("record 0: qmq-delay-ms is empty")
        async with served.client() as client:
            await client.send((produce("a", LATER, acks=0), 9))
            assert await client.closed()
        assert "Produce to 'a' with acks=0 failed: record 0: qmq-delay-ms is empty" in caplog.text

    run(check, tmp_path)


def test_a_failure_of_the_broker_is_answered_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.error = ZeroDivisionError("a slip")
        async with served.client() as client:
            answer = await client.call(produce("a", LATER), 9)
            assert outcomes(answer) == [("a", ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
            assert "a slip" in caplog.text
            assert await alive(client)

    run(check, tmp_path)


def test_a_topic_that_is_deleted_meanwhile_takes_no_more_batches(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.hold()
        async with served.client() as client:
            await client.send((several(("a", LATER), ("b", b"1"), ("c", LATER)), 9))
            await served.settled()
            for name in ("b", "c"):
                await served.broker.subjects.delete(served.broker.log.subjects.by_name[name])
            delay.go.set()
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert outcomes(await client.receive()) == [
                ("a", 0, 0),
                ("b", gone, -1),
                ("c", gone, -1),
            ]

    run(check, tmp_path)


def test_requests_that_repeat_are_opened_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[bool] = []
    stage = Template.stage

    def counted(self: Template, frame: memoryview) -> Any:
        slot = stage(self, frame)
        used.append(slot is not None and not isinstance(slot, ToOpen))
        return slot

    monkeypatch.setattr(Template, "stage", counted)

    async def check(served: Served, delay: FakeDelay) -> None:
        async with served.client() as client:
            values = [b"0", b"1", b"2", LATER, b"4", LATER, LATER, b"7"]
            await client.send(*[(produce("a", value), 9) for value in values])
            for offset in range(len(values)):
                assert outcomes(await client.receive()) == [("a", 0, offset)]
        assert len(delay.asked) == 3
        assert used.count(True) == 3, "plain batches no longer go the short way"

    run(check, tmp_path)


def test_a_client_that_leaves_while_its_batch_is_opened_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.hold()
        async with served.client() as client:
            await client.send((several(("a", LATER), ("b", b"1")), 9))
            await served.settled()
            for connection in served.acceptor.connections:
                connection.abort("the test says so")
            await served.settled()
        assert not served.acceptor.connections
        delay.go.set()
        async with served.client() as client:
            assert outcomes(await client.call(produce("b", b"1"), 9)) == [("b", 0, 0)]

    run(check, tmp_path)


def test_a_stop_answers_what_is_being_opened(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.hold()
        async with served.client() as client:
            await client.send((produce("a", LATER), 9))
            await served.settled()
            served.acceptor.stop()
            await served.settled()
            delay.go.set()
            assert outcomes(await client.receive()) == [("a", 0, 0)]
            assert await client.closed()

    run(check, tmp_path)


def test_a_client_is_not_idle_while_its_batch_is_opened(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.hold()
        async with served.client() as client:
            await client.send((produce("a", LATER), 9))
            await served.settled()
            served.clock.jump(3600)
            await served.settled()
            delay.go.set()
            assert outcomes(await client.receive()) == [("a", 0, 0)]

    run(check, tmp_path)


def test_a_subject_without_delay_takes_such_batches_as_they_are(tmp_path: Path) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        delay.error = KumquatError("it was asked")
        await served.create("plain", **{"delay.enabled": "false"})
        async with served.client() as client:
            assert outcomes(await client.call(produce("plain", LATER), 9)) == [("plain", 0, 0)]
        assert delay.asked == []

    run(check, tmp_path)


@pytest.mark.parametrize("enabled", [True, False])
def test_a_subjects_own_setting_wins_over_the_brokers_and_holds_at_once(
    tmp_path: Path, enabled: bool
) -> None:
    async def check(served: Served, delay: FakeDelay) -> None:
        subject = served.broker.log.subjects.by_name["a"]
        opposite = "false" if enabled else "true"
        async with served.client() as client:
            for setting, opened in ((None, enabled), (opposite, not enabled), (None, enabled)):
                await served.broker.subjects.alter(subject, {"delay.enabled": setting})
                delay.asked.clear()
                assert outcomes(await client.call(produce("a", LATER), 9))[0][1] == 0
                assert delay.asked == ["a"] * opened

    run(check, tmp_path, delay_enabled=enabled)
