"""Finds single messages on disk: what a delay id names, and a parked record by its schedule id.

All of it blocks. The newest file that knows a delay id counts. If a file is closed meanwhile, it was merged
into another one: the search begins again with the new list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kumquat.core.errors import CorruptMessage
from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.logs.messages.parked import (
    DELIVERED,
    RECORD_HEAD,
    RECORD_HEAD_SIZE,
    SCHEDULE_ID,
    ParkedHead,
    delay_id_of,
    heads_of,
)
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.record_reader import LogRecords
from kumquat.core.wheel.format import (
    ENTRY,
    ENTRY_SIZE,
    LENGTH,
    TOMBSTONE,
    ScheduleClosed,
    hour_of,
)
from kumquat.core.wheel.schedule.model import Named


class Scheduled(NamedTuple):
    due: int
    """The time that it is filed under."""
    delay_id: bytes
    record: bytes


class MessageFinder:
    def __init__(self, file_set: FileSet, log_records: LogRecords) -> None:
        self._file_set = file_set
        self._log_records = log_records

    def name(self, subject_id: int, delay_id: bytes) -> Named | None:
        """What the files say about a delay id. A message that a newer file has a tombstone for, and no
        newer word about its name, was delivered."""
        while True:
            try:
                return self._name(self._file_set.current, subject_id, delay_id)
            except ScheduleClosed:
                continue

    @staticmethod
    def _name(files: Sequence[ScheduleFile], subject_id: int, delay_id: bytes) -> Named | None:
        for i in reversed(range(len(files))):
            found = files[i].find(subject_id, delay_id)
            if found is not None:
                schedule_id, due, status = found.schedule_id, found.due, found.status
                if schedule_id >= 0 and _is_struck(files[i + 1 :], subject_id, schedule_id, due):
                    status = DELIVERED
                return Named(schedule_id, due, status)
        return None

    def record(self, subject_id: int, schedule_id: int, due: int, filled: int) -> bytes | None:
        """A parked record; None: there is none. `due` is the time that it is filed under. CorruptMessage:
        it is damaged."""
        if schedule_id >= filled:
            return self._from_log(schedule_id)
        while True:
            try:
                for file in self._file_set.current:
                    if file.stretch[0] <= schedule_id < file.stretch[1]:
                        return self._from_file(file, subject_id, schedule_id, due)
                return None
            except ScheduleClosed:
                continue

    def scheduled(
        self, subject_id: int, schedule_id: int, frame: tuple[int, int] | None
    ) -> Scheduled | None:
        """The message with a schedule id, if it was not cancelled before the last fill. `frame`: position
        and length of its frame, if that is not filed yet. The list of files must not change meanwhile."""
        if frame is not None:
            return self._in_frame(schedule_id, *frame)
        files = self._file_set.current
        for i, file in enumerate(files):
            if file.stretch[0] <= schedule_id < file.stretch[1]:
                found = self._in_file(file, subject_id, schedule_id)
                if found is not None and _is_struck(
                    files[i + 1 :], subject_id, schedule_id, found.due
                ):
                    return None
                return found
        return None

    def _in_frame(self, schedule_id: int, position: int, length: int) -> Scheduled | None:
        payload = self._log_records.payload(position, length)
        for at, head in heads_of(payload):
            if position + HEADER_SIZE + at == schedule_id:
                delay_id = delay_id_of(payload, at, head)
                return Scheduled(head.due, delay_id, payload[at : at + head.length])
        return None

    def _in_file(self, file: ScheduleFile, subject_id: int, schedule_id: int) -> Scheduled | None:
        """Files are not ordered by schedule id: all entries of the subject are searched."""
        wanted = SCHEDULE_ID.pack(schedule_id)
        for row in file.rows_of_subject(subject_id):
            table = file.table(row.first, row.entries)
            at = table.find(wanted)
            while at >= 0 and at % ENTRY_SIZE != SCHEDULE_ID.size:
                at = table.find(wanted, at + 1)
            if at >= 0:
                entry = ENTRY.unpack_from(table, at - SCHEDULE_ID.size)
                record = file.read(entry[2], entry[3] & LENGTH)
                head = ParkedHead._make(RECORD_HEAD.unpack_from(record))
                return Scheduled(entry[0], delay_id_of(record, 0, head), record)
        return None

    def _from_log(self, schedule_id: int) -> bytes:
        head = self._log_records.read(schedule_id, RECORD_HEAD_SIZE)
        length = RECORD_HEAD.unpack(head)[0]
        [record] = self._log_records.read_many([(schedule_id, length)])
        if isinstance(record, OSError):
            raise record
        if isinstance(record, str):
            raise CorruptMessage(f"the message scheduled as {schedule_id} is damaged: {record}")
        return record

    def _from_file(
        self, file: ScheduleFile, subject_id: int, schedule_id: int, due: int
    ) -> bytes | None:
        row = file.row(hour_of(due), subject_id)
        if row is None:
            return None
        for _, found, offset, length, _ in ENTRY.iter_unpack(file.entries(row, due, due + 1)):
            if found == schedule_id:
                return file.read(offset, length & LENGTH)
        return None


def _is_struck(files: Sequence[ScheduleFile], subject_id: int, schedule_id: int, due: int) -> bool:
    for file in files:
        row = file.row(hour_of(due), subject_id, TOMBSTONE)
        if row is not None:
            table = file.entries(row, due, due + 1)
            if any(entry[1] == schedule_id for entry in ENTRY.iter_unpack(table)):
                return True
    return False
