"""Messages taken for damaged because the machine was in trouble, and the trouble passed."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kumquat.core.complaints import INTERVAL_SECONDS, Complaints
from kumquat.core.errors import CorruptMessage, StorageError, WouldBlock
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.logs.messages.recovery.opening import open_log
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.tests.batches import batch, body
from kumquat.core.logs.tests.power import FakeFiles, Fault

VALUES = [b"%d" % n * 300 for n in range(20)]


def opened(files: FakeFiles) -> MessageLog:
    options = LogOptions(
        directory=files.directory, segment_bytes=2000, reserve_bytes=512, tail_bytes=1
    )
    return open_log(files, options, lambda: 1)


def written(files: FakeFiles) -> None:
    """Several segments."""
    log = opened(files)
    subject = log.create_subject_nowait("s")
    for value in VALUES:
        log.append_nowait(subject, memoryview(batch(value)))
        log.write_nowait()
        while log.preamble_step():
            pass
        job = log.begin_sync()
        assert job is not None
        job.run()
        log.finish_sync(job)
    log.close()


@pytest.fixture
def reading() -> tuple[FakeFiles, Reader, Subject]:
    files = FakeFiles()
    written(files)
    log = opened(files)
    assert len(log.state.segments) > 4
    reader, subject = Reader(log), log.state.subjects.by_name["s"]
    for sequence in range(len(VALUES)):
        reader.read(subject, sequence, 1, True, nowait=False)
    return files, reader, subject


Read = Callable[[Reader, Subject], object]
READS: dict[str, Read] = {
    "read": lambda reader, subject: reader.read(subject, 0, 1, True, nowait=False),
    "bounds": lambda reader, subject: reader.locator.bounds(subject, 0, nowait=False),
    "by time": lambda reader, subject: reader.offset_for_timestamp(subject, 0),
}


@pytest.mark.parametrize("name", [".log", ".index"])
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES])
@pytest.mark.parametrize("operation", ["open", "pread"])
@pytest.mark.parametrize("asked", READS)
def test_trouble_of_the_machine_is_never_a_verdict(
    reading: tuple[FakeFiles, Reader, Subject], operation: str, error: int, name: str, asked: str
) -> None:
    files, reader, subject = reading
    reader.locator.indexes.forget(reader._log.state.segments[0])
    reader._open_files._trim(0)
    files.fail(Fault(operation, error, name=name, times=None))
    try:
        READS[asked](reader, subject)
    except StorageError:
        pass
    except CorruptMessage as verdict:
        raise AssertionError("a verdict on what was never read") from verdict
    files.heal()
    READS[asked](reader, subject)
    [found] = reader.read(subject, 0, 1, True, nowait=False)
    assert body(found) == body(batch(VALUES[0]))
    assert reader.corrupt_reads == 0


@pytest.mark.parametrize("times", [1, None])
def test_an_error_of_the_device_is_no_verdict_and_passes(
    reading: tuple[FakeFiles, Reader, Subject], times: int | None
) -> None:
    files, reader, subject = reading
    files.fail(Fault("pread", errno.EIO, name="0" * 20 + ".log", times=times))
    with pytest.raises(StorageError, match="for now"):
        reader.read(subject, 0, 1, True, nowait=False)
    files.heal()
    for sequence, value in enumerate(VALUES):
        [found] = reader.read(subject, sequence, 1, True, nowait=False)
        assert body(found) == body(batch(value))


def test_nothing_is_concluded_on_the_loop(reading: tuple[FakeFiles, Reader, Subject]) -> None:
    files, reader, subject = reading
    files.fail(Fault("pread", errno.EIO, name=".log"))
    with pytest.raises(WouldBlock):
        reader.read(subject, 0, 1, True, nowait=True)
    assert reader.failed_reads == 0


def test_a_short_read_that_passes_is_no_verdict(
    reading: tuple[FakeFiles, Reader, Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, reader, subject = reading
    whole = files.preadv_into

    def short(fd: int, buffer: memoryview, offset: int, *, nowait: bool) -> int:
        monkeypatch.undo()
        return whole(fd, buffer[:10], offset, nowait=nowait)

    monkeypatch.setattr(files, "preadv_into", short)
    [found] = reader.read(subject, 0, 1, True, nowait=False)
    assert body(found) == body(batch(VALUES[0]))


def test_no_memory_for_a_read_is_no_verdict(
    reading: tuple[FakeFiles, Reader, Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, reader, subject = reading

    def none_left(size: int) -> memoryview:
        raise MemoryError

    monkeypatch.setattr(reader._buffers, "take", none_left)
    with pytest.raises(StorageError, match="no memory"):
        reader.read(subject, 0, 1, True, nowait=False)


def test_descriptors_that_nobody_uses_are_given_up_for_one_that_is_needed(
    reading: tuple[FakeFiles, Reader, Subject],
) -> None:
    files, reader, subject = reading
    reader._open_files.forget(reader._log.state.segments[2].path)
    open_before = files.open_handles()
    files.fail(Fault("open", errno.EMFILE, name=".log"))
    for sequence, value in enumerate(VALUES):
        [found] = reader.read(subject, sequence, 1, True, nowait=False)
        assert body(found) == body(batch(value))
    assert reader.failed_reads == 0
    assert files.open_handles() <= open_before + 1


def test_the_same_damage_is_told_once_a_minute_and_how_to_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = FakeFiles()
    written(files)
    first = Path(files.directory / "messages" / ("0" * 20 + ".log"))
    content = bytearray(files.content(first))
    content[content.index(VALUES[0])] ^= 1
    files.damage(first, bytes(content))
    log = opened(files)
    reader, subject = Reader(log), log.state.subjects.by_name["s"]
    caplog.clear()
    for _ in range(5):
        with pytest.raises(CorruptMessage):
            reader.read(subject, 0, 1, True, nowait=False)
    [line] = [r.getMessage() for r in caplog.records if "cannot be read at" in r.getMessage()]
    assert "commit an offset past 0 for it" in line


def test_a_complaint_comes_again_after_a_while_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    complaints = Complaints(logging.getLogger("test"), lambda: now)
    for _ in range(3):
        complaints.error("here", "bad")
    complaints.error("there", "worse")
    now = INTERVAL_SECONDS
    complaints.error("here", "bad")
    complaints.error("here", "bad")
    assert [r.getMessage() for r in caplog.records] == ["bad", "worse", "bad (2 more times since)"]
