"""Files cut at every byte: the log opens, serves what is there, and says what is not.

A synced segment that is too short is damage, not a tear: its checkpoint knows better. Without the
checkpoint nobody can tell, and what is left is served. An index or a checkpoint is derived: losing
any part of it loses no message.
"""

import copy

import pytest

from kumquat.core.logs.messages.index import HEAD_SIZE
from kumquat.core.logs.tests.damage import (
    active,
    assert_goes_on,
    next_sequences,
    reopened,
    rich_log,
    spoiled,
    unreadable,
)
from kumquat.core.logs.tests.driver import Driver


@pytest.fixture(scope="module")
def rich() -> Driver:
    return rich_log()


def frame_ends(driver: Driver) -> dict[int, tuple[str, int]]:
    """Where each acked batch of the active segment ends in the file."""
    ends = {}
    for subject in driver.log.state.subjects:
        entries = subject.entries or ()
        for k in range(0, len(entries), 4):
            base, position, length = entries[k : k + 3]
            ends[position - active(driver).base + 60 + length] = (subject.name, base)
    return ends


def test_a_last_segment_cut_anywhere_is_damage_and_loses_no_sequence(rich: Driver) -> None:
    path, ends, before = active(rich).path, frame_ends(rich), next_sequences(rich)
    content = rich.files.content(path)[: active(rich).size]
    for size in range(len(content)):
        opened = spoiled(rich, path, content[:size])
        assert any("corruption" in line for line in opened.errors), f"silent at {size}"
        here = next_sequences(opened)
        assert here == {name: before[name] for name in here}
        assert {"a", "b"} <= here.keys() <= {"a", "b", "new"}
        lost = {
            batch
            for end, batch in ends.items()
            if any(content[size:end]) and batch[0] in here  # zeros come back when the file is grown
        }
        assert unreadable(opened) == lost
        assert opened.log.state.producer_ceiling == 1000
        assert opened.log.state.subjects.next_id == rich.log.state.subjects.next_id
        if size % 53 == 0:
            opened.promises = copy.deepcopy(rich.promises)
            assert_goes_on(opened)


def test_without_its_checkpoint_a_cut_segment_ends_at_its_last_whole_frame(rich: Driver) -> None:
    path, ends = active(rich).path, frame_ends(rich)
    content = rich.files.content(path)[: active(rich).size]
    for size in range(0, len(content), 3):
        files = rich.files.after_kill()
        files.unlink(active(rich).checkpoint_path)
        files.damage(path, content[:size])
        opened = reopened(rich, files)
        here = next_sequences(opened)
        for end, (name, base) in ends.items():
            if end <= size:
                assert (name, base) not in unreadable_below(opened)
                assert here[name] > base


def unreadable_below(driver: Driver) -> set[tuple[str, int]]:
    """The acked batches below the high watermark that answer with an error."""
    for told in driver.promises.subjects.values():
        subject = driver.log.state.subjects.by_topic_id.get(told.topic_id)
        if subject is not None:
            for base in list(told.acked):
                if base >= subject.readable_end:
                    driver.promises = copy.deepcopy(driver.promises)
                    del driver.promises.subjects[told.topic_id].acked[base]
    return unreadable(driver)


def test_a_derived_file_cut_anywhere_loses_nothing(rich: Driver) -> None:
    derived = [segment.index_path for segment in rich.log.state.segments[:-1]]
    derived.append(active(rich).checkpoint_path)
    for path in derived:
        content = rich.files.content(path)
        for size in range(len(content)):
            opened = spoiled(rich, path, content[:size])
            opened.check()
            assert next_sequences(opened) == next_sequences(rich)


def test_a_lost_derived_file_is_recreated(rich: Driver) -> None:
    for segment in rich.log.state.segments[:-1]:
        files = rich.files.after_kill()
        files.unlink(segment.index_path)
        opened = reopened(rich, files)
        assert [line for line in opened.errors if segment.index_path.name in line]
        opened.settle()
        opened.seal()
        again, old = files.content(segment.index_path), rich.files.content(segment.index_path)
        assert again[HEAD_SIZE:] == old[HEAD_SIZE:]
        opened.check()


def test_all_derived_files_lost_at_once_lose_nothing(rich: Driver) -> None:
    files = rich.files.after_kill()
    for name in files.listdir(rich.log.state.directory):
        if not name.endswith(".log"):
            files.unlink(rich.log.state.directory / name)
    opened = reopened(rich, files)
    opened.promises = copy.deepcopy(rich.promises)
    opened.check()
    assert next_sequences(opened) == next_sequences(rich)
    assert_goes_on(opened)
