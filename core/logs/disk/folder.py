"""The data folder: one broker at a time, and only a format that this version knows.

`.lock` is held with flock while the broker runs and names its pid; the kernel lets go of it however the
process ends. `meta.properties` says which format the folder has, as Kafka's file of that name does.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.files import Files, write_file_atomically
from kumquat.core.logs.disk.unreadable import read_patiently

FORMAT = 1


class Folder:
    """Holds the lock from its making to `close`."""

    def __init__(self, directory: Path, files: Files) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StartError(f"the data folder {directory} cannot be used: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._lock, 32).decode(errors="replace").strip()
            os.close(self._lock)
            raise StartError(
                f"the data folder {directory} is in use by another broker, pid {owner}: stop that one, "
                "or give this one a folder of its own (log.dirs)"
            ) from None
        os.truncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        try:
            self._check_format(directory / "meta.properties", files)
        except OSError as error:
            self.close()
            raise StartError(f"the data folder {directory} cannot be used: {error}") from error
        except BaseException:
            self.close()
            raise

    def _check_format(self, path: Path, files: Files) -> None:
        if not files.exists(path):
            text = f"# Written by Kumquat. The format of this folder.\nversion={FORMAT}\n"
            write_file_atomically(files, path, text.encode())
            return
        fd = files.open(path, readonly=True)
        try:
            text = read_patiently(files, fd, files.size(fd), 0).decode(errors="replace")
        finally:
            files.close(fd)
        lines = [line.strip() for line in text.splitlines()]
        found = [line.removeprefix("version=") for line in lines if line.startswith("version=")]
        if found != [str(FORMAT)]:
            raise StartError(
                f"{path} says format version {', '.join(found) or '(none)'}, this Kumquat knows {FORMAT}: "
                "use the version that wrote the folder"
            )

    def close(self) -> None:
        os.close(self._lock)
