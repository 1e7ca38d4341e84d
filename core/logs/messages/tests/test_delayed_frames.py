"""Frames of delayed messages: what one batch was split into stands or falls together.

A small life of mixed batches, deliveries and plain batches on the fake disk; at every step a cut is tried,
and a log opened on what is left. Each batch is there as a whole or not at all, what was synced is there,
and the retry of a producer is understood accordingly.
"""

import errno
from dataclasses import dataclass, field
from random import Random

import pytest

from kumquat.core.errors import InvalidTimestamp, StorageError
from kumquat.core.logs.messages.format import CANCEL, DELIVERED, PARKED
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.parked import (
    CANCELLED,
    NO_ORIGIN,
    CancelItem,
    Origin,
    cancels_of,
    delay_id_of,
    heads_of,
    pack_parked,
    pack_schedule_ids,
    schedule_ids_of,
)
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.logs.messages.recovery.opening import open_log
from kumquat.core.logs.messages.retention import Retention
from kumquat.core.logs.tests.batches import batch
from kumquat.core.logs.tests.driver import DATA, OPTIONS
from kumquat.core.logs.tests.power import FakeFiles, Fault
from kumquat.core.records import read_head, records_of
from kumquat.core.records.batch import LOG_APPEND_TIME
from kumquat.core.records.look import ASKS, PLAIN

NOW = 1_700_000_000_000
PRODUCER = 7
ATTRIBUTES = 22
"""Where the low byte of a batch's attributes is."""


