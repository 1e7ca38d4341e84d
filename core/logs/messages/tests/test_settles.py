"""SETTLES frames: what settles, and the messages that settle it, stand or fall together.

On the fake disk, as the frames of delayed messages are (test_delayed_frames.py): cuts at every step,
damage, sectors that cannot be read, and which frames are passed to whom after a start.
"""

import errno
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from random import Random

import pytest

from kumquat.core.errors import InvalidTimestamp, StartError, StorageError
from kumquat.core.logs.dump import dump
from kumquat.core.logs.messages.format import HEADER_SIZE, JOINED, MESSAGES, SETTLES
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.logs.messages.recovery.opening import open_log
from kumquat.core.logs.messages.retention import Retention
from kumquat.core.logs.messages.settles import (
    ITEM_SIZE,
    Settled,
    UnknownItem,
    pack_settles,
    settles_of,
)
from kumquat.core.logs.messages.tests.test_delayed_frames import Ear, synced, values
from kumquat.core.logs.tests.batches import batch
from kumquat.core.logs.tests.driver import DATA, OPTIONS
from kumquat.core.logs.tests.power import FakeFiles, Fault
from kumquat.core.records.batch import LOG_APPEND_TIME

NOW = 1_700_000_000_000
ATTRIBUTES = 22
BEHIND_HEADERS = HEADER_SIZE + 4


