"""What is in a file of keys, for `kumquat dump`: a line for each subject, and where and why it is bad."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from kumquat.core.logs.disk.files import RealFiles
from kumquat.core.logs.messages.keys.files import KeyFiles
from kumquat.core.logs.messages.keys.format import COMPLETE, ENTRY_SIZE, KeysDamaged, read_bounds
from kumquat.core.logs.messages.segment import OpenFiles, Segment


def dump_keys(path: Path, out: TextIO) -> int:
    """0: all of it is whole. The file alone is looked at: whether it fits its segment is not known."""
    open_files = OpenFiles(RealFiles())
    files, segment, bad, entries = KeyFiles(open_files), Segment(path.parent, int(path.stem)), 0, 0
    try:
        segment.end = read_bounds(path.read_bytes()[:64])[1]
        rows = files.rows(segment)
        assert rows is not None
        for row in map(rows.at, range(rows.count)):
            state = "complete" if row.state == COMPLETE else "to be scanned"
            print(
                f"subject={row.subject_id} {state} messages={row.entries} pages={row.pages}",
                file=out,
            )
            for number in range(row.pages):
                try:
                    entries += len(files.page(segment, rows, row, number)) // ENTRY_SIZE
                except KeysDamaged as damage:
                    print(f"    BAD: {damage}", file=out)
                    bad += 1
        print(f"{path}: {rows.count} subjects, {entries} messages, {bad} bad", file=out)
    except KeysDamaged as damage:
        print(f"{path}: BAD: {damage}", file=out)
        bad += 1
    finally:
        open_files.close()
    return 1 if bad else 0
