"""Members of a benchmark must not report work that was not done, nor hide what was done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.load.members import Marks, MemberProcess, Work
from bench.load.numbered import Writer
from kumquat.gateway.testing.broker import broker


def test_marks_know_what_is_left_and_what_came_twice() -> None:
    with Marks(5) as marks, Marks(5, Path(marks.path)) as same:
        for number in (0, 1, 1, 3):
            same.bytes[number] += 1
        assert marks.left() == 2
        assert marks.twice() == 1
        marks.wait(3, seconds=0)
        with pytest.raises(RuntimeError, match="2 of 5"):
            marks.wait(seconds=0)
    assert not Path(marks.path).exists()


def test_members_handle_every_message_and_says_when() -> None:
    count = 500
    with broker() as running, Marks(count) as marks:
        writer = Writer(running.bootstrap, "work", 100)
        work = Work(running.bootstrap, "members", "work", marks.path, members=1, handler_ms=0.1)
        process = MemberProcess(work)
        try:
            writer.write(count)
            process.wait_assigned()
            marks.wait(seconds=120)
            (result,) = process.stop()
        finally:
            process.kill()
        assert result.handled == count
        assert marks.twice() == 0
        assert result.first_at < result.last_at
        assert 0 < result.longest_gap <= result.last_at - result.first_at
