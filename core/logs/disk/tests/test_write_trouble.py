"""Writes that fail are told of: at once, in a bounded number of lines, and not as over while more fail."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.logs.disk.write_trouble import HOLD_SECONDS, INTERVAL_SECONDS, WriteTrouble

PATH = Path("0.log")
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelno, record.getMessage()))


class Rig:
    def __init__(self) -> None:
        self.now = 1000.0
        self.lines = Lines()
        logger = logging.Logger("test")
        logger.addHandler(self.lines)
        self.trouble = WriteTrouble(logger, lambda: self.now)

    @property
    def said(self) -> list[str]:
        return [text for _, text in self.lines.said]

    def write(self, works: bool) -> None:
        """As ActiveFile does it."""
        if not works:
            self.trouble.failed(PATH, FULL)
        elif self.trouble.reason is not None:
            self.trouble.worked(PATH)


def test_a_disk_that_takes_every_other_write_is_one_line() -> None:
    rig = Rig()
    for number in range(242):
        rig.write(works=bool(number % 2))
        rig.now += 0.1
    assert len(rig.said) == 1
    assert "cannot write to 0.log" in rig.said[0]
    assert rig.trouble.reason == "No space left on device"


def test_the_end_is_told_once_when_it_has_held() -> None:
    rig = Rig()
    for _ in range(5):
        rig.write(works=False)
    rig.write(works=True)
    rig.now += HOLD_SECONDS - 1
    rig.write(works=True)
    assert len(rig.said) == 1
    rig.now += 1
    for _ in range(3):
        rig.write(works=True)
    assert rig.said[1:] == ["0.log can be written again (5 writes failed)"]
    assert rig.trouble.reason is None
    rig.write(works=False)
    assert "cannot write" in rig.said[2]


def test_what_goes_on_is_told_each_minute_with_a_count() -> None:
    rig = Rig()
    for _ in range(130):
        rig.write(works=False)
        rig.now += 1
    assert len(rig.said) == 3
    assert "61 failed since" in rig.said[1]
    assert "60 failed since" in rig.said[2]


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 30))))
def test_no_course_of_events_floods_the_log_or_hides_a_failure(
    writes: list[tuple[bool, float]],
) -> None:
    rig = Rig()
    began, last_failure = rig.now, None
    for works, pause in writes:
        rig.write(works)
        if not works:
            last_failure = rig.now
        recent = last_failure is not None and rig.now - last_failure < HOLD_SECONDS
        assert not recent or rig.trouble.reason is not None
        rig.now += pause
    errors = [text for level, text in rig.lines.said if level == logging.ERROR]
    ends = [text for level, text in rig.lines.said if level == logging.WARNING]
    assert bool(errors) is any(not works for works, _ in writes)
    elapsed = rig.now - began
    assert len(ends) <= elapsed / HOLD_SECONDS
    assert len(errors) <= 1 + len(ends) + elapsed / INTERVAL_SECONDS


@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT, errno.EMFILE])
def test_the_reason_is_the_machines(code: int) -> None:
    rig = Rig()
    rig.trouble.failed(PATH, OSError(code, os.strerror(code)))
    assert rig.trouble.reason == os.strerror(code)
