"""Makes schedule files again that are missing or damaged at a start, if the log still has their messages.

The frames of the lost stretch are applied to a schedule of their own, as when they were new, and filled
from there: so the same code decides what belongs in. Two things are known only from later frames, up to
where the manifest ends, and are looked for there. What was delivered, cancelled or moved since stays out (a
tombstone for it may have been merged away). What this stretch delivered of older files goes into `done`,
since the tombstones for it may be lost with the file.

If the log no longer has the stretch, its messages are lost; the broker's log says how many.

The manifest is saved once, when all is known; also one that was lost itself (rebuild.py). Damaged files are
renamed just before: if a start crashes in between, the next one begins again.

All of it blocks: it is done before the broker serves. Memory is bounded by one fill, and by the schedule
ids that were delivered, cancelled or moved since the stretch began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kumquat.core.logs.messages.format import CANCEL, PARKED
from kumquat.core.logs.messages.format import DELIVERED as DELIVERED_FRAME
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.parked import schedule_ids_of
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.fill import names_of, parked_of, tombstones_of
from kumquat.core.wheel.files.frames import delayed_frames, withdrawn_ids
from kumquat.core.wheel.files.manifest import Lost
from kumquat.core.wheel.files.rebuild import find_done
from kumquat.core.wheel.files.record_reader import LogRecords
from kumquat.core.wheel.files.writing.writer import write_schedule_file
from kumquat.core.wheel.schedule.schedule import Schedule

log = logging.getLogger("kumquat.delay")

MOST_BYTES = 64 << 20
"""The most bytes of records in one of the new files."""


def refill(file_set: FileSet, message_log: MessageLog, schedule: Schedule) -> bool:
    """Make lost files again; gives whether messages may be lost for good. OSError: no file has changed."""
    manifest, made, lost_some = file_set.manifest, [], file_set.manifest.rebuilt
    for lost in file_set.lost:
        if message_log.state.segments[0].base > lost.listed.stretch[0]:
            lost_some = True
            log.critical(
                "%s. The message log no longer holds that part: these messages are lost",
                lost.reason,
            )
        else:
            made += _Refill(file_set, message_log, schedule).make(lost)
    if manifest.rebuilt:
        files = [*file_set.current, *made]
        manifest, dead = find_done(manifest, message_log, files, schedule.finished.done)
        schedule.repaired(manifest.delivered_until, dead)
    if file_set.lost or manifest.rebuilt:
        file_set.settle(made, manifest)
    return lost_some


class _Refill:
    def __init__(self, file_set: FileSet, message_log: MessageLog, schedule: Schedule) -> None:
        self._file_set = file_set
        self._log = message_log
        self._schedule = schedule
        self._read = LogRecords(message_log).payload
        self._live: Callable[[int], bool] = message_log.state.subjects.by_id.__contains__

    def make(self, lost: Lost) -> list[ScheduleFile]:
        begin, end = lost.listed.stretch
        delivered: set[int] = set()
        withdrawn: set[int] = set()
        for header, payload in delayed_frames(self._log, begin, self._schedule.filled):
            if header.kind == DELIVERED_FRAME:
                delivered.update(schedule_ids_of(payload))
            elif header.kind == CANCEL and header.position >= end:
                withdrawn.update(withdrawn_ids(payload))
        scratch = Schedule(begin, self._schedule.delivered_until, {}, {}, set())
        made: list[ScheduleFile] = []
        gone = delivered | withdrawn
        for header, payload in delayed_frames(self._log, begin, end):
            scratch.apply(header.kind, header.subject_id, header.position, payload)
            if header.kind == PARKED and scratch.recent_bytes >= MOST_BYTES:
                made.append(self._write(scratch, header.end, gone))
        made.append(self._write(scratch, end, gone))
        self._schedule.finished.done |= {
            schedule_id for schedule_id in delivered if schedule_id < begin
        }
        found = sum(file.entry_count for file in made)
        log.warning("positions %d to %d are filled again: %d messages", begin, end, found)
        return made

    def _write(self, scratch: Schedule, end: int, gone: set[int]) -> ScheduleFile:
        fill = scratch.begin_fill(end)
        fill.gone |= gone
        parked = list(parked_of(fill, self._read, self._live))
        file_set, stretch = self._file_set, (fill.start, end)
        file = write_schedule_file(
            file_set.files, file_set.directory, stretch, parked, tombstones_of(fill), names_of(fill)
        )
        scratch.finish_fill(fill)
        return file
