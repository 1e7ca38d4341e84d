"""Closing, measuring or removing a schedule file fails: no handle and no file may be left behind."""

import errno
import os
from pathlib import Path

import pytest

from kumquat.core.logs.tests.power import FakeFiles, Fault
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.tests.schedules import (
    DATA,
    FOLDER,
    NOON,
    Fill,
    messages_of,
    parked,
)
from kumquat.core.wheel.files.writing.merge import merge


class Unwell(FakeFiles):
    """The next call of an operation fails; a close has closed all the same."""

    def __init__(self) -> None:
        super().__init__(DATA)
        self.mkdir(FOLDER)
        self.next_to_fail = ""

    def close(self, fd: int) -> None:
        super().close(fd)
        self._fail_if("close")

    def size(self, fd: int) -> int:
        self._fail_if("size")
        return super().size(fd)

    def _fail_if(self, operation: str) -> None:
        if self.next_to_fail == operation:
            self.next_to_fail = ""
            raise OSError(errno.EIO, os.strerror(errno.EIO))


FILL = Fill((0, 100), [parked(NOON, 1), parked(NOON, 2)])


def test_a_file_whose_size_cannot_be_told_is_not_left_open() -> None:
    files = Unwell()
    file = FILL.write(files)
    file.close()
    files.next_to_fail = "size"
    with pytest.raises(OSError, match="Input/output"):
        ScheduleFile(files, file.path)
    assert files.open_handles() == 0


def test_a_close_that_fails_ends_no_stop() -> None:
    files = Unwell()
    file_set = FileSet(files, DATA)
    for k in range(2):
        file = Fill((100 * k, 100 * k + 100), [parked(NOON, 100 * k)]).write(files)
        file_set.add(file, file_set.manifest)
    files.next_to_fail = "close"
    file_set.close()
    assert files.open_handles() == 0


def test_a_file_that_could_not_be_closed_is_not_left_half_written() -> None:
    files = Unwell()
    files.next_to_fail = "close"
    with pytest.raises(OSError, match="Input/output"):
        FILL.write(files)
    assert files.listdir(FOLDER) == []
    assert files.open_handles() == 0
    assert messages_of(FILL.write(files)) == FILL.parked


def test_what_a_merge_wrote_beside_its_file_is_removed_though_a_close_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kumquat.core.wheel.files.writing.merge.HELD", 1)
    files = Unwell()
    inputs = [FILL.write(files), Fill((100, 200), [parked(NOON, 101)]).write(files)]
    whole = sorted(files.listdir(FOLDER))
    close = files.close

    def fail_at_spools(fd: int) -> None:
        path = files._handles[fd].path
        close(fd)
        if path.suffix != ".schedule" and not path.name.endswith(".schedule.tmp"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "close", fail_at_spools)
    merged = merge(files, inputs, FOLDER, 0, lambda _: True)
    assert merged is not None
    assert sorted(files.listdir(FOLDER)) == sorted([*whole, merged.path.name])


def test_a_file_that_cannot_be_removed_keeps_no_other_from_it_and_is_tried_again() -> None:
    files = Unwell()
    file_set = FileSet(files, DATA)
    spare = [Fill((100 * k, 100 * k + 100), [parked(NOON, 100 * k)]).write(files) for k in range(3)]
    files.fail(Fault("unlink", errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        file_set.remove(spare)
    assert files.open_handles() == 0
    assert left(files) == [spare[0].path.name]
    file_set.remove([])
    assert left(files) == []


def left(files: FakeFiles) -> list[str]:
    return [name for name in files.listdir(FOLDER) if Path(name).suffix == ".schedule"]
