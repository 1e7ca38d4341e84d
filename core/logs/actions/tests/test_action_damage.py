"""An action log that rots: never a crash, never in silence, and never more lost than what is damaged."""

import copy
import errno
import json
from collections.abc import Callable

import pytest
from crc32c import crc32c

from kumquat.core.delivery import actions
from kumquat.core.delivery.state import Groups
from kumquat.core.errors import StartError
from kumquat.core.logs.actions import format as action_format
from kumquat.core.logs.actions.format import ACTIONS, SNAPSHOT, SNAPSHOT_END, FrameHeader
from kumquat.core.logs.actions.recovery import open_action_log
from kumquat.core.logs.actions.scan import ActionFrames
from kumquat.core.logs.actions.segment import ActionSegment
from kumquat.core.logs.actions.tests.driver import (
    DATA,
    FOLDER,
    TIMED,
    ActionDriver,
    Book,
    stored,
    timeless,
    told_by,
)
from kumquat.core.logs.tests.power import Fault


def lived(clean: bool = False) -> ActionDriver:
    """A log with two segments; the newest has a complete snapshot and actions before and behind it."""
    driver = ActionDriver(segment_bytes=900)
    assert driver.found() == 0
    for name in ("g0", "g1", "g2"):
        log = driver.join(name, 1)
        driver.pull(driver.group(name), 1, log, 3)
    driver.settle()
    while len(driver.log.segments) < 2 or not driver.log.active.snapshot_complete:
        driver.do(actions.Commit(driver.group("g2").id, 9, len(driver.book.frames), -1, "x" * 99))
        driver.sync()
        driver.log.snapshot_step(1)
        if len(driver.log.segments) == 2:
            group, log = driver.groups.slots[1][1]
            driver.pull(group, 1, log, 2)
    driver.settle()
    for slot in (1, 2, 3):
        group, log = driver.groups.slots[1][slot]
        driver.pull(group, 1, log, 2)
        driver.ack(group, 1, log, log.position + 1)
    driver.sync()
    group, log = driver.groups.slots[1][1]
    driver.leave(group, log.member_id)
    group, log = driver.groups.slots[1][2]
    driver.pull(group, 1, log, 4)
    driver.settle()
    if clean:
        driver.stop()
    return driver


def frames_of(driver: ActionDriver, segment: ActionSegment) -> list[FrameHeader]:
    found, position = [], segment.base
    with ActionFrames(driver.files, segment) as frames:
        while isinstance(header := frames.header_at(position), FrameHeader):
            found.append(header)
            position = header.end
    return found


def reopened(driver: ActionDriver, damage: Callable[[bytes], bytes]) -> ActionDriver:
    """The log on a disk on which the newest segment is damaged."""
    files = driver.files.after_kill()
    path = driver.log.active.path
    files.damage(path, damage(files.content(path)))
    return ActionDriver(files, copy.deepcopy(driver.book), driver.segment_bytes)