@dataclass
class Ear:
    """A listener that writes down what it hears."""

    replay_from: int = 0
    heard: list[tuple[int, bytes]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    kept_from: int = 1 << 62

    def begin_replay(self) -> None:
        self.heard = []

    def apply(self, kind: int, subject_id: int, position: int, payload: bytes | memoryview) -> None:
        self.heard.append((kind, bytes(payload)))

    def subject_deleted(self, subject_id: int, position: int) -> None:
        self.heard.append((0, b""))

    def unreadable(self, kind: int, subject_id: int, position: int, length: int) -> None:
        self.waiting.append((kind, position))

    def damaged(self, kind: int, subject_id: int, position: int, length: int) -> None:
        self.lost.append((kind, position))

    def keep_from(self) -> int:
        return self.kept_from

    def tags(self, kind: int) -> set[bytes]:
        found = set()
        for heard, payload in self.heard:
            if heard == PARKED == kind:
                found |= {delay_id_of(payload, at, head) for at, head in heads_of(payload)}
            elif heard == CANCEL == kind:
                found |= {item.delay_id for item in cancels_of(payload)}
            elif heard == DELIVERED == kind:
                found |= {b"%d" % schedule_id for schedule_id in schedule_ids_of(payload)}
        return found


def opened(files: FakeFiles, ear: Ear | None = None) -> tuple[MessageLog, Ear]:
    ear = ear or Ear()
    return open_log(files, OPTIONS, lambda: NOW, ear), ear


def synced(log: MessageLog) -> None:
    job = log.begin_sync()
    if job is not None:
        job.run()
        log.finish_sync(job)


def values(log: MessageLog, name: str) -> list[bytes]:
    subject = log.state.subjects.by_name.get(name)
    if subject is None:
        return []
    found, at = [], subject.earliest
    while at < subject.readable_end:
        for data in Reader(log).read(subject, at, 1 << 20, True, nowait=False):
            found += [record.value or b"" for record in records_of(memoryview(data), 1 << 20)]
            head = read_head(data)
            at = head.base_offset + head.last_offset_delta + 1
    return found


def split_batch(
    number: int, shape: str
) -> tuple[Origin, bytes, list[CancelItem], bytearray | None]:
    """What a batch of three records, or fewer, was split into; every part carries its number."""
    tag = b"b%d" % number
    origin = Origin(PRODUCER, 0, number * 3, 3)
    parked = pack_parked(NOW + 5, NOW, tag, b"\x01\x01\x04") if "p" in shape else b""
    cancels = [CancelItem(CANCELLED, 5, NOW, 0, tag)] if "c" in shape else []
    plain = None
    if "m" in shape:
        plain = batch(tag, tag, tag, producer_id=PRODUCER, epoch=0, first=number * 3)
    return origin, parked, cancels, plain


SHAPES = ("p", "c", "pc", "pm", "cm", "pcm", "m")


def check_whole(files: FakeFiles, promised: int, given: int) -> None:
    """Batches 0 to k-1 are there, each with all its parts, for some k from `promised` on."""
    log, ear = opened(files)
    stored = values(log, "s")
    for number in range(given):
        tag, shape = b"b%d" % number, SHAPES[number % len(SHAPES)]
        parts = {
            tag in ear.tags(PARKED) if "p" in shape else None,
            tag in ear.tags(CANCEL) if "c" in shape else None,
            tag in stored if "m" in shape else None,
        } - {None}
        assert len(parts) == 1, f"batch {number} ({shape}) is there in part"
        assert True in parts or number >= promised, f"batch {number} was promised"
        delivered = b"%d" % (1000 + number) in ear.tags(DELIVERED)
        assert delivered == (b"d%d" % number in stored), "a delivery without its messages"
    subject = log.state.subjects.by_name.get("s")
    if subject is None:
        return
    there = {n for n in range(given) if _is_there(ear, stored, n)}
    if there:
        newest = max(there)
        end = log.written_end
        again = log.park_nowait(subject, *split_batch(newest, SHAPES[newest % len(SHAPES)]))
        assert (again.end, log.writer._staged_end) == (0, end), "a retry was stored twice"
        log.park_nowait(subject, *split_batch(newest + 1, "pm"))
        log.write_nowait()


def _is_there(ear: Ear, stored: list[bytes], number: int) -> bool:
    tag = b"b%d" % number
    return tag in ear.tags(PARKED) or tag in ear.tags(CANCEL) or tag in stored


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_at_any_step_leaves_a_part_of_no_batch(seed: int) -> None:
    rng, files = Random(seed), FakeFiles(DATA)
    log, _ = opened(files)
    subject = log.create_subject_nowait("s")
    synced(log)
    promised = given = 0
    looked = 0

    def look() -> None:
        nonlocal looked
        for again in range(3):
            looked += 1
            left = files.after_power_cut(Random(files.steps * 10 + again))
            check_whole(left, promised, given)

    files.before_step = look
    for number in range(30):
        given = number + 1
        log.park_nowait(subject, *split_batch(number, SHAPES[number % len(SHAPES)]))
        if rng.random() < 0.5:
            data = batch(b"d%d" % number)
            log.deliver_nowait(subject, pack_schedule_ids([1000 + number]), data)
        if rng.random() < 0.7:
            log.write_nowait()
            if rng.random() < 0.6:
                synced(log)
                promised = given
            while log.preamble_step(1):
                synced(log)
    assert looked > 60


def test_a_batch_that_is_refused_at_its_last_part_is_stored_in_part() -> None:
    """message.timestamp.type was altered while the batch was opened."""
    log, ear = opened(FakeFiles(DATA))
    subject = log.create_subject_nowait("s")
    log.write_nowait()
    log.append_nowait(subject, memoryview(batch(b"before")))
    origin, parked, cancels, plain = split_batch(0, "pcm")
    assert plain is not None
    plain[ATTRIBUTES] |= LOG_APPEND_TIME
    with pytest.raises(InvalidTimestamp):
        log.park_nowait(subject, origin, parked, cancels, plain)
    log.append_nowait(subject, memoryview(batch(b"after")))
    log.write_nowait()
    synced(log)
    assert not ear.heard
    assert values(log, "s") == [b"before", b"after"]
    assert log.park_nowait(subject, *split_batch(0, "pcm")).base_sequence == 2, "taken for a retry"


def test_a_write_that_fails_leaves_no_trace_of_a_parked_batch() -> None:
    files = FakeFiles(DATA)
    log, ear = opened(files)
    subject = log.create_subject_nowait("s")
    files.fail(Fault("pwritev", errno.EIO))
    log.park_nowait(subject, *split_batch(0, "pcm"))
    with pytest.raises(StorageError):
        log.write_nowait()
    files.heal()
    assert not ear.heard
    assert subject.next_sequence == 0
    assert not subject.producers
    log.park_nowait(subject, *split_batch(0, "pcm"))
    log.write_nowait()
    assert ear.tags(PARKED) == ear.tags(CANCEL) == {b"b0"}
    assert subject.next_sequence == 3


def test_a_batch_with_the_mark_is_seen_unless_the_subject_has_no_delay() -> None:
    log, _ = opened(FakeFiles(DATA))
    subject = log.create_subject_nowait("s")
    data = memoryview(batch(b"a", b"qmq-delay-ms", b"c"))
    assert subject.look(data, 1 << 20).verdict is ASKS
    subject.config.delay_enabled = False
    assert subject.look(data, 1 << 20).verdict is PLAIN


def test_a_batch_that_was_parked_is_known_before_it_is_opened_again() -> None:
    log, _ = opened(FakeFiles(DATA))
    subject = log.create_subject_nowait("s")
    data = memoryview(batch(b"x", b"y", b"z", producer_id=PRODUCER, epoch=0, first=0))
    head = subject.look(data, 1 << 20).head
    assert log.original_of(subject, head) is None
    parked = log.park_nowait(subject, *split_batch(0, "p"))
    assert log.original_of(subject, head) == parked


def test_a_batch_that_is_all_delayed_takes_no_sequence() -> None:
    log, _ = opened(FakeFiles(DATA))
    subject = log.create_subject_nowait("s")
    assert log.park_nowait(subject, *split_batch(0, "p")).base_sequence == -1
    again = log.park_nowait(subject, *split_batch(0, "p"))
    assert again.base_sequence == -1
    following = batch(b"x", b"y", b"z", producer_id=PRODUCER, epoch=0, first=3)
    assert log.append_nowait(subject, memoryview(following)).base_sequence == 0


def test_replay_tells_nothing_below_what_the_listener_has() -> None:
    files = FakeFiles(DATA)
    log, _ = opened(files)
    subject = log.create_subject_nowait("s")
    log.park_nowait(subject, *split_batch(0, "p"))
    log.write_nowait()
    position = log.written_end
    log.park_nowait(subject, *split_batch(1, "p"))
    log.write_nowait()
    synced(log)
    _, ear = opened(files.after_kill(), Ear(replay_from=position))
    assert ear.tags(PARKED) == {b"b1"}


def test_a_segment_that_the_listener_needs_is_neither_deleted_nor_left_out_of_replay() -> None:
    files, ear = FakeFiles(DATA), Ear()
    log, _ = opened(files, ear)
    subject = log.create_subject_nowait("s")
    log.park_nowait(subject, *split_batch(0, "p"))
    log.write_nowait()
    for _ in range(4):
        synced(log)
        while log.preamble_step():
            pass
        synced(log)
        log.roll_when_ready()
    synced(log)
    assert len(log.state.segments) > 3
    left, heard = opened(files.after_kill(), Ear(kept_from=0))
    assert heard.tags(PARKED) == {b"b0"}
    for segment in left.state.segments[:-1]:
        segment.unindexed = None
    retention = Retention(left, Reader(left))
    assert retention.due_segment(NOW + 10**12) is None
    heard.kept_from = left.state.segments[1].base
    assert retention.due_segment(NOW + 10**12) is not None


def test_a_damaged_parked_frame_is_told_and_harms_no_other() -> None:
    files = FakeFiles(DATA)
    log, _ = opened(files)
    subject = log.create_subject_nowait("s")
    begin = log.written_end
    log.park_nowait(subject, *split_batch(0, "p"))
    log.park_nowait(subject, *split_batch(1, "pm"))
    log.write_nowait()
    synced(log)
    path = log.state.active.path
    content = bytearray(files.content(path))
    content[begin + 70] ^= 1
    files.damage(path, bytes(content))
    again, ear = opened(files.after_kill())
    assert ear.lost == [(PARKED, begin)]
    assert ear.tags(PARKED) == {b"b1"}
    assert values(again, "s") == [b"b1"] * 3


def test_a_cancel_without_a_producer_is_stored() -> None:
    log, ear = opened(FakeFiles(DATA))
    subject = log.create_subject_nowait("s")
    log.park_nowait(subject, NO_ORIGIN, b"", [CancelItem(CANCELLED, 5, NOW, 0, b"x")], None)
    log.write_nowait()
    assert ear.tags(CANCEL) == {b"x"}
    assert not subject.producers
