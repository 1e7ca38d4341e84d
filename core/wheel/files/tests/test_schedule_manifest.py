"""The manifest: what is saved is loaded, and files that do not match it are reported."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.files import write_file_atomically
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.manifest import COPY, MANIFEST, load, open_files, save
from kumquat.core.wheel.files.manifest_format import Listed, Manifest, pack
from kumquat.core.wheel.files.tests.schedules import (
    DATA,
    FOLDER,
    NOON,
    SLOW,
    Fill,
    fake_files,
    messages_of,
    parked,
)
from kumquat.core.wheel.format import FOOTER
from kumquat.core.wheel.schedule.model import Remembered

positions = st.integers(0, 1 << 62)
small = st.integers(0, (1 << 32) - 1)
manifests = st.builds(
    Manifest,
    positions,
    st.tuples(st.integers(-1, 1 << 62), st.integers(-1, 1 << 62)),
    st.lists(
        st.builds(Listed, st.tuples(positions, positions), small, positions, positions, small)
    ),
    st.dictionaries(small, positions),
    st.dictionaries(
        st.tuples(small, st.binary(max_size=300)),
        st.builds(Remembered, positions, st.none() | positions),
    ),
    st.sets(positions),
    positions,
    positions,
)


@settings(SLOW)
@given(manifests)
def test_what_is_saved_comes_back(manifest: Manifest) -> None:
    files = fake_files()
    save(files, FOLDER, manifest)
    assert load(files, FOLDER) == manifest


def test_an_empty_folder_gets_a_manifest_before_any_file() -> None:
    files = FakeFiles(DATA)
    assert load(files, FOLDER) == Manifest(generation=1)
    assert files.unsynced() == []
    assert sorted(files.listdir(FOLDER)) == [MANIFEST, COPY]


def test_files_without_their_manifest_are_not_taken_for_an_empty_schedule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = fake_files()
    load(files, FOLDER)
    merged = Fill((0, 200), [parked(NOON, 1), parked(NOON, 101)]).write(files)
    for stretch in ((0, 100), (100, 200)):
        Fill(stretch, [parked(NOON, stretch[0] + 1)]).write(files)
    last = Fill((300, 400), [parked(NOON, 301)]).write(files)
    files.unlink(FOLDER / MANIFEST)
    files.unlink(FOLDER / COPY)
    manifest = load(files, FOLDER)
    assert manifest.files == [Listed.of(merged), Listed.of(last)], "not what was merged into it"
    assert (manifest.filled, manifest.rebuilt) == (400, True)
    assert "both copies of the schedule's manifest are lost" in caplog.text
    assert MANIFEST not in files.listdir(FOLDER), "it is saved when all of it is known"


def test_the_manifest_of_an_older_broker_opens() -> None:
    """Version 1, one copy, as it was written before there were two."""
    files = fake_files()
    head = struct.pack(">4sHqqqIIII", b"KQM1", 1, 700, NOON, 3, 1, 1, 1, 2)
    rest = struct.pack(">qqIQQI", 0, 700, 2, 5, 900, 77) + struct.pack(">Iq", 1, 5)
    rest += struct.pack(">IqH", 1, NOON, 2) + b"id" + struct.pack(">qq", 8, 9)
    data = head + rest
    data += struct.pack(">I", crc32c(data))
    write_file_atomically(files, FOLDER / MANIFEST, data)
    manifest = load(files, FOLDER)
    assert (manifest.filled, manifest.delivered_until) == (700, (NOON, 3))
    assert manifest.files == [Listed((0, 700), 2, 5, 900, 77)]
    assert (manifest.pending, manifest.done) == ({1: 5}, {8, 9})
    assert manifest.remembered == {(1, b"id"): Remembered(NOON, None)}
    assert load(files, FOLDER) == manifest, "and is written in two copies of the new format"
    files.damage(FOLDER / MANIFEST, data + b"garbage")
    files.unlink(FOLDER / COPY)
    assert load(files, FOLDER).filled == 700, "bytes behind its end do no harm"


def test_leftovers_are_removed_and_what_is_listed_is_not() -> None:
    files = fake_files()
    manifest = load(files, FOLDER)
    listed = Fill((0, 100), [parked(NOON, 1)]).write(files)
    Fill((0, 100), [parked(NOON, 2)]).write(files)
    Fill((100, 200), [parked(NOON, 102)]).write(files)
    for name in (f"{listed.path.name}.tmp", "x.schedule.tables0.tmp", "notes.txt"):
        files.close(files.open(FOLDER / name, create=True))
    manifest.files = [Listed.of(listed)]
    found, lost = open_files(files, FOLDER, manifest)
    assert [file.path for file in found] == [listed.path]
    assert lost == []
    assert [one.schedule_id for one in messages_of(found[0])] == [1]
    assert sorted(files.listdir(FOLDER)) == [listed.path.name, MANIFEST, COPY, "notes.txt"]


def test_a_newer_format_is_left_to_the_broker_that_wrote_it() -> None:
    files = fake_files()
    manifest = load(files, FOLDER)
    file = Fill((0, 100), [parked(NOON, 1)]).write(files)
    content = newer(files.content(file.path)[-FOOTER.size :], at=4)
    files.damage(file.path, files.content(file.path)[: -FOOTER.size] + content)
    with pytest.raises(StartError, match="format version 3, this broker knows 2"):
        ScheduleFile(files, file.path)
    files.damage(FOLDER / MANIFEST, newer(pack(manifest), at=4))
    with pytest.raises(StartError, match="format version 3, this broker knows 2"):
        load(files, FOLDER)


def newer(content: bytes, at: int) -> bytes:
    data = content[:at] + struct.pack(">H", 3) + content[at + 2 : -4]
    return data + struct.pack(">I", crc32c(data))