def flipped(at: int, bit: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        data = bytearray(content)
        data[at] ^= 1 << bit
        return bytes(data)

    return flip


def without(book: Book, lost: int | None, *, doubted: bool = False) -> dict[int, str]:
    """What all frames but one make of the groups, where an action that does not fit is passed over; the
    pull logs without what only leaps change. `doubted`: what was leased then is to be delivered again."""
    groups = Groups()
    for number, frame in enumerate(book.frames):
        if number == lost and doubted:
            for group in groups.by_id.values():
                for progress in group.progress.values():
                    progress.doubt()
        for action in frame if number != lost else []:
            try:
                groups.apply(action)
            except (KeyError, ValueError):
                continue
    return settled_shape(groups)


def settled_shape(groups: Groups) -> dict[int, str]:
    """Members, positions, who has which message: without pull sequences and times."""
    made = {}
    for gid, group in groups.by_id.items():
        told = [action for action in groups.snapshot(group) if type(action) not in TIMED]
        snapshot = json.loads(json.dumps(list(timeless(told))))
        for action in snapshot:
            if action[0] == "log":
                action[5:7] = []
        made[gid] = json.dumps(snapshot)
    return made


@pytest.mark.parametrize(("clean", "step"), [(False, 2), (True, 9)])
def test_a_flipped_bit_is_told_of_and_costs_nothing(clean: bool, step: int) -> None:
    driver = lived(clean)
    segment = driver.log.active
    headers = frames_of(driver, segment)
    assert {header.kind for header in headers} == {1, 2, 3, 4}
    expected = without(driver.book, None)
    for header in headers:
        for at in range(header.position - segment.base, header.end - segment.base, step):
            opened = reopened(driver, flipped(at, at % 8))
            assert any(
                f"position {header.position}" in line and f"in byte {at} of the file" in line
                for line in opened.errors
            ), at
            assert settled_shape(opened.groups) == expected, f"byte {at} of {header}"
            if at % 41 == 0:
                opened.book.frames, opened.book.promised = [shaped(opened.groups)], 1
                opened.goes_on()


def twice_flipped(at: int, bit: int) -> Callable[[bytes], bytes]:
    """In two bytes that lie one behind the other: no frame ends with the first of them."""
    return lambda content: flipped(at + 1, 3)(flipped(at, bit)(content))


def test_more_damage_costs_the_actions_of_its_frame_and_delivers_again_what_was_leased() -> None:
    driver = lived()
    segment = driver.log.active
    headers = frames_of(driver, segment)
    acting = [header for header in headers if header.kind == ACTIONS]
    first = len(driver.book.frames) - len(acting)
    whole = next(header.end for header in headers if header.kind == SNAPSHOT_END)
    for number, header in enumerate(acting):
        if header.position < whole:
            continue  # the snapshot tells what was lost
        expected = without(driver.book, first + number, doubted=True)
        begin = header.position - segment.base
        for at in (begin, begin + 20, begin + 44, header.end - segment.base - 2):
            opened = reopened(driver, twice_flipped(at, at % 8))
            assert any(f"position {header.position}" in line for line in opened.errors), at
            if header is acting[-1] and at < begin + 44:
                continue  # nothing is known to follow
            assert settled_shape(opened.groups) == expected, f"byte {at} of {header}"


def test_a_message_that_waits_for_a_retry_is_not_done_though_the_log_has_lost_that() -> None:
    """Its member acks what came after it."""
    driver = ActionDriver(segment_bytes=1 << 20)
    log = driver.join("payments", 7)
    group = driver.group("payments")
    driver.pull(group, 7, log, 3)
    later = driver.now + 3_600_000
    driver.do(actions.Retry(group.id, 7, log.slot, [[1, 1, 2, later]]))
    retried = frames_of(driver, driver.log.active)[-1]
    driver.ack(group, 7, log, log.next)
    driver.settle()
    at = retried.end - driver.log.active.base - 20
    opened = reopened(driver, flipped(at, 0))
    assert opened.groups.by_name["payments"].progress[7].waiting.total == 1
    assert any("group 'payments', subject 7" in line for line in opened.errors)
    opened = reopened(driver, twice_flipped(at, 0))
    progress = opened.groups.by_name["payments"].progress[7]
    assert 1 in [n for part in progress.redelivery for n in range(part.first, part.end)]
    assert any("group 'payments', subject 7" in line for line in opened.errors)
    assert opened.log.doubted == {("payments", 7): 3}


def shaped(groups: Groups) -> list[actions.Action]:
    """The groups as they are, as one frame."""
    made: list[actions.Action] = [actions.Numbers(groups.next_id, groups.floor)]
    made += [groups.snapshot_slots(subject_id) for subject_id in groups.numbers]
    for group in groups.by_id.values():
        made += stored(groups.snapshot(group))
    return made


def test_a_flipped_bit_in_a_segment_that_nobody_reads_does_no_harm() -> None:
    driver = lived()
    older = driver.log.segments[0]
    for at in range(0, older.end - older.base, 7):
        files = driver.files.after_kill()
        files.damage(older.path, flipped(at, 3)(files.content(older.path)))
        opened = ActionDriver(files, copy.deepcopy(driver.book), driver.segment_bytes)
        assert not opened.errors
        assert opened.found() == opened.before


@pytest.mark.parametrize(("synced_file", "step"), [(True, 3), (False, 7)])
def test_a_segment_cut_at_any_byte_is_a_prefix_and_loud(synced_file: bool, step: int) -> None:
    driver = lived()
    segment = driver.log.active
    for size in range(0, segment.end - segment.base, step):
        files = driver.files.after_kill()
        files.damage(segment.path, files.content(segment.path)[:size])
        if not synced_file:
            files.unlink(FOLDER / "synced")
        opened = ActionDriver(files, copy.deepcopy(driver.book), driver.segment_bytes)
        assert bool(opened.errors) or not synced_file, f"{size} bytes left, and not a word"
        opened.book.promised = 0
        opened.found(damaged=1 if opened.errors else 0)
        if size % 41 == 0:
            opened.goes_on()


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 20, b"KQS1" + bytes(16)])
def test_a_lost_or_garbled_note_of_what_is_synced_costs_nothing(content: bytes | None) -> None:
    driver = lived()
    if content is None:
        driver.files.unlink(FOLDER / "synced")
    else:
        driver.files.damage(FOLDER / "synced", content)
    driver.start()
    assert not driver.errors
    assert driver.found() == driver.before


