"""Commit on a disk that loses what was not synced: nobody is told that a byte is durable when a power cut
can take it, everybody is told once, and after a failed sync nobody is told anything but that.
"""

import errno
import logging
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.disk import local_commit
from kumquat.core.logs.disk.active_file import Reserving
from kumquat.core.logs.disk.commit import Round
from kumquat.core.logs.disk.local_commit import FAST_ROUNDS, TRIES, LocalCommit, rewrite_unsynced
from kumquat.core.logs.disk.segment_file import SegmentFile, segment_name
from kumquat.core.logs.tests.power import FakeFiles, Fault

DATA = Path("/data")
LOG = logging.getLogger("kumquat.log")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_commit, "RETRY_SECONDS", 0.0)


def path_of(base: int) -> Path:
    return DATA / segment_name(base, ".test")


class Commits:
    """A log of nothing but bytes, and what its commit has said."""

    def __init__(self) -> None:
        self.files = FakeFiles(DATA)
        self.commit = LocalCommit(self.files, DATA, "the log", Reserving(1000, 4000), LOG)
        self.content = b""
        self.bases: list[int] = []
        self.shown = 0
        """What `done` has shown to readers."""
        self.called: dict[int, list[KumquatError | None]] = {}
        self.roll(b"first")

    def roll(self, begin: bytes) -> None:
        base = self.commit.written
        fd = self.files.open(path_of(base), exclusive=True)
        self.files.pwritev(fd, [begin], 0)
        release = partial(self.files.close, fd)
        self.commit.roll_to(path_of(base), fd, base, len(begin), release)
        self.bases.append(base)
        self.content += begin

    @property
    def can_roll(self) -> bool:
        return self.bases[-1] < self.commit.written == self.commit.in_file

    def append(self, data: bytes) -> int:
        end = self.commit.append([data[:2], data[2:]])
        self.content += data
        assert end == len(self.content)
        return end

    def wait(self, position: int) -> None:
        answers = self.called.setdefault(len(self.called), [])

        def called(error: KumquatError | None) -> None:
            answers.append(error)
            if error is None:
                assert position <= self.commit.durable
                assert position <= self.shown, "an ack before readers may see it"

        self.commit.call_when_durable(position, called)

    def begin(self) -> Round:
        target = self.commit.written

        def done() -> None:
            self.shown = target

        return self.commit.begin_round(lambda _: None, done)

    def end(self, begun: Round, fault: Fault | None = None) -> None:
        if fault is not None:
            self.files.fail(fault)
        try:
            begun.run()
        except OSError as error:
            self.commit.end_round(begun, error)
        else:
            self.commit.end_round(begun)

    def check_power_cut(self, seed: int) -> None:
        """All that was said to be durable is there."""
        self._check(self.files.after_power_cut(Random(seed)), self.commit.durable)

    def check_kill(self) -> None:
        """All that was said to be in the file is there."""
        self._check(self.files.after_kill(), self.commit.in_file)

    def _check(self, left: FakeFiles, durable: int) -> None:
        for base, following in zip(self.bases, [*self.bases[1:], len(self.content)], strict=True):
            end = min(durable, following)
            if base < end:
                assert left.content(path_of(base))[: end - base] == self.content[base:end]


class CommitMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = Commits()
        self.round: Round | None = None
        self.failed_at: int | None = None
        logging.disable(logging.CRITICAL)

    def teardown(self) -> None:
        if self.round is not None:
            self.log.end(self.round)
        self.log.commit.close()
        assert all(len(answers) == 1 for answers in self.log.called.values())
        assert not self.log.files.open_handles(), "a file is left open"
        logging.disable(logging.NOTSET)

    @rule(data=st.binary(min_size=1, max_size=600))
    def append(self, data: bytes) -> None:
        if self.failed_at is None:
            self.log.append(data)
        else:
            with pytest.raises(StorageError, match="fenced"):
                self.log.commit.append([data])

    @rule(slow=st.booleans())
    def disk(self, slow: bool) -> None:
        self.log.files.call_seconds = 1.0 if slow else 0.0

    @precondition(lambda self: self.failed_at is None and not self.log.commit._defers)
    @rule(data=st.binary(min_size=1, max_size=600), part=st.integers(0, 599))
    def append_short(self, data: bytes, part: int) -> None:
        before = self.log.commit.written
        self.log.files.fail(Fault("pwritev", errno.ENOSPC, written=min(part, len(data) - 1)))
        with pytest.raises(StorageError, match="cannot be written"):
            self.log.commit.append([data])
        self.log.files.heal()
        assert self.log.commit.written == before

    @precondition(lambda self: self.failed_at is None and self.log.can_roll)
    @rule(begin=st.binary(min_size=1, max_size=50))
    def roll(self, begin: bytes) -> None:
        self.log.roll(begin)

    @rule(back=st.integers(0, 1000))
    def wait(self, back: int) -> None:
        self.log.wait(max(0, self.log.commit.written - back))

    @precondition(lambda self: self.log.commit.wants_round)
    @rule()
    def begin(self) -> None:
        assert self.round is None
        self.round = self.log.begin()

    @precondition(lambda self: self.round is not None)
    @rule()
    def end(self) -> None:
        assert self.round is not None
        ended, self.round = self.round, None
        self.log.end(ended)
        assert self.log.commit.durable == ended.target

    @precondition(lambda self: self.round is not None)
    @rule(operation=st.sampled_from(["fdatasync", "fsync_dir", "pwritev"]))
    def fail(self, operation: str) -> None:
        assert self.round is not None
        ended, self.round = self.round, None
        self.log.end(ended, Fault(operation, errno.EIO))
        self.log.files.heal()
        if self.log.commit.fenced is not None:
            self.failed_at = self.log.commit.durable

    @rule(seed=st.integers(0, 1000))
    def cut_power(self, seed: int) -> None:
        self.log.check_power_cut(seed)

    @rule()
    def kill(self) -> None:
        self.log.check_kill()

    @invariant()
    def positions_are_in_order(self) -> None:
        commit = self.log.commit
        target = commit.written if self.round is None else self.round.target
        assert commit.durable <= target <= commit.written
        assert commit.durable <= commit.in_file <= commit.written
        if self.failed_at is not None:
            assert commit.durable == self.failed_at, "something became durable behind a failed sync"
            assert not commit.wants_round, "a failed sync is tried again"
            assert all(self.log.called.values()), "somebody waits for a fenced log"


TestCommitMachine = CommitMachine.TestCase
TestCommitMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_callback_that_raises_does_not_keep_the_others_from_being_called() -> None:
    log = Commits()

    def bad(_: KumquatError | None) -> None:
        raise ValueError("a mistake")

    log.commit.call_when_durable(log.commit.written, bad)
    log.wait(log.commit.written)
    log.end(log.begin())
    assert log.called == {0: [None]}


