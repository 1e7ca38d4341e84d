"""When the disk does not give bytes: which errors say something about the data, and which do not.

- *Damage*: the device or the file system says that these bytes cannot be read (EIO, and what file systems
  answer when their own checksums fail). It may pass, so the read is tried again before it counts.
- *Trouble*: everything else (no descriptors, no memory, no permission). It says nothing about the data.
  It is raised, and the caller tries again later, or does not start.

A start that needs bytes which cannot be read is refused (`refusal`), and nothing on disk is changed. An
operator who wants to start without them copies the file with zeros in their place: zeros are treated as a
tear or as corruption.

`read_around` reads what can be read: an error of the device for one page costs that page and not its
neighbours. A read that gives less than there is in the file is continued.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from kumquat.core.errors import StartError, StorageError
from kumquat.core.logs.disk.files import Files

PAGE = 4096
_DAMAGE = frozenset({errno.EIO, errno.ENODATA, errno.EBADMSG, errno.EUCLEAN, errno.EREMOTEIO})
_PAUSES_SECONDS = (0.02, 0.2)
"""How long an error of the device has to pass, before each further try."""
_MOST_BAD_PAGES = 16
"""Of one read, after which the rest of it counts as unreadable: a dying disk takes seconds for each."""

Holes = list[tuple[int, int]]
"""Ranges of offsets that cannot be read, each as begin and end."""


def is_damage(error: OSError) -> bool:
    """Whether an error says that the bytes cannot be read, and not that something else failed."""
    return error.errno in _DAMAGE


def advice(error: OSError) -> str:
    """What to do about an error that keeps a log from being opened."""
    todo = {
        errno.EMFILE: "; raise the limit of open files (ulimit -n) and start again",
        errno.ENFILE: "; raise the system's limit of open files (fs.file-max) and start again",
        errno.ENOMEM: "; give it more memory and start again",
        errno.ENOSPC: "; make room on the disk and start again",
        errno.EACCES: "; give this user the rights to the folder and start again",
        errno.EROFS: "; mount the file system for writing and start again",
    }
    if is_damage(error):
        return "; check the disk (dmesg says more) and start again"
    return todo.get(error.errno or 0, "")


def not_opened(what: str, error: OSError | StorageError) -> StartError:
    """Why a log is not opened, and what to do about it, in one line."""
    cause = error if isinstance(error, OSError) else error.__cause__
    todo = advice(cause) if isinstance(cause, OSError) else ""
    return StartError(f"{what} cannot be opened: {error}{todo}")


def refusal(path: Path, position: int, base: int, what: str) -> StartError:
    """Why a log is not opened: a position of the file, which begins at `base`, cannot be read."""
    return StartError(
        f"{path}: the disk cannot read position {position} (byte {position - base} of the file): "
        f"{os.strerror(errno.EIO)}. The log is not opened: {what}. {what_to_do(path)}"
    )


def what_to_do(path: Path) -> str:
    """What makes a log open again of which a file cannot be read."""
    return (
        "Check the disk (dmesg says more) and start again. "
        f"To give up what cannot be read, for good: mv {path} {path}.bad && "
        f"dd if={path}.bad of={path} bs={PAGE} conv=noerror,sync"
    )


def read_patiently(files: Files, fd: int, size: int, offset: int) -> bytes:
    """Blocks: `size` bytes that lie within the file. Damage is raised when it shows three times."""
    parts: list[bytes] = []
    tries = 0
    while size > 0:
        try:
            data = files.pread(fd, size, offset)
        except OSError as error:
            if not is_damage(error) or tries == len(_PAUSES_SECONDS):
                raise
            time.sleep(_PAUSES_SECONDS[tries])
            tries += 1
            continue
        if not data:
            break
        parts.append(data)
        size -= len(data)
        offset += len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_around(files: Files, fd: int, size: int, offset: int) -> tuple[bytes, Holes]:
    """Blocks: `size` bytes that lie within the file, with zeros where it cannot be read; and where that
    is."""
    try:
        return read_patiently(files, fd, size, offset), []
    except OSError as error:
        if not is_damage(error):
            raise
    parts: list[bytes] = []
    holes: Holes = []
    end, at = offset + size, offset
    while at < end:
        behind = min(end, (at // PAGE + 1) * PAGE)
        if len(holes) >= _MOST_BAD_PAGES:
            behind = end
        part = _page(files, fd, behind - at, at) if len(holes) < _MOST_BAD_PAGES else None
        if part is None:
            holes.append((at, behind))
        parts.append((part or b"").ljust(behind - at, b"\0"))
        at = behind
    return b"".join(parts), holes


def _page(files: Files, fd: int, size: int, offset: int) -> bytes | None:
    try:
        return files.pread(fd, size, offset)
    except OSError as error:
        if not is_damage(error):
            raise
        return None
