"""Schedule files for tests, and what plain lists would say in their place."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.messages.parked import pack_parked
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.files import blocks
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.writing.writer import write_schedule_file
from kumquat.core.wheel.format import (
    ENTRY,
    HOUR_MS,
    MESSAGE,
    TOMBSTONE,
    Name,
    Parked,
    Tombstone,
)

DATA = Path("/data")
FOLDER = DATA / "schedule"
NOON = 500_000 * HOUR_MS
EVER = 1 << 50
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For a machine that has much else to do."""


def parked(
    due: int, schedule_id: int, subject_id: int = 1, delay_id: bytes = b"", size: int = 20
) -> Parked:
    body = bytes((schedule_id + i) % 251 for i in range(size))
    return Parked(due, schedule_id, subject_id, pack_parked(due, due - 1000, delay_id, body))


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
        for due, schedule_id, offset, length, subject_id in ENTRY.iter_unpack(
            file.entries(row, 0, EVER)
        ):
            assert subject_id == row.subject_id
            found.append(Parked(due, schedule_id, subject_id, file.read(offset, length)))
    return sorted(found)


def tombstones_of(file: ScheduleFile) -> list[Tombstone]:
    return sorted(
        Tombstone(due, schedule_id, subject_id)
        for row in file.rows(TOMBSTONE)
        for due, schedule_id, _, _, subject_id in ENTRY.iter_unpack(file.entries(row, 0, EVER))
    )


def alive(fills: Iterable[Fill]) -> dict[tuple[int, int], Parked]:
    """What is to be delivered when these are all the files, oldest first."""
    found: dict[tuple[int, int], Parked] = {}
    for fill in fills:
        for due, schedule_id, _ in fill.tombstones:
            found.pop((due, schedule_id), None)
        found |= {(one.due, one.schedule_id): one for one in fill.parked}
    return found


def newest(fills: Iterable[Fill]) -> dict[tuple[int, bytes], Name]:
    """The last word about each name, and until when it is kept."""
    found: dict[tuple[int, bytes], Name] = {}
    for name in (name for fill in fills for name in fill.names):
        old = found.get((name.subject_id, name.delay_id))
        keep = max(name.due, name.keep, old.keep if old else 0)
        found[name.subject_id, name.delay_id] = name._replace(keep=keep)
    return found


def fake_files() -> FakeFiles:
    files = FakeFiles(DATA)
    files.mkdir(FOLDER)
    files.fsync_dir(DATA)
    return files


@contextmanager
def small_blocks() -> Iterator[None]:
    """Blocks of a few items, so that a small file has many."""
    with patch.object(blocks, "BLOCK", 128), patch.object(blocks, "KEPT_BLOCKS", 2):
        yield


@st.composite
def fills(draw: st.DrawFn, stretch: tuple[int, int] = (1000, 2000)) -> Fill:
    """A file over some hours and subjects, with due times that meet."""
    dues = st.integers(0, 4 * HOUR_MS).map(lambda at: NOON + at)
    dues |= st.sampled_from([NOON, NOON + 1, NOON + HOUR_MS - 1, NOON + HOUR_MS])
    subjects = st.sampled_from([1, 2, 3])
    ids = st.sampled_from([b"", b"", b"a", b"bcd"])
    message = st.builds(parked, dues, st.integers(*stretch), subjects, ids, st.integers(0, 60))
    messages = draw(st.lists(message, unique_by=lambda one: one.schedule_id, max_size=30))
    dead = st.builds(Tombstone, dues, st.integers(0, stretch[0] - 1), subjects)
    names = st.builds(
        Name,
        subjects,
        st.binary(min_size=1, max_size=3) | st.sampled_from([b"a", b"b"]),
        st.integers(*stretch),
        dues,
        st.integers(0, 4),
        st.just(0) | dues,
    )
    tombstones, named = draw(st.lists(dead, max_size=10)), draw(st.lists(names, max_size=10))
    return Fill(stretch, messages, tombstones, named)
