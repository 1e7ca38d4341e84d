"""Opening the message log: replay, and telling a tear from corruption.

Replay begins at the newest segment if that has a complete preamble and is known to have been synced into,
else at the one before; further back only where a preamble is damaged. Every frame goes through LogState,
as when it was written. Then comes a frame that is not whole. Is it the end of a write that was cut off, or
damage?

- The *border* decides: the highest synced end that a checkpoint or any valid frame names, frames behind
  the bad one included. All below it was on disk and may have been acked.
- Bad and not below the border: a tear. It is cut off with all that follows, segments included, because
  unsynced pages reach the disk in any order. All that is cut off must have been readable: see below.
- Bad and below it: corruption. It stays as it is and is reported with file, position, expected and found.
  Its sequences answer their own subject with an error; all else is served. A frame with a damaged header
  is stepped over by its row in the checkpoint, never by searching.

Damage is reported once: a new segment is begun behind it, and as soon as that has its preamble, no start
reads the damaged one again. If the end of the log is missing that a checkpoint knows of, the report says
so (damage_report.py). Its sequences are not given again: a reader may have seen them. The same holds for a
newest segment whose file is gone (missing.py). Where other notes (what the delay service has filed, how far
the action log has followed) say that the log was longer, and nothing tells which messages it held there,
the log goes on behind that position, and each subject leaves sequences out.

What the disk cannot read (EIO, also when asked again; unreadable.py) reads as zeros, page by page, so
that its neighbours count. The same border decides:

- Below the border: contained like corruption. Where the header or a row of the checkpoint says where the
  frame was, its sequences stay where they are: a read asks the disk again, and answers with a storage
  error until the disk can read it. Where neither does, the frames up to the next row are lost, and that
  is reported.
- Not below it: no tear. A checkpoint is never synced, so the last acked frames may be known from nothing
  but themselves. The log is not opened, nothing is changed on disk, and one line says how to give up what
  cannot be read (unreadable.py).
- Messages for later (PARKED): the delay service learns where they lie, and asks again while it runs.
- A subject's state that no older segment holds: the log is not opened. The disk may be able to read it
  tomorrow, and a log must not forget its subjects. The same holds for frames that say what was delivered
  or cancelled (without them, the delay service would deliver that, once more), and for frames that say
  what is settled (settles.py).
- A checkpoint or an index: as if it ended there, or were missing. Both are derived.

Any other error (no descriptors, no memory, no rights) says nothing about the data: the log is not opened,
and one line says what to do.

A frame that is joined to the one behind it (parked.py, settles.py) is cut off where that one is.

All that was replayed is made durable before readers see it: what kill -9 left in the page cache is only
then safe to show. What lies above the border is written again first (disk/local_commit.py says why).
"""

from __future__ import annotations

import errno
import logging
import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.disk.segment_file import segment_name
from kumquat.core.logs.disk.unreadable import what_to_do
from kumquat.core.logs.messages.delayed import DelayListener
from kumquat.core.logs.messages.format import (
    LOG_SUFFIX,
)
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.recovery.missing import restore_missing
from kumquat.core.logs.messages.recovery.recovery import Recovery
from kumquat.core.logs.messages.recovery.replay import PreambleDamaged
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.settles import SettleListener

log = logging.getLogger("kumquat.log")


def open_log(
    files: Files,
    options: LogOptions,
    now_ms: Callable[[], int],
    listener: DelayListener | None = None,
    settles: SettleListener | None = None,
) -> MessageLog:
    """The log in the folder `messages`, made if there is none, ready to be written to. The listeners
    get all frames that they need; `listener` from then on each one that is written."""
    directory = options.directory / "messages"
    files.mkdir(directory)
    files.fsync_dir(options.directory)
    wanted = [listener.replay_from] if listener else []
    if settles is not None and settles.replay_from is not None:
        wanted.append(settles.replay_from)
    noted = max(wanted, default=0)
    restore_missing(files, directory)
    bases = _tidy(files, directory)
    if noted and not bases:
        raise StartError(
            f"{directory} holds no segment, and other files of {options.directory} were made from a log "
            f"that was synced up to position {noted}: its messages are gone. Bring it back from a copy. "
            f"To begin with an empty log: mv {options.directory} {options.directory}.bad"
        )
    needed = bisect_right(bases, min(wanted)) - 1 if wanted else len(bases)
    earliest_start = max(0, min(len(bases) - 2, needed))
    recovery = Recovery(files, options, directory, bases, listener, settles)
    start = max(0, min(recovery.choose_start(), needed))
    try:
        recovery.replay(start)
        if start > earliest_start and not recovery.preamble_complete:
            start = earliest_start
            recovery = Recovery(
                files, options, directory, _tidy(files, directory), listener, settles
            )
            recovery.replay(start)
    except PreambleDamaged as damage:
        older = recovery.whole_before(start)
        if older is not None:
            log.error("%s; starting from %s", damage, segment_name(bases[older], LOG_SUFFIX))
        elif recovery.met_unreadable:
            reason = os.strerror(errno.EIO)
            raise StartError(f"{damage}: {reason}. {what_to_do(damage.path)}") from damage
        else:
            log.error(
                "%s, and there is no older segment to tell: its subject is not served", damage
            )
        left = _tidy(files, directory)
        recovery = Recovery(files, options, directory, left, listener, settles, forgiving=True)
        recovery.replay(start if older is None else older)
    recovery.go_on_behind(noted)
    return recovery.finish(now_ms)


def _tidy(files: Files, directory: Path) -> list[int]:
    """The bases of all segments; what a cut left half-made is removed."""
    bases = []
    for name in files.listdir(directory):
        path = directory / name
        if path.suffix == ".tmp":
            files.unlink(path)
        elif path.suffix == LOG_SUFFIX and path.stem.isdigit():
            bases.append(int(path.stem))
    return sorted(bases)


def indexed_again(files: Files, options: LogOptions, segment: Segment) -> tuple[Segment, bool]:
    """A sealed segment with all that its index is made of, from its frames; and whether some of these are
    damaged. OSError: a part cannot be read now."""
    recovery = Recovery(files, options, segment.directory, [segment.base], forgiving=True)
    return recovery.indexed(segment.end)
