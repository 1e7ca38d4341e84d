"""Several things broken at once: the log still opens, never gives wrong bytes, and can be written
to.

With one fault little is lost (test_bit_flips.py, test_truncation.py). With several, more may be:
here only what must never happen is ruled out. Messages may be missing or answer with an error;
they are never others than those written.
"""

import copy
from random import Random

import pytest

from kumquat.core.errors import CorruptMessage
from kumquat.core.logs.tests.batches import body
from kumquat.core.logs.tests.damage import flipped, reopened, rich_log
from kumquat.core.logs.tests.driver import Driver, errors_told
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.records.batch import read_head


@pytest.fixture(scope="module")
def rich() -> Driver:
    return rich_log()


def break_something(files: FakeFiles, driver: Driver, rng: Random) -> None:
    directory = driver.log.state.directory
    path = directory / rng.choice(sorted(files.listdir(directory)))
    content = files.content(path)
    how = rng.randrange(4)
    if how == 0 and path.suffix != ".log":
        files.unlink(path)
    elif how == 1 and content:
        files.damage(path, content[: rng.randrange(len(content))])
    elif how == 2 and content:
        at = rng.randrange(len(content))
        files.damage(path, content[:at] + bytes(rng.randrange(1, 600)) + content[at:])
    elif content:
        files.damage(path, flipped(content, rng.randrange(len(content))))


def assert_nothing_wrong_is_read(driver: Driver) -> None:
    for subject in list(driver.log.state.subjects):
        told = driver.promises.subjects.get(subject.topic_id)
        assert told is not None, "a subject that nobody made"
        at = subject.earliest
        while at < subject.readable_end:
            try:
                data = driver.reader.read(subject, at, 1, True, nowait=False)[0]
            except CorruptMessage:
                at += 1
                continue
            head = read_head(data)
            assert head.base_offset <= at < head.base_offset + head.record_count
            assert body(data) in told.tried[head.base_offset]
            at = head.base_offset + head.record_count


def test_no_damage_gives_wrong_bytes_or_stops_the_start(rich: Driver) -> None:
    for seed in (*range(225), 999, 1314):
        rng = Random(seed)
        files = rich.files.after_kill()
        for _ in range(rng.randrange(1, 4)):
            break_something(files, rich, rng)
        try:
            with errors_told():
                opened = reopened(rich, files)
                opened.promises = copy.deepcopy(rich.promises)
                assert_nothing_wrong_is_read(opened)
                bases = {
                    subject.name: opened.append(subject.name, 30).base_sequence
                    for subject in list(opened.log.state.subjects)
                }
                opened.settle()
                assert_nothing_wrong_is_read(opened)
                opened.start()
                assert_nothing_wrong_is_read(opened)
                for name, base in bases.items():
                    last = opened.reader.read(opened.subject(name), base, 1, True, nowait=False)[0]
                    assert read_head(last).base_offset == base
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
