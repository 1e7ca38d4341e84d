"""Power cuts, failing disks, flipped bits, cut files: nothing that was saved is lost in silence, and
nothing wrong is ever given."""

import errno
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kumquat.core.errors import StartError
from kumquat.core.logs.tests.power import FakeFiles, Fault
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.manifest import COPY, MANIFEST, load, open_files, save
from kumquat.core.wheel.files.manifest_format import Listed, Manifest, pack
from kumquat.core.wheel.files.tests.schedules import (
    DATA,
    EVER,
    FOLDER,
    NOON,
    Fill,
    alive,
    fake_files,
    messages_of,
    parked,
    tombstones_of,
)
from kumquat.core.wheel.files.writing.merge import merge
from kumquat.core.wheel.format import (
    ENTRY,
    HOUR_MS,
    LENGTH,
    MESSAGE,
    PENDING,
    TOMBSTONE,
    Name,
    ScheduleDamaged,
    Tombstone,
)
from kumquat.core.wheel.schedule.model import Remembered


class Life:
    """A schedule that is filled and merged, step by step, and what a start after a cut must find."""

    def __init__(self, files: FakeFiles) -> None:
        self.files = files
        self.saved = 0
        self.begun = 0
        self.fills = [
            Fill((100 * k, 100 * k + 100), [parked(NOON + k, 100 * k + i) for i in range(3)])
            for k in range(6)
        ]
        for before, fill in zip(self.fills, self.fills[1:], strict=False):
            fill.tombstones.append(Tombstone(*before.parked[0][:3]))

    def run(self) -> None:
        manifest = load(self.files, FOLDER)
        held: list[ScheduleFile] = []
        for k, fill in enumerate(self.fills):
            self.begun = k + 1
            held.append(fill.write(self.files))
            self._save(manifest, held, k + 1)
            if k % 2:
                merged = merge(self.files, held[-2:], FOLDER, 0, lambda _: True)
                assert merged is not None
                old, held[-2:] = held[-2:], [merged]
                self._save(manifest, held, k + 1)
                for file in old:
                    file.close()
                    self.files.unlink(file.path)

    def _save(self, manifest: Manifest, held: list[ScheduleFile], count: int) -> None:
        manifest.filled = 100 * count
        manifest.files = [Listed.of(file) for file in held]
        manifest.generation += 1
        save(self.files, FOLDER, manifest)
        self.saved = count

    def check(self, left: FakeFiles) -> None:
        manifest = load(left, FOLDER)
        count = manifest.filled // 100
        assert self.saved <= count <= self.begun
        found, lost = open_files(left, FOLDER, manifest)
        assert lost == []
        contents = [Fill(f.stretch, messages_of(f), tombstones_of(f)) for f in found]
        assert alive(contents) == alive(self.fills[:count])
        names = [MANIFEST, COPY, *(f.path.name for f in found)]
        assert sorted(left.listdir(FOLDER)) == sorted(names)
        for file in found:
            file.close()
        assert left.open_handles() == 0


def look_everywhere(files: FakeFiles, seeds: int) -> int:
    life = Life(files)
    looked = 0

    def look() -> None:
        nonlocal looked
        for seed in range(seeds):
            looked += 1
            try:
                life.check(files.after_power_cut(Random(files.steps * 100 + seed)))
            except BaseException as error:
                error.add_note(f"cut before step {files.steps + 1}, seed {seed}")
                error.add_note("\n".join(files.journal[-15:]))
                raise
        life.check(files.after_kill())

    files.before_step = look
    life.run()
    look()
    return looked


def test_a_cut_at_any_step_leaves_what_the_manifest_says() -> None:
    assert look_everywhere(FakeFiles(DATA), seeds=6) > 500


class NeverSyncs(FakeFiles):
    def fdatasync(self, fd: int) -> None:
        pass


class ForgetsNames(FakeFiles):
    def fsync_dir(self, directory: Path | int) -> None:
        pass


@pytest.mark.parametrize("broken", [NeverSyncs, ForgetsNames])
def test_a_schedule_that_does_not_sync_is_caught(broken: type[FakeFiles]) -> None:
    with pytest.raises(AssertionError):
        look_everywhere(broken(DATA), seeds=6)


