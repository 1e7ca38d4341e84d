"""Two brokers on one folder, and folders of another format."""

import errno
import os
from pathlib import Path

import pytest

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.files import RealFiles
from kumquat.core.logs.disk.folder import Folder
from kumquat.core.logs.tests.power import FakeFiles, Fault


def test_a_second_broker_is_refused_and_told_the_pid_of_the_first(tmp_path: Path) -> None:
    first = Folder(tmp_path / "data", RealFiles())
    with pytest.raises(StartError, match=rf"pid {os.getpid()}\b"):
        Folder(tmp_path / "data", RealFiles())
    first.close()
    Folder(tmp_path / "data", RealFiles()).close()


def test_a_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    Folder(tmp_path, RealFiles()).close()
    (tmp_path / "meta.properties").write_text("version=99\n")
    with pytest.raises(StartError, match="version 99"):
        Folder(tmp_path, RealFiles())
    (tmp_path / "meta.properties").write_text("version=1\n")
    Folder(tmp_path, RealFiles()).close()


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot be used"):
        Folder(tmp_path / "file" / "data", RealFiles())


@pytest.mark.parametrize("operation", ["open", "pread", "pwritev", "rename", "fsync_dir"])
def test_a_folder_whose_format_cannot_be_told_is_one_clear_line_and_is_let_go(
    tmp_path: Path, operation: str
) -> None:
    files = FakeFiles(tmp_path)
    if operation == "pread":
        Folder(tmp_path, files).close()
    files.fail(Fault(operation, errno.EMFILE))
    with pytest.raises(StartError, match="cannot be used"):
        Folder(tmp_path, files)
    Folder(tmp_path, files).close()
