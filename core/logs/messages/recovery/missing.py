"""Newest segments whose files are gone while other files tell of them.

A checkpoint tells which frames of a segment were synced, and an index what a sealed segment held. Where one
is there for a segment that is newer than all files of the log, that file was lost: nothing deletes the
newest segment. The segment gets an empty file, and is replayed like one whose end is missing, from its
first byte on (opening.py): the loss is reported, and neither positions nor sequences are given again.

An older segment whose file is gone needs none of this: the one before it seems to lack its end.
"""

from __future__ import annotations

from pathlib import Path

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.messages.format import CHECKPOINT_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX
from kumquat.core.logs.messages.index import Head, IndexDamaged, Row, Rows, load_head, load_rows
from kumquat.core.logs.messages.recovery import checkpoint as checkpoints
from kumquat.core.logs.messages.segment import Segment


def restore_missing(files: Files, directory: Path) -> None:
    """Give each newest segment that is known to have been there an empty file, if it has none."""
    names = [Path(name) for name in files.listdir(directory)]
    numbered = [name for name in names if name.stem.isdigit()]
    newest = max((int(n.stem) for n in numbered if n.suffix == LOG_SUFFIX), default=-1)
    told = {int(n.stem) for n in numbered if n.suffix in (CHECKPOINT_SUFFIX, INDEX_SUFFIX)}
    for base in sorted(base for base in told if base > newest):
        segment = Segment(directory, base)
        synced_end = checkpoints.load(files, segment.checkpoint_path).synced_end
        if max(synced_end, noted_end(files, segment)) > base:
            files.close(files.open(segment.path, create=True))


def noted_end(files: Files, segment: Segment) -> int:
    """Where a segment ended by its index; 0 where there is none that is whole. What an index tells of was
    synced before it was written."""
    head = _head(files, segment)
    return 0 if head is None else head.end


def noted_rows(files: Files, segment: Segment) -> list[Row]:
    """The next sequences of all subjects at the end of a segment, by its index; none where there is none
    that is whole."""
    head = _head(files, segment)
    if head is None:
        return []
    try:
        rows: Rows = load_rows(files, segment, head)
    except IndexDamaged:
        return []
    return [rows.at(i) for i in range(len(rows))]


def _head(files: Files, segment: Segment) -> Head | None:
    try:
        return load_head(files, segment, any_end=True)
    except IndexDamaged:
        return None
