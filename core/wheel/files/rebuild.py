"""The manifest from what is left, when both of its copies are lost.

The names and footers of the files say which of them count: of files that overlap, the one with the longest
stretch was merged from the others and says the same. Whole files come first. Of a damaged file only those
parts of its stretch count that no whole file has; they are filled again (refill.py). `filled` is where the
last stretch ends: replay continues from there. Three things were only in the manifest:

- What is delivered or cancelled (`find_done`). What the log still says goes by schedule id into `done`. For
  what was finished before the log begins there is `delivered_until`: messages are delivered in order of
  (due, schedule id), so of those that were due by then, all up to the last one that is known to be
  delivered are delivered. This order says nothing about what is due later: some may have been left behind,
  since they could not be read. If the log has no such delivery any more, all that is in the files is
  delivered, perhaps again: better twice than never.
- How much is pending: it is counted.
- Remembered cancels and moves from before `filled`: they are forgotten, and the broker's log says so.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.messages.format import CANCEL
from kumquat.core.logs.messages.format import DELIVERED as DELIVERED_FRAME
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.parked import schedule_ids_of
from kumquat.core.logs.messages.recovery.scan import Frames
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.frames import delayed_frames, withdrawn_ids
from kumquat.core.wheel.files.manifest_format import Listed, Manifest
from kumquat.core.wheel.format import (
    ENTRY,
    MESSAGE,
    REFILED,
    SUFFIX,
    TOMBSTONE,
    ScheduleDamaged,
    Tombstone,
)

log = logging.getLogger("kumquat.schedule")

_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)" + re.escape(SUFFIX))


def rebuild(files: Files, directory: Path) -> Manifest:
    """Blocks: a manifest that lists the schedule files that are there, as if nothing were delivered. What
    is in them is checked when they are opened."""
    listed = [one for name in files.listdir(directory) if (one := _listed(files, directory, name))]
    chosen: list[Listed] = []
    for one in sorted(listed, key=_rank):
        free = _free(one.stretch, chosen)
        if one.size == 0:
            chosen += [one._replace(stretch=part) for part in free]
        elif free == [one.stretch]:
            chosen.append(one)
        chosen.sort()
    filled = max((one.stretch[1] for one in chosen), default=0)
    log.critical(
        "%s: both copies of the schedule's manifest are lost. It is made from %d schedule files with %d "
        "messages, which hold the log up to position %d; cancels that were waiting for their message are "
        "forgotten",
        directory,
        len(chosen),
        sum(one.entries for one in chosen),
        filled,
    )
    return Manifest(filled, files=chosen, rebuilt=True)


def _rank(one: Listed) -> tuple[bool, int, int, int]:
    return one.size == 0, one.stretch[0], -one.stretch[1], -one.number


def _free(stretch: tuple[int, int], chosen: Sequence[Listed]) -> list[tuple[int, int]]:
    """The parts of a stretch that none of the chosen files holds. The files are in order."""
    at, end = stretch
    found = []
    for one in chosen:
        if at < one.stretch[0]:
            found.append((at, min(end, one.stretch[0])))
        at = max(at, one.stretch[1])
        if at >= end:
            break
    return [*found, (at, end)] if at < end else found


def _listed(files: Files, directory: Path, name: str) -> Listed | None:
    """A file that is damaged is listed by its name, with size 0: it is then found to be lost, and filled
    again if the log has its stretch."""
    matched = _NAME.fullmatch(name)
    if matched is None:
        return None
    begin, end, number = map(int, matched.groups())
    try:
        file = ScheduleFile(files, directory / name)
    except ScheduleDamaged:
        return Listed((begin, end), number, 0, 0, 0)
    file.close()
    return Listed.of(file)


def find_done(
    manifest: Manifest,
    message_log: MessageLog,
    files: Sequence[ScheduleFile],
    replayed: set[int],
) -> tuple[Manifest, list[Tombstone]]:
    """Blocks: the manifest with what is finished of the files; and tombstones for all that is finished,
    behind `delivered_until`, and has none in the files. `replayed`: what the frames behind `filled`
    deliver. Memory: the schedule ids of all that is finished according to the log."""
    first = message_log.state.segments[0]
    delivered, withdrawn = set(replayed), set()
    for header, payload in delayed_frames(message_log, first.base, manifest.filled):
        if header.kind == DELIVERED_FRAME:
            delivered.update(schedule_ids_of(payload))
        elif header.kind == CANCEL:
            withdrawn.update(withdrawn_ids(payload))
    struck = {entry[1] for file in files for entry in _entries(file, TOMBSTONE)}
    last = (-1, -1)
    dead: list[Tombstone] = []
    for due, schedule_id, _, length, subject_id in (
        e for file in files for e in _entries(file, MESSAGE)
    ):
        if schedule_id in delivered and not length & REFILED:
            last = max(last, (due, schedule_id))
        if (schedule_id in delivered or schedule_id in withdrawn) and schedule_id not in struck:
            dead.append(Tombstone(due, schedule_id, subject_id))
    until = min(last, (_begin_of(message_log, first), -1))
    dead = [one for one in dead if one[:2] > until]
    done = {one.schedule_id for one in dead} - replayed
    latest = max((one.due for one in dead), default=-1)
    return replace(manifest, delivered_until=until, done=done, done_until=latest), dead


def _begin_of(message_log: MessageLog, segment: Segment) -> int:
    """When the segment was begun; -1 if that is not known, or if it is the first of the log."""
    if segment.base == 0:
        return -1
    with Frames(message_log.files, segment) as frames:
        header = frames.header_at(segment.base)
    return -1 if isinstance(header, str) else header.store_time


def _entries(file: ScheduleFile, kind: int) -> Iterator[tuple[int, int, int, int, int]]:
    try:
        for row in file.rows(kind):
            yield from ENTRY.iter_unpack(file.table(row.first, row.entries))
    except ScheduleDamaged as damage:
        log.error("%s", damage)
