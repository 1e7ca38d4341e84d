"""A folder that was copied while its broker ran: told once, and nothing hidden."""

import copy

import pytest

from kumquat.core.delivery import actions
from kumquat.core.errors import CorruptMessage, StartError
from kumquat.core.logs.actions.tests.driver import ActionDriver
from kumquat.core.logs.messages.recovery.opening import open_log
from kumquat.core.logs.tests.driver import DATA, Driver, errors_told
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.logs.tests.promises import read_all


def copied(early: int, late: int) -> tuple[Driver, FakeFiles, bytes, int]:
    """A log, and its file before `late` more batches were synced, of which the checkpoint knows."""
    driver = Driver(segment_bytes=1 << 20, tail_bytes=1, index_max_entries=1 << 20)
    driver.create("a")
    driver.create("b")
    driver.settle()
    for n in range(early):
        driver.append("ab"[n % 2], 300 + n)
        driver.sync()
    path = driver.log.state.active.path
    content, size = driver.files.content(path), driver.log.state.active.size
    for n in range(late):
        driver.append("ab"[n % 2], 300 + n)
        driver.sync()
    return driver, driver.files, content, size


@pytest.mark.parametrize("reserved", [True, False])
@pytest.mark.parametrize("late", [1, 40])
def test_a_live_copy_is_told_of_in_one_line_and_once(late: int, reserved: bool) -> None:
    driver, files, content, size = copied(10, late)
    high = driver.subject("a").readable_end
    path = driver.log.state.active.path
    end = driver.log.written_end
    files.damage(path, content if reserved else content[:size])
    driver.start()
    [line] = driver.errors
    assert f"the end of the log is missing: it was synced up to position {end}" in line
    assert "made while its broker ran" in line
    assert f"'a' 5 to {high - 1} ({high - 5})" in line
    subject = driver.subject("a")
    assert subject.readable_end == high, "a sequence that was given is given again"
    assert len(driver.reader.read(subject, 0, 1 << 20, True, nowait=False)) == 5
    with pytest.raises(CorruptMessage):
        driver.reader.read(subject, 5, 1, True, nowait=False)
    assert driver.append("a", 10).base_sequence == high
    driver.settle()
    driver.seal()
    for _ in range(2):
        driver.start()
        assert not driver.errors, "said at every start"
        assert driver.reader.read(driver.subject("a"), high, 1, True, nowait=False)
        with pytest.raises(CorruptMessage):
            driver.reader.read(driver.subject("a"), high - 1, 1, True, nowait=False)


@pytest.mark.parametrize("more", [30, 70, 200])
def test_a_live_copy_that_ends_within_a_frame_is_told_of_in_one_line(more: int) -> None:
    driver, files, content, size = copied(10, 5)
    path = driver.log.state.active.path
    later = files.content(path)
    files.damage(path, later[: size + more] + content[size + more :])
    driver.start()
    [line] = driver.errors
    assert "the end of the log is missing" in line
    assert "'a' 5 to 7 (3)" in line


def test_a_sealed_segment_that_lacks_its_end_is_told_of_once() -> None:
    driver = Driver(segment_bytes=3000, tail_bytes=1)
    driver.create("a")
    driver.settle()
    while len(driver.log.state.segments) < 3:
        driver.append("a", 500)
        driver.settle()
    driver.seal()
    first = driver.log.state.segments[0]
    driver.files.damage(first.path, driver.files.content(first.path)[:2000])
    driver.start()
    [line] = driver.errors
    assert "corruption at position 2000" in line
    assert "the end of the log is missing" in line
    driver.start()
    assert not driver.errors
    with pytest.raises(CorruptMessage):
        read_all(driver.reader, driver.subject("a"))


def test_frames_that_are_damaged_one_behind_the_other_are_one_line() -> None:
    driver, files, _, _ = copied(20, 0)
    path = driver.log.state.active.path
    content = bytearray(files.content(path))
    content[3000:6000] = bytes(3000)
    files.damage(path, bytes(content))
    driver.start()
    [line] = driver.errors
    assert "frames up to position" in line
    assert "messages that cannot be read: " in line
    driver.settle()
    driver.start()
    assert not driver.errors


def test_a_live_copy_of_the_action_log_is_told_of_once() -> None:
    driver = ActionDriver(segment_bytes=1 << 20)
    group = driver.group("g")
    driver.settle()
    path = driver.log.active.path
    content = driver.files.content(path)
    for n in range(30):
        driver.do(actions.Commit(group.id, 9, n, -1, "x"))
        driver.sync()
    driver.files.damage(path, content)
    opened = ActionDriver(driver.files, copy.deepcopy(driver.book), driver.segment_bytes)
    [line] = opened.errors
    assert "the end of the log is missing: it was synced up to position" in line
    assert "g" in opened.groups.by_name
    opened.settle()
    again = ActionDriver(driver.files, copy.deepcopy(driver.book), driver.segment_bytes)
    assert not again.errors


# --- the file of the newest segment is gone ------------------------------------------------------


class Listening:
    """A delay service that has filed all that was parked below a position."""

    def __init__(self, replay_from: int) -> None:
        self.replay_from = replay_from

    def begin_replay(self) -> None: ...
    def apply(self, *_: object) -> None: ...
    def subject_deleted(self, *_: object) -> None: ...
    def unreadable(self, *_: object) -> None: ...
    def damaged(self, *_: object) -> None: ...

    def keep_from(self) -> int:
        return self.replay_from