@dataclass
class Joined:
    """A listener that writes down what was settled."""

    replay_from: int | None = 0
    heard: list[tuple[list[Settled], int]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    kept_from: int = 1 << 62

    def begin_replay(self) -> None:
        self.heard, self.lost = [], []

    def settled(self, items: list[Settled], end: int) -> None:
        self.heard.append((items, end))

    def damaged(self, subject_id: int, position: int, length: int) -> None:
        self.lost.append(position)

    def keep_from(self) -> int:
        return self.kept_from

    def firsts(self) -> set[int]:
        return {item.first for items, _ in self.heard for item in items}


def opened(files: FakeFiles, joined: Joined | None = None) -> tuple[MessageLog, Joined]:
    joined = joined or Joined()
    return open_log(files, OPTIONS, lambda: NOW, Ear(), joined), joined


def item(number: int) -> Settled:
    return Settled(7, 3, number, 1)


def settle(log: MessageLog, number: int) -> int:
    """Stage the dead letter of a message; gives the position of its SETTLES frame."""
    subject = log.state.subjects.by_name["dlq"]
    begin = log.writer._staged_end
    log.settle_nowait(subject, [item(number)], batch(b"dead %d" % number))
    return begin


def begun() -> tuple[FakeFiles, MessageLog]:
    files = FakeFiles(DATA)
    log, _ = opened(files)
    log.create_subject_nowait("dlq")
    synced(log)
    return files, log


def test_items_are_read_back_as_they_were_written() -> None:
    items = [Settled(1, 2, 3, 4), Settled((1 << 63) - 1, (1 << 32) - 1, (1 << 63) - 1, 1)]
    packed = pack_settles(items)
    assert len(packed) == 2 * ITEM_SIZE
    assert settles_of(packed) == items
    assert settles_of(memoryview(packed)) == items


def test_an_item_of_a_later_version_is_not_taken_for_one_of_this() -> None:
    with pytest.raises(UnknownItem, match="type 2"):
        settles_of(pack_settles([item(1)]) + b"\x02")


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_at_any_step_leaves_no_letter_without_what_it_settles_nor_the_reverse(
    seed: int,
) -> None:
    rng = Random(seed)
    files, log = begun()
    promised = given = looked = 0

    def look() -> None:
        nonlocal looked
        for again in range(3):
            looked += 1
            left, heard = opened(files.after_power_cut(Random(files.steps * 10 + again)))
            letters = [v for v in values(left, "dlq") if v.startswith(b"dead")]
            assert letters == [b"dead %d" % n for n in range(len(letters))]
            assert heard.firsts() == set(range(len(letters)))
            assert promised <= len(letters) <= given

    files.before_step = look
    for number in range(25):
        given = number + 1
        settle(log, number)
        if rng.random() < 0.3:
            plain = batch(b"plain %d" % number)
            log.append_nowait(log.state.subjects.by_name["dlq"], memoryview(plain))
        if rng.random() < 0.7:
            log.write_nowait()
            if rng.random() < 0.6:
                synced(log)
                promised = given
            while log.preamble_step(1):
                synced(log)
    assert looked > 60


@pytest.mark.parametrize("damaged", [SETTLES, MESSAGES])
def test_a_torn_frame_takes_its_partner_along(damaged: int) -> None:
    """Written, never synced: one of the two did not reach the disk."""
    files, log = begun()
    settle(log, 0)
    log.write_nowait()
    synced(log)
    begin = settle(log, 1)
    behind = begin + HEADER_SIZE + ITEM_SIZE
    log.write_nowait()
    path = log.state.active.path
    content = bytearray(files.content(path))
    at = begin if damaged == SETTLES else behind
    content[at : at + 40] = bytes(40)
    files.damage(path, bytes(content))
    left, heard = opened(files.after_kill())
    assert heard.firsts() == {0}
    assert values(left, "dlq") == [b"dead 0"]
    settle(left, 1)
    left.write_nowait()
    synced(left)
    again, heard = opened(left.files)  # type: ignore[arg-type]
    assert heard.firsts() == {0, 1}
    assert values(again, "dlq") == [b"dead 0", b"dead 1"]


def damage_second_of_three(files: FakeFiles, log: MessageLog, into: int) -> int:
    for number in range(3):
        begin = settle(log, number)
        if number == 1:
            second = begin
    log.write_nowait()
    synced(log)
    path = log.state.active.path
    content = bytearray(files.content(path))
    content[second + into] ^= 1
    files.damage(path, bytes(content))
    return second


@pytest.mark.parametrize("into", [10, BEHIND_HEADERS])
def test_a_damaged_frame_is_told_and_harms_no_other(into: int) -> None:
    files, log = begun()
    second = damage_second_of_three(files, log, into)
    left, heard = opened(files.after_kill())
    assert heard.lost == [second]
    assert heard.firsts() == {0, 2}
    assert values(left, "dlq") == [b"dead 0", b"dead 1", b"dead 2"]
    _, unconcerned = opened(files.after_kill(), Joined(replay_from=second + 1))
    assert not unconcerned.lost


def test_damaged_messages_behind_a_synced_frame_leave_what_it_settles_settled() -> None:
    files, log = begun()
    damage_second_of_three(files, log, HEADER_SIZE + ITEM_SIZE + BEHIND_HEADERS + 20)
    _, heard = opened(files.after_kill())
    assert heard.firsts() == {0, 1, 2}
    assert not heard.lost


def test_a_frame_that_the_disk_cannot_read_refuses_the_start_until_it_can() -> None:
    """Without it, a dead letter would be written once more."""
    files, log = begun()
    name = log.state.active.path.name
    log.append_nowait(log.state.subjects.by_name["dlq"], memoryview(batch(bytes(4_200))))
    begin = settle(log, 0)
    log.append_nowait(log.state.subjects.by_name["dlq"], memoryview(batch(bytes(6_000))))
    log.write_nowait()
    synced(log)
    files.bad_sectors.append((name, begin, begin + HEADER_SIZE + ITEM_SIZE))
    with pytest.raises(StartError, match=r"settles.*must not become a message.*heck the disk"):
        opened(files)
    opened(files.after_kill(), Joined(replay_from=begin + 1))
    files.heal()
    _, heard = opened(files)
    assert heard.firsts() == {0}


def test_replay_tells_nothing_below_what_is_joined() -> None:
    files, log = begun()
    settle(log, 0)
    log.write_nowait()
    position = log.written_end
    settle(log, 1)
    log.write_nowait()
    synced(log)
    _, heard = opened(files.after_kill(), Joined(replay_from=position))
    assert heard.heard == [([item(1)], log.written_end - _size_of_letter(log))]
    _, nobody = opened(files.after_kill(), Joined(replay_from=None))
    assert not nobody.heard


def _size_of_letter(log: MessageLog) -> int:
    return HEADER_SIZE + len(batch(b"dead 1"))


def test_a_segment_with_frames_that_are_not_joined_is_neither_deleted_nor_left_out() -> None:
    files, log = begun()
    settle(log, 0)
    log.write_nowait()
    for _ in range(4):
        synced(log)
        while log.preamble_step():
            pass
        synced(log)
        log.roll_when_ready()
    synced(log)
    assert len(log.state.segments) > 3
    left, heard = opened(files.after_kill(), Joined(kept_from=0))
    assert heard.firsts() == {0}
    for segment in left.state.segments[:-1]:
        segment.unindexed = None
    retention = Retention(left, Reader(left))
    assert retention.due_segment(NOW + 10**12) is None
    heard.kept_from = left.state.segments[1].base
    assert retention.due_segment(NOW + 10**12) is not None
    _, heard = opened(files.after_kill(), Joined(replay_from=left.state.segments[2].base))
    assert not heard.heard


def test_a_letter_that_is_refused_leaves_no_trace() -> None:
    """The batch has the bit of log append time, which the subject does not take."""
    files, log = begun()
    subject = log.state.subjects.by_name["dlq"]
    log.append_nowait(subject, memoryview(batch(b"before")))
    refused = batch(b"refused")
    refused[ATTRIBUTES] |= LOG_APPEND_TIME
    with pytest.raises(InvalidTimestamp):
        log.settle_nowait(subject, [item(9)], refused)
    log.append_nowait(subject, memoryview(batch(b"after")))
    log.write_nowait()
    synced(log)
    left, heard = opened(files.after_kill())
    assert not heard.heard
    assert values(left, "dlq") == [b"before", b"after"]


def test_a_write_that_fails_settles_nothing() -> None:
    files, log = begun()
    subject = log.state.subjects.by_name["dlq"]
    files.fail(Fault("pwritev", errno.EIO))
    settle(log, 0)
    with pytest.raises(StorageError):
        log.write_nowait()
    files.heal()
    assert subject.next_sequence == 0
    settle(log, 1)
    log.write_nowait()
    synced(log)
    _, heard = opened(files.after_kill())
    assert heard.firsts() == {1}


def test_a_frame_with_an_item_of_a_later_version_refuses_the_start() -> None:
    files, log = begun()
    subject = log.state.subjects.by_name["dlq"]
    log.writer.stage(SETTLES, subject, subject.next_sequence, b"\x09later", JOINED)
    log.append_nowait(subject, memoryview(batch(b"x")))
    log.write_nowait()
    synced(log)
    with pytest.raises(StartError, match=r"type 9.*newer Kumquat"):
        opened(files.after_kill())


def test_dump_shows_what_is_settled(tmp_path: Path) -> None:
    files, log = begun()
    log.settle_nowait(
        log.state.subjects.by_name["dlq"], [Settled(7, 3, 40, 2), item(99)], batch(b"a", b"b")
    )
    log.write_nowait()
    path = tmp_path / log.state.active.path.name
    path.write_bytes(files.content(log.state.active.path))
    out = StringIO()
    assert dump(path, out) == 0
    assert "settles subject=1" in out.getvalue()
    assert "group=7 subject=3 messages=40..41 group=7 subject=3 messages=99..99" in out.getvalue()