@pytest.mark.parametrize(
    "operation", ["create", "pwritev", "truncate", "fdatasync", "rename", "fsync_dir"]
)
def test_a_write_that_fails_leaves_nothing_and_goes_well_later(operation: str) -> None:
    files = fake_files()
    fill = Fill((0, 100), [parked(NOON, 1)])
    files.fail(Fault(operation, errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        fill.write(files)
    assert files.listdir(FOLDER) == []
    assert files.open_handles() == 0
    assert messages_of(fill.write(files)) == fill.parked


# Damage

FILL = Fill(
    (100, 200),
    [parked(NOON + i * HOUR_MS // 2, 100 + i, 1 + i % 2, b"id" * (i % 2), i) for i in range(5)],
    [Tombstone(NOON + 7, 50, 1), Tombstone(NOON + 8, 51, 3)],
    [Name(1, b"one", 100, NOON, PENDING), Name(2, b"two", 101, NOON, PENDING)],
)


def questions(file: ScheduleFile) -> Iterator[tuple[str, Callable[[], object]]]:
    """Everything that a file can be asked; all bytes of it are needed for it."""
    for kind in (MESSAGE, TOMBSTONE):
        yield f"count {kind}", partial(file.count, 1, NOON + 1, NOON + HOUR_MS + 1, kind)
        yield f"all {kind}", partial(file.count, None, NOON + 1, EVER, kind)
        for row in file.rows(kind):
            yield f"{row}", partial(file.entries, row, 0, EVER)
    yield "names", lambda: list(file.names())
    yield "find", lambda: [file.find(1, b"one"), file.find(2, b"two"), file.find(1, b"three")]
    offset = 0
    for one in sorted(FILL.parked, key=lambda one: (one.due // HOUR_MS, one.subject_id, one.due)):
        yield f"record at {offset}", partial(file.read, offset, len(one.record))
        offset += len(one.record)


def answers(file: ScheduleFile) -> dict[str, object]:
    """Those that are given; a question about what is damaged has none."""
    found: dict[str, object] = {}
    for what, ask in questions(file):
        try:
            found[what] = ask()
        except ScheduleDamaged as damage:
            if not re.fullmatch(r"/data/schedule/\S+: .*: expected .*, found .*", str(damage)):
                raise
    return found


def saved() -> tuple[FakeFiles, ScheduleFile, Manifest]:
    files = fake_files()
    load(files, FOLDER)
    file = FILL.write(files)
    manifest = Manifest(filled=200, files=[Listed.of(file)])
    save(files, FOLDER, manifest)
    return files, file, manifest


def test_a_flipped_bit_is_noticed_and_costs_no_more_than_its_record_or_block() -> None:
    files, file, manifest = saved()
    whole, content = answers(file), files.content(file.path)
    records = file.footer.records
    for bit in range(0, 8 * len(content), 3):
        at = bit // 8
        files.damage(
            file.path, content[:at] + bytes([content[at] ^ 1 << bit % 8]) + content[at + 1 :]
        )
        found, lost = open_files(files, FOLDER, manifest)
        if lost:
            assert not found
            assert at >= records, "a record kept the file from being opened"
            assert lost[0].listed == manifest.files[0]
            continue
        given = answers(found[0])
        assert given.items() <= whole.items(), f"byte {at}: something wrong was given"
        assert len(given) < len(whole), f"byte {at}: silent"
        if at < records:
            assert len(given) == len(whole) - 1, f"byte {at}: more than its record was lost"
        found[0].close()


def test_a_file_that_is_cut_longer_or_another_one_is_lost_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, file, manifest = saved()
    content = files.content(file.path)
    other = Fill((100, 200), [parked(NOON, 150)]).write(files)
    spoiled = [content[:size] for size in range(len(content))]
    spoiled += [content + b"\0", content + content, files.content(other.path)]
    for damaged in spoiled:
        files.damage(file.path, damaged)
        caplog.clear()
        found, [lost] = open_files(files, FOLDER, manifest)
        assert found == []
        assert lost.listed.stretch == (100, 200)
        assert lost.listed.entries == 5
        assert caplog.messages == [f"schedule file lost: {lost.reason}"]
    files.unlink(file.path)
    found, [lost] = open_files(files, FOLDER, manifest)
    assert "is missing" in lost.reason


def test_a_disk_that_cannot_be_read_for_the_moment_loses_no_file() -> None:
    files, file, manifest = saved()
    file.close()
    for operation in ("open", "pread"):
        files.fail(Fault(operation, errno.EMFILE, name=".schedule", times=2))
        found, lost = open_files(files, FOLDER, manifest)
        assert (len(found), lost) == (1, []), "it was tried again"
        found[0].close()
    files.fail(Fault("pread", errno.EIO, name=".schedule", times=None))
    with pytest.raises(StartError, match=r"\.schedule cannot be read: .*Check the disk"):
        open_files(files, FOLDER, manifest)
    assert files.open_handles() == 0
    files.heal()
    found, lost = open_files(files, FOLDER, manifest)
    assert (len(found), lost) == (1, [])


def test_a_record_that_is_damaged_does_not_keep_the_others_from_being_read() -> None:
    files, file, _ = saved()
    content = bytearray(files.content(file.path))
    row = next(file.rows(MESSAGE))
    offset = ENTRY.unpack(file.table(row.first, 1))[2]
    content[offset + 10] ^= 1
    files.damage(file.path, bytes(content))
    places = [
        (offset, length & LENGTH) for _, _, offset, length, _ in ENTRY.iter_unpack(file.table(0, 5))
    ]
    first, *others = file.read_many(places)
    assert isinstance(first, ScheduleDamaged)
    assert not any(isinstance(one, ScheduleDamaged) for one in others)


@pytest.mark.parametrize("name", [MANIFEST, COPY])
def test_a_flipped_bit_or_a_cut_of_one_manifest_costs_nothing(name: str) -> None:
    files, file, _ = saved()
    remembered = {(1, b"x"): Remembered(NOON, None), (2, b"yz"): Remembered(1, NOON)}
    manifest = Manifest(
        200, (NOON, 7), [Listed.of(file)], {1: 3, 2: 2}, remembered, {5, 6}, NOON, 9
    )
    save(files, FOLDER, manifest)
    assert load(files, FOLDER) == manifest
    content = pack(manifest)
    spoiled = [content[:size] for size in range(len(content))] + [content + b"\0"]
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        spoiled.append(bytes(flipped))
    for damaged in spoiled:
        save(files, FOLDER, manifest)
        files.damage(FOLDER / name, damaged)
        found = load(files, FOLDER)
        found.generation = manifest.generation
        assert found == manifest
        both = [files.content(FOLDER / copy)[: len(content)] for copy in (MANIFEST, COPY)]
        assert both[0] == both[1], "both are whole again"


def test_two_damaged_manifests_are_never_taken_for_whole_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, file, _ = saved()
    content = files.content(FOLDER / MANIFEST)
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        for name in (MANIFEST, COPY):
            files.damage(FOLDER / name, bytes(flipped))
        caplog.clear()
        found = load(files, FOLDER)
        assert found.rebuilt
        assert found.files == [Listed.of(file)]
        assert "both copies" in caplog.text


def test_a_manifest_that_could_not_be_saved_takes_no_file_along() -> None:
    """A start may find it all the same: then what it lists must be there."""
    for operation in ("create", "pwritev", "fdatasync", "rename", "fsync_dir"):
        for skip in (0, 1):
            files = FakeFiles(DATA)
            file_set = FileSet(files, DATA)
            for k in range(3):
                file = Fill((100 * k, 100 * k + 100), [parked(NOON, 100 * k + 1)]).write(files)
                listed = [*file_set.manifest.files, Listed.of(file)]
                file_set.add(file, replace(file_set.manifest, filled=100 * k + 100, files=listed))
            file_set.settle([], file_set.manifest)
            inputs = file_set.current[:2]
            merged = file_set.merge(inputs, 0, lambda _: True)
            name = "schedule" if operation == "fsync_dir" else "manifest"
            files.fail(Fault(operation, errno.EIO, name=name, skip=skip))
            with pytest.raises(OSError, match="Input/output"):
                file_set.list_merged(inputs, merged)
            for seed in range(8):
                left = FileSet(files.after_power_cut(Random(seed)), DATA)
                assert left.lost == []
                assert sum(file.entry_count for file in left.current) == 3
            merged = file_set.merge(inputs, 0, lambda _: True)
            manifest = file_set.list_merged(inputs, merged)
            file_set.replace(inputs, merged, manifest)
            file_set.close()
            assert len(FileSet(files, DATA).current) == 2