def several(total_bytes: int = -1) -> Driver:
    """A log of some segments, the last of which holds messages too."""
    driver = Driver(segment_bytes=3000, tail_bytes=1, total_bytes=total_bytes)
    driver.create("a")
    driver.create("b")
    driver.settle()
    while len(driver.log.state.segments) < 4:
        driver.append("a", 300)
        driver.append("b", 300, 300)
        driver.settle()
        driver.seal()
    driver.append("a", 300)
    driver.append("b", 300)
    driver.settle()
    return driver


def ends(driver: Driver) -> tuple[int, int, int]:
    highs = [driver.subject(name).next_sequence for name in ("a", "b")]
    return driver.log.written_end, highs[0], highs[1]


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("sealed", [True, False])
def test_newest_segments_that_are_gone_are_told_of_and_their_offsets_are_not_given_again(
    lost: int, sealed: bool
) -> None:
    driver = several()
    if sealed:
        driver.log.roll()
        driver.settle()
        driver.seal()
    before, segments = ends(driver), driver.log.state.segments
    for segment in segments[-lost:]:
        driver.files.unlink(segment.path)
    driver.start()
    assert any("the end of the log is missing" in line for line in driver.errors), driver.errors
    after = ends(driver)
    assert all(now >= then for now, then in zip(after, before, strict=True)), (before, after)
    driver.start()  # killed before the new segment has its preamble
    assert all(now >= then for now, then in zip(ends(driver), after, strict=True))
    assert driver.append("a", 10).base_sequence >= before[1]
    driver.create("c")
    driver.append("c", 10)
    driver.settle()
    driver.seal()
    first = driver.subject("a").earliest
    assert driver.reader.read(driver.subject("a"), first, 1, True, nowait=False)
    if lost > 1 or not sealed:
        with pytest.raises(CorruptMessage):
            driver.reader.read(driver.subject("a"), before[1] - 1, 1, True, nowait=False)
    for _ in range(2):
        driver.start()
        assert not driver.errors, "said at every start"
        assert driver.subject("c").readable_end == 1
        assert driver.reader.read(driver.subject("a"), first, 1, True, nowait=False)


def test_the_only_segment_that_is_gone_is_told_of_and_no_subject_id_is_given_again() -> None:
    driver = Driver(segment_bytes=1 << 20, tail_bytes=1)
    driver.create("a")
    driver.append("a", 300)
    driver.settle()
    before, known = driver.log.written_end, driver.subject("a").id
    driver.files.unlink(driver.log.state.active.path)
    driver.start()
    assert any("the end of the log is missing" in line for line in driver.errors), driver.errors
    assert driver.log.written_end >= before
    assert driver.create("a").id > known


@pytest.mark.parametrize("noted", [0, 1, 5_000])
def test_a_log_that_is_shorter_than_others_have_noted_goes_on_behind_that(noted: int) -> None:
    """Neither a file nor a checkpoint of the newest segment is left. The delay service knows how far it has
    filed."""
    driver = several()
    before, active = ends(driver), driver.log.state.active
    listener = Listening(before[0] + noted)
    driver.files.unlink(active.path)
    driver.files.unlink(active.checkpoint_path)
    with errors_told() as errors:
        log = open_log(driver.files, driver.options, driver.clock, listener)
    assert any("the end of the log is missing" in line for line in errors)
    assert log.written_end >= before[0] + noted
    for name, end in zip(("a", "b"), before[1:], strict=True):
        assert log.state.subjects.by_name[name].next_sequence >= end
    while log.preamble_step():
        pass
    log.close()
    with errors_told() as errors:
        open_log(driver.files, driver.options, driver.clock, listener).close()
    assert not errors, "said at every start"


def test_a_folder_without_a_message_log_is_not_opened_if_others_have_noted_one() -> None:
    driver = several()
    for name in driver.files.listdir(DATA / "messages"):
        driver.files.unlink(DATA / "messages" / name)
    with pytest.raises(StartError, match=r"messages are gone.*[Bb]ring it back.*mv /data"):
        open_log(driver.files, driver.options, driver.clock, Listening(1_000))
    assert not driver.files.listdir(DATA / "messages"), "nothing is written"


def test_a_checkpoint_that_retention_left_behind_is_no_missing_segment() -> None:
    driver = several(total_bytes=1)
    first = driver.log.state.segments[0]
    chunk = driver.files.content(driver.log.state.active.checkpoint_path)
    while driver.retire():
        pass
    assert first not in driver.log.state.segments
    fd = driver.files.open(first.checkpoint_path, create=True)
    driver.files.pwritev(fd, [chunk], 0)
    driver.files.close(fd)
    driver.start()
    assert not driver.errors
    driver.check()


def test_a_segment_is_kept_though_the_frame_that_follows_it_with_a_subjects_state_is_damaged() -> (
    None
):
    """It holds messages of that subject, and its index says so."""
    driver = several()
    segment, subject = driver.log.state.active, driver.subject("b")
    content = bytearray(driver.files.content(segment.path))
    at = content.index(b"b", content.index(subject.topic_id))
    content[at] ^= 1
    driver.files.damage(segment.path, bytes(content))
    driver.start()
    assert driver.errors
    driver.settle()
    driver.seal()
    before = driver.log.state.segments[2]
    row = driver.reader.locator.rows(before).find(subject.id)
    assert row is not None
    assert row.entries
    driver.start()
    driver.check()
