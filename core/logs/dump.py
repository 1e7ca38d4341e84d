"""`kumquat dump FILE`: what is in a segment of the message or the action log, an index, a file of keys or a
checkpoint, and where and why it is bad.

It reads the file alone, so it works on a copy, without a broker. A line for each frame or row; the last
line sums up. It gives 0 when all is whole, 1 when something is not, 2 when the file is none of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from kumquat.core.logs.actions.dump import dump_actions
from kumquat.core.logs.actions.format import SUFFIX as ACTIONS_SUFFIX
from kumquat.core.logs.disk.files import RealFiles
from kumquat.core.logs.messages.format import (
    CHECKPOINT_SUFFIX,
    INDEX_SUFFIX,
    KEYS_SUFFIX,
    KIND_NAMES,
    LOG_SUFFIX,
    MESSAGES,
    SEGMENT_START,
    SETTLES,
    SUBJECT_CREATED,
    SUBJECT_STATE,
    FrameHeader,
    parse_segment_start,
    parse_subject_state,
)
from kumquat.core.logs.messages.index import IndexDamaged, Indexes
from kumquat.core.logs.messages.keys.dump import dump_keys
from kumquat.core.logs.messages.recovery import checkpoint
from kumquat.core.logs.messages.recovery.scan import Frames, payload_damage
from kumquat.core.logs.messages.segment import OpenFiles, Segment
from kumquat.core.logs.messages.settles import UnknownItem, settles_of
from kumquat.core.logs.messages.subject import ENTRY
from kumquat.core.records import read_head

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def dump(path: Path, out: TextIO) -> int:
    """Write what is in the file to `out`; 0 when all of it is whole."""
    dumpers: dict[str, Callable[[Path, TextIO], int]] = {
        LOG_SUFFIX: lambda path, out: _dump_log(_segment(path), out),
        INDEX_SUFFIX: lambda path, out: _dump_index(_segment(path), out),
        CHECKPOINT_SUFFIX: lambda path, out: _dump_checkpoint(_segment(path), out),
        KEYS_SUFFIX: dump_keys,
        ACTIONS_SUFFIX: dump_actions,
    }
    dumper = dumpers.get(path.suffix)
    if dumper is None or not path.stem.isdigit():
        known = ", ".join(dumpers)
        print(f"{path}: not a file of our logs (a position and one of {known})", file=out)
        return 2
    if not path.is_file():
        print(f"{path}: there is no such file", file=out)
        return 2
    return dumper(path, out)


def _segment(path: Path) -> Segment:
    return Segment(path.parent, int(path.stem))


def _dump_log(segment: Segment, out: TextIO) -> int:
    count = bad = 0
    with Frames(RealFiles(), segment) as frames:
        position = segment.base
        while position < frames.end:
            header = frames.header_at(position)
            if isinstance(header, str):
                break
            payload = frames.payload_of(header)
            damage = payload_damage(header, payload)
            print(_frame_line(header, payload, damage), file=out)
            count += 1
            bad += damage is not None
            position = header.end
        else:
            header = "the file ends here"
        if position == frames.end or frames.is_blank_from(position):
            rest = f"{frames.end - position} bytes of reserved room follow"
        else:
            bad += 1
            rest = f"position {position} (byte {position - segment.base}): {header}"
    print(f"{segment.path}: {count} frames, {bad} bad; {rest}", file=out)
    return 1 if bad else 0


def _frame_line(header: FrameHeader, payload: memoryview, damage: str | None) -> str:
    stored = datetime.fromtimestamp(header.store_time / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
    kind = KIND_NAMES.get(header.kind, f"kind {header.kind}")
    line = f"{header.position:>14} {stored} {kind}"
    if header.subject_id:
        line += f" subject={header.subject_id}"
    line += f" sequence={header.base_sequence} length={header.length} synced={header.synced_end}"
    if damage is not None:
        return f"{line} BAD: {damage}"
    return line + _detail(header, payload)


def _detail(header: FrameHeader, payload: memoryview) -> str:
    if header.kind == MESSAGES:
        head = read_head(payload)
        detail = f" records={head.record_count} codec={_CODECS[head.attributes & 7]}"
        detail += f" max_timestamp={head.max_timestamp}"
        if head.producer_id >= 0:
            detail += (
                f" producer={head.producer_id}/{head.producer_epoch} from {head.base_sequence}"
            )
        return detail
    if header.kind in (SUBJECT_CREATED, SUBJECT_STATE):
        state = parse_subject_state(payload)
        producers = len(state.producers)
        return f" name={state.name!r} earliest={state.earliest} producers={producers}"
    if header.kind == SETTLES:
        return _settles(payload)
    if header.kind == SEGMENT_START:
        next_id, cluster_id = parse_segment_start(payload)
        return f" cluster={cluster_id} next_subject={next_id}"
    return ""


def _settles(payload: memoryview) -> str:
    try:
        items = settles_of(payload)
    except UnknownItem as unknown:
        return f" BAD: {unknown}"
    return "".join(
        f" group={gid} subject={subject_id} messages={first}..{first + size - 1}"
        for gid, subject_id, first, size in items
    )


def _dump_index(segment: Segment, out: TextIO) -> int:
    open_files = OpenFiles(RealFiles())
    indexes = Indexes(open_files)
    bad = count = 0
    try:
        rows = indexes.rows(segment, nowait=False)
        for i in range(len(rows)):
            row = rows.at(i)
            print(
                f"subject={row.subject_id} next_sequence={row.next_sequence} batches={row.entries}",
                file=out,
            )
            try:
                entries = indexes.entries(segment, row, nowait=False)
            except IndexDamaged as damage:
                print(f"    BAD: {damage}", file=out)
                bad += 1
                continue
            count += row.entries
            for k in range(0, len(entries), ENTRY):
                base, position, length, highest = entries[k : k + ENTRY]
                print(
                    f"    sequence={base} position={position} length={length} max_timestamp={highest}",
                    file=out,
                )
        print(f"{segment.index_path}: {len(rows)} subjects, {count} batches, {bad} bad", file=out)
    except IndexDamaged as damage:
        print(f"{segment.index_path}: BAD: {damage}", file=out)
        bad += 1
    finally:
        open_files.close()
    return 1 if bad else 0


def _dump_checkpoint(segment: Segment, out: TextIO) -> int:
    data = segment.checkpoint_path.read_bytes()
    found = checkpoint.parse(data)
    for fields in checkpoint.ROW.iter_unpack(found.rows):
        row = checkpoint.Row(*fields)
        print(
            f"{row.position:>14} {KIND_NAMES.get(row.kind, row.kind)} subject={row.subject_id} "
            f"sequence={row.base_sequence} length={row.length}",
            file=out,
        )
    rest = len(data) - found.size
    whole = (
        "whole" if not rest else f"BAD: {rest} bytes from byte {found.size} on are no whole chunk"
    )
    print(
        f"{segment.checkpoint_path}: synced up to {found.synced_end}, "
        f"{len(found.rows) // checkpoint.ROW.size} frames; {whole}",
        file=out,
    )
    return 1 if rest else 0
