"""Schedule files for tests, and what plain lists would say in their place."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from core.logs.files import Files
from core.logs.parked import pack_parked
from core.wheel.schedule_file import ScheduleFile
from core.wheel.schedule_format import ENTRY, HOUR_MS, MESSAGE, Name, Parked, Tombstone
from core.wheel.schedule_writer import write_schedule_file

DATA = Path("/data")
FOLDER = DATA / "schedule"
NOON = 500_000 * HOUR_MS
EVER = 1 << 50


def parked(
    due: int, sid: int, subject_id: int = 1, delay_id: bytes = b"", size: int = 20
) -> Parked:
    body = bytes((sid + i) % 251 for i in range(size))
    return Parked(due, sid, subject_id, pack_parked(due, due - 1000, delay_id, body))


@dataclass
class Fill:
    """What goes into one file."""

    stretch: tuple[int, int]
    parked: list[Parked] = field(default_factory=list)
    tombstones: list[Tombstone] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)

    def write(self, files: Files, directory: Path = FOLDER) -> ScheduleFile:
        return write_schedule_file(
            files, directory, self.stretch, self.parked, self.tombstones, self.names
        )


def messages_of(file: ScheduleFile) -> list[Parked]:
    """All messages of a file, with their records, in the order of due and schedule id."""
    found = []
    for row in file.rows(MESSAGE):
        for due, sid, offset, length, subject_id in ENTRY.iter_unpack(file.entries(row, 0, EVER)):
            assert subject_id == row.subject_id
            found.append(Parked(due, sid, subject_id, file.read(offset, length)))
    return sorted(found)


def tombstones_of(file: ScheduleFile, kind: int) -> list[Tombstone]:
    return sorted(
        Tombstone(due, sid, subject_id)
        for row in file.rows(kind)
        for due, sid, _, _, subject_id in ENTRY.iter_unpack(file.entries(row, 0, EVER))
    )


def alive(fills: Iterable[Fill]) -> dict[tuple[int, int], Parked]:
    """What is to be delivered when these are all the files, oldest first."""
    found: dict[tuple[int, int], Parked] = {}
    for fill in fills:
        for due, sid, _ in fill.tombstones:
            found.pop((due, sid), None)
        found |= {(one.due, one.sid): one for one in fill.parked}
    return found