def test_a_note_that_cannot_be_written_does_not_fail_the_round() -> None:
    log = Commits()

    def note(_: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    log.end(log.commit.begin_round(note, lambda: None))
    assert (log.commit.durable, log.commit.fenced) == (5, None)


def test_a_segment_that_could_not_be_begun_and_not_be_removed_fences_the_log() -> None:
    log = Commits()
    log.end(log.begin())
    log.files.open(path_of(77), exclusive=True)
    log.files.fail(Fault("fsync_dir", errno.EIO))
    log.commit.remove_new(path_of(77))
    with pytest.raises(StorageError, match="fenced"):
        log.commit.append([b"more"])


def test_a_round_that_ends_well_after_the_log_was_fenced_makes_nothing_durable() -> None:
    log = Commits()
    log.wait(log.commit.written)
    begun = log.begin()
    log.files.open(path_of(77), exclusive=True)
    log.files.fail(Fault("fsync_dir", errno.EIO))
    log.commit.remove_new(path_of(77))
    log.end(begun)
    log.wait(log.commit.written)
    assert (log.commit.durable, log.shown) == (0, 0)
    assert [type(answer) for answers in log.called.values() for answer in answers] == [
        StorageError,
        StorageError,
    ]


def test_pages_that_a_failed_sync_has_left_clean_are_written_again_by_the_next_start() -> None:
    log = Commits()
    log.end(log.begin())
    durable = log.commit.durable
    log.append(b"x" * 5000)
    log.end(log.begin(), Fault("fdatasync", errno.EIO))
    files = log.files.after_kill()
    with SegmentFile(files, path_of(0), 0, around=True) as file:
        rewrite_unsynced(file, durable, len(log.content))
    for seed in range(30):
        left = files.after_power_cut(Random(seed))
        assert left.content(path_of(0))[: len(log.content)] == log.content


def test_those_who_wait_when_the_log_is_closed_are_told() -> None:
    log = Commits()
    log.wait(log.commit.written)
    log.commit.close()
    assert [type(answer) for answer in log.called[0]] == [StorageError]


# --- a slow disk ---------------------------------------------------------------------------------


def slow_log() -> Commits:
    """One whose next write is left to a round."""
    log = Commits()
    log.files.call_seconds = 1.0
    log.append(b"slow")
    log.end(log.begin())
    return log


def test_after_a_slow_write_the_loop_writes_nothing_and_the_round_writes_it_before_it_syncs() -> (
    None
):
    log = slow_log()
    before = log.files.content(path_of(0))
    log.append(b"one")
    log.append(b"two")
    assert log.files.content(path_of(0))[: len(before)] == before
    assert (log.commit.in_file, log.commit.written) == (9, 15)
    log.wait(15)
    begun = log.begin()
    log.append(b"three")
    assert log.commit.in_file == 9
    log.end(begun)
    assert (log.commit.in_file, log.commit.durable, log.called) == (15, 15, {0: [None]})
    log.end(log.begin())
    assert log.files.content(path_of(0))[:20] == b"firstslowonetwothree"
    log.check_power_cut(1)


def test_a_deferred_write_that_fails_for_a_moment_is_made_again_and_nothing_is_lost() -> None:
    log = slow_log()
    log.append(b"one")
    log.wait(log.commit.written)
    log.end(log.begin(), Fault("pwritev", errno.EIO, times=TRIES - 1, written=1))
    assert log.called == {0: [None]}
    assert log.commit.fenced is None
    log.check_power_cut(1)


def test_a_deferred_write_that_goes_on_failing_fences_the_log_and_is_told_to_be_in_no_file() -> (
    None
):
    log = slow_log()
    log.append(b"one")
    log.wait(log.commit.written)
    log.end(log.begin(), Fault("pwritev", errno.EIO, times=None))
    assert log.commit.fenced is not None
    assert [type(answer) for answer in log.called[0]] == [StorageError]
    assert (log.commit.in_file, log.commit.durable) == (9, 9)


def test_a_full_disk_refuses_a_deferred_write_before_it_is_placed() -> None:
    log = slow_log()
    log.files.fail(Fault("reserve", errno.ENOSPC, times=None))
    with pytest.raises(StorageError, match="cannot be written"):
        log.commit.append([b"x" * 5000])
    log.files.heal()
    assert log.commit.written == 9
    log.append(b"y" * 5000)
    log.end(log.begin())
    assert log.commit.durable == 5009
    log.check_power_cut(1)


def test_a_disk_that_is_fast_again_is_written_at_once_again_and_what_is_left_goes_first() -> None:
    log = slow_log()
    log.files.call_seconds = 0.0
    begun = None
    for number in range(FAST_ROUNDS + 1):
        log.append(b"%d" % number)
        if begun is not None:
            log.end(begun)
        begun = log.begin() if number < FAST_ROUNDS else None
    assert log.commit.in_file == log.commit.written
    log.append(b"direct")
    assert log.commit.in_file == log.commit.written
    log.check_kill()