def test_a_last_frame_that_rots_after_its_sync_is_no_tear() -> None:
    driver = lived()
    last = frames_of(driver, driver.log.active)[-1]
    opened = reopened(driver, twice_flipped(last.end - driver.log.active.base - 2, 0))
    assert any("corruption" in line for line in opened.errors)


def unacked(groups: Groups) -> set[tuple[int, int, int]]:
    """Group, subject and sequence of what is leased or to be delivered again."""
    return {
        (group.id, subject_id, sequence)
        for group in groups.by_id.values()
        for subject_id, progress in group.progress.items()
        for part in [
            *progress.redelivery,
            *(lease for log in progress.pull_logs.values() for lease in log.leases),
        ]
        for sequence in range(part.first, part.first + part.size)
    }


def test_sectors_of_zeros_cost_what_was_in_them_and_no_more() -> None:
    driver = lived()
    segment = driver.log.active
    headers = frames_of(driver, segment)
    size = segment.end - segment.base
    for start in range(0, size - 300, 100):
        opened = reopened(
            driver,
            lambda content, start=start: content[:start] + bytes(256) + content[start + 256 :],  # type: ignore[misc]
        )
        assert opened.errors
        damaged = [
            header
            for header in headers
            if header.position - segment.base < start + 256 and header.end - segment.base > start
        ]
        if all(header.kind in (SNAPSHOT, SNAPSHOT_END) for header in damaged):
            assert unacked(opened.groups) >= unacked(driver.groups)
            assert opened.groups.by_name.keys() == driver.groups.by_name.keys()
        opened.book.frames, opened.book.promised = [shaped(opened.groups)], 1
        opened.goes_on()


def test_garbage_in_every_frame_is_survived() -> None:
    driver = lived()
    opened = reopened(driver, lambda content: b"\xaaKQA" * (len(content) // 4))
    assert opened.errors
    opened.book.frames, opened.book.promised = [shaped(opened.groups)], 1
    opened.goes_on()


def test_segments_that_are_gone_are_missed_loudly() -> None:
    driver = lived()
    for segment in driver.log.segments:
        driver.files.unlink(segment.path)
    opened = ActionDriver(driver.files.after_kill(), Book())
    assert any("gone" in line for line in opened.errors)
    assert opened.log.active.base >= driver.log.active.end, "positions went back"


def test_a_magic_in_a_text_does_not_pass_for_a_frame() -> None:
    driver = ActionDriver(segment_bytes=100_000)
    driver.found()
    group = driver.group("g")
    forged = action_format.pack_frame(ACTIONS, [actions.Forget(group.id)], 0, 1 << 60, 0)
    text = forged.decode("latin-1")
    driver.do(actions.Commit(group.id, 1, 7, -1, text))
    driver.do(actions.Commit(group.id, 2, 8, -1, "behind"))
    driver.settle()
    header = frames_of(driver, driver.log.active)[-2]
    opened = reopened(driver, twice_flipped(header.position, 0))
    assert opened.groups.by_name["g"].progress[2].metadata == "behind"
    assert 1 not in opened.groups.by_name["g"].progress


@pytest.mark.parametrize(("version", "kind"), [(2, 1), (1, 9)])
def test_a_log_of_a_newer_kumquat_is_refused_and_left_alone(version: int, kind: int) -> None:
    driver = lived()
    end = driver.log.active.end
    head = action_format._UNSUMMED.pack(b"\xaaKQA", version, kind, 0, 2, 0, end, 0, 0)
    frame = head + action_format._CRC.pack(crc32c(head)) + b"[]"
    files = driver.files.after_kill()
    path, base = driver.log.active.path, driver.log.active.base
    files.damage(path, files.content(path)[: end - base] + frame)
    before = files.content(path)
    with pytest.raises(StartError, match="newer Kumquat"):
        open_action_log(files, DATA, driver.clock)
    assert files.content(path) == before


def test_an_action_that_fits_nothing_is_passed_over_loudly() -> None:
    driver = lived()
    with pytest.raises(KeyError):
        driver.log.append([actions.Ack(77, 1, 1, 5), actions.Group(90, "after it")])
    assert "after it" in driver.groups.by_name
    driver.settle()
    driver.start()
    assert any("does not fit" in line for line in driver.errors)
    assert "after it" in driver.groups.by_name


def test_a_disk_that_cannot_be_read_is_said_and_not_taken_for_an_empty_log() -> None:
    driver = lived()
    files = driver.files.after_kill()
    files.fail(Fault("pread", errno.EIO, name=".actions", times=None))
    with told_by("kumquat.actions"), pytest.raises(OSError, match="Input/output"):
        open_action_log(files, DATA, driver.clock)
    assert files.content(driver.log.active.path) == driver.files.content(driver.log.active.path)
