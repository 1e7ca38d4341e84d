"""Files that were deleted and whose room the disk cannot have back, because a handle is left open."""

from pathlib import Path

from kumquat.core.logs.disk.files import write_file_atomically
from kumquat.core.logs.messages.segment import OpenFiles
from kumquat.core.logs.tests.power import FakeFiles


def test_a_file_that_is_deleted_under_a_reader_is_closed_when_the_last_one_is_done() -> None:
    files = FakeFiles(Path("/data"))
    path = Path("/data/segment")
    handles = OpenFiles(files)
    files.close(files.open(path, create=True))
    with handles.pinned(path):
        with handles.pinned(path):
            files.unlink(path)
            handles.forget(path)
            assert files.open_handles() == 1
        assert files.open_handles() == 1, "one is still reading"
    assert files.open_handles() == 0
    assert len(handles) == 0


def test_a_file_that_is_made_again_under_the_same_name_is_not_the_old_one() -> None:
    files = FakeFiles(Path("/data"))
    path = Path("/data/segment")
    handles = OpenFiles(files)
    files.close(files.open(path, create=True))
    with handles.pinned(path) as old:
        files.unlink(path)
        handles.forget(path)
        files.close(files.open(path, create=True))
    with handles.pinned(path) as new:
        assert new != old


def test_who_comes_while_the_old_file_is_still_read_gets_the_old_one() -> None:
    """An index that was made again: its readers must not find the damaged one."""
    files = FakeFiles(Path("/data"))
    path = Path("/data/index")
    write_file_atomically(files, path, b"old")
    handles = OpenFiles(files)
    with handles.pinned(path) as old:
        write_file_atomically(files, path, b"new")
        handles.forget(path)
        with handles.pinned(path) as new:
            assert files.pread(new, 3, 0) == b"new"
        assert files.pread(old, 3, 0) == b"old"
    handles.close()
    assert files.open_handles() == 0
