"""`kumquat dump FILE` for the schedule: what is in a schedule file or the manifest, and what is damaged.

It reads only this file, so it works on a copy, without a broker. It prints a line for each message,
tombstone and name; the last line sums up. The exit code is 0 when all is whole, 1 when something is not, 2
when there is no such file.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.files import RealFiles
from kumquat.core.logs.messages.parked import CANCELLED, DELIVERED, MOVED, REMEMBERED
from kumquat.core.wheel.files import manifest
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.manifest_format import parse
from kumquat.core.wheel.format import (
    ENTRY,
    HOUR_MS,
    KIND_NAMES,
    LENGTH,
    MESSAGE,
    PENDING,
    SUFFIX,
    TOMBSTONE,
    Row,
    ScheduleDamaged,
)

_STATUS = {
    PENDING: "pending",
    CANCELLED: "cancelled",
    MOVED: "moved",
    DELIVERED: "delivered",
    REMEMBERED: "remembered",
}
_AT_ONCE = 1000


def is_of_schedule(path: Path) -> bool:
    return path.suffix == SUFFIX or path.name in (manifest.MANIFEST, manifest.COPY)


def dump_schedule(path: Path, out: TextIO) -> int:
    """Write what is in the file to `out`; 0 when all of it is whole."""
    if not path.is_file():
        print(f"{path}: there is no such file", file=out)
        return 2
    try:
        if path.name in (manifest.MANIFEST, manifest.COPY):
            return _dump_manifest(path, out)
        return _dump_file(path, out)
    except (ScheduleDamaged, StartError) as damage:
        print(f"BAD: {damage}", file=out)
        return 1


def _dump_file(path: Path, out: TextIO) -> int:
    file = ScheduleFile(RealFiles(), path)
    bad = 0
    try:
        for kind in (MESSAGE, TOMBSTONE):
            for row in file.rows(kind):
                hour = _time(row.hour * HOUR_MS)
                print(f"{KIND_NAMES[kind]} {hour} subject={row.subject_id}", file=out)
                bad += _dump_row(file, row, out)
        bad += _dump_names(file, out)
    finally:
        file.close()
    footer = file.footer
    print(
        f"{path}: log positions {footer.begin} to {footer.end}, {footer.parked} messages in "
        f"{footer.parked_rows} rows, {footer.tombstones} tombstones, {footer.names} names, {bad} bad",
        file=out,
    )
    return 1 if bad else 0


def _dump_row(file: ScheduleFile, row: Row, out: TextIO) -> int:
    bad = 0
    try:
        for table in _pieces(file, row):
            entries = list(ENTRY.iter_unpack(table))
            records: list[bytes | ScheduleDamaged] = [b""] * len(entries)
            if row.kind == MESSAGE:
                records = file.read_many([(entry[2], entry[3]) for entry in entries])
            for (due, schedule_id, offset, length, _), record in zip(entries, records, strict=True):
                line = f"    due={_time(due)} id={schedule_id}"
                if row.kind == MESSAGE:
                    line += f" byte={offset} length={length & LENGTH}"
                if isinstance(record, ScheduleDamaged):
                    bad += 1
                    line += f" BAD: {record}"
                print(line, file=out)
    except ScheduleDamaged as damage:
        print(f"    BAD: {damage}", file=out)
        bad += 1
    return bad


def _pieces(file: ScheduleFile, row: Row) -> Iterator[bytes]:
    end = row.first + row.entries
    for first in range(row.first, end, _AT_ONCE):
        yield file.table(first, min(_AT_ONCE, end - first))


def _dump_names(file: ScheduleFile, out: TextIO) -> int:
    try:
        for name in file.names():
            print(
                f"name {name.delay_id.decode(errors='replace')!r} subject={name.subject_id} "
                f"id={name.schedule_id} due={_time(name.due)} {_STATUS.get(name.status, name.status)} "
                f"kept until {_time(name.keep)}",
                file=out,
            )
    except ScheduleDamaged as damage:
        print(f"names BAD: {damage}", file=out)
        return 1
    return 0


def _dump_manifest(path: Path, out: TextIO) -> int:
    found = parse(path, path.read_bytes())
    for listed in found.files:
        print(
            f"file {listed.name} messages={listed.entries} size={listed.size} crc={listed.crc:#010x}",
            file=out,
        )
    for subject_id, count in sorted(found.pending.items()):
        print(f"pending subject={subject_id} messages={count}", file=out)
    for (subject_id, delay_id), (until, new_due) in sorted(found.remembered.items()):
        name = delay_id.decode(errors="replace")
        what = "cancel" if new_due is None else f"move to {_time(new_due)}"
        print(f"{what} of {name!r} subject={subject_id} until={_time(until)}", file=out)
    for schedule_id in sorted(found.done):
        print(f"done id={schedule_id}", file=out)
    due, schedule_id = found.delivered_until
    print(
        f"{path}: filled up to log position {found.filled}, delivered until due={_time(due)} "
        f"id={schedule_id}, {len(found.files)} files; whole",
        file=out,
    )
    return 0


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return str(ms)
