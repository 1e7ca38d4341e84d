"""The manifest from what is left, when both of its copies are lost.

Which files count is told by their names and footers: of those that overlap, the one with the longest
stretch was merged from the others and says the same. `filled` is where the last one ends: replay goes on
from there. Three things only the manifest knew:

- `delivered_until`: messages are delivered in order of (due, schedule id), so of those that the log has as
  delivered and the files still hold, the last one tells (`find_delivered`). If the log has no such
  delivery any more, all that is in the files is delivered, perhaps again: rather twice than never.
- how much is pending: it is counted.
- remembered cancels and moves from before `filled`: they are forgotten, the log says so.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.logs.files import Files
from core.logs.format import DELIVERED
from core.logs.log import MessageLog
from core.logs.parked import schedule_ids_of
from core.wheel.frames import delayed_frames
from core.wheel.manifest_format import Listed, Manifest
from core.wheel.schedule_file import ScheduleFile
from core.wheel.schedule_format import ENTRY, MESSAGE, REFILED, SUFFIX, ScheduleDamaged
from core.wheel.schedule_parts import Key

log = logging.getLogger("kumquat.schedule")

_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)" + re.escape(SUFFIX))


def rebuild(files: Files, directory: Path) -> Manifest:
    """Blocks: a manifest that lists the schedule files that are there, none of them delivered. What each
    of them holds is looked at when it is opened."""
    listed = [one for name in files.listdir(directory) if (one := _listed(files, directory, name))]
    chosen: list[Listed] = []
    for one in sorted(listed, key=lambda one: (one.stretch[0], -one.stretch[1], -one.number)):
        if not chosen or one.stretch[0] >= chosen[-1].stretch[1]:
            chosen.append(one)
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


def _listed(files: Files, directory: Path, name: str) -> Listed | None:
    """A file that cannot be opened is listed by its name: it is found to be lost, and filled anew if the
    log has its stretch."""
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


def find_delivered(message_log: MessageLog, files: Sequence[ScheduleFile], done: set[int]) -> Key:
    """Blocks: the last entry of the files that is known to be delivered; (-1, -1): none is. `done`: what is
    known from the frames that were replayed. Then segments are looked through, the newest first."""
    for sids in _delivered(message_log, done):
        found = max((key for file in files for key in _keys(file, sids)), default=None)
        if found is not None:
            return found
    return (-1, -1)


def _delivered(message_log: MessageLog, done: set[int]) -> Iterator[set[int]]:
    if done:
        yield done
    for segment in reversed(message_log.state.segments):
        frames = delayed_frames(message_log, segment.base, segment.end)
        sids = [schedule_ids_of(payload) for header, payload in frames if header.kind == DELIVERED]
        if sids:
            yield {sid for some in sids for sid in some}


def _keys(file: ScheduleFile, sids: set[int]) -> Iterator[Key]:
    try:
        for row in file.rows(MESSAGE):
            for due, sid, _, length, _ in ENTRY.iter_unpack(file.table(row.first, row.entries)):
                if sid in sids and not length & REFILED:
                    yield due, sid
    except ScheduleDamaged as damage:
        log.error("%s", damage)
