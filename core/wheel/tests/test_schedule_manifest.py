"""The manifest: what it says comes back, and what does not fit it is told."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import StartError
from core.logs.tests.power import FakeFiles
from core.wheel.manifest import MANIFEST, Listed, Manifest, load, open_files, pack, save
from core.wheel.schedule_file import ScheduleFile
from core.wheel.schedule_format import FOOTER, ScheduleLost
from core.wheel.tests.schedules import (
    DATA,
    FOLDER,
    NOON,
    SLOW,
    Fill,
    fake_files,
    messages_of,
    parked,
)

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
    st.dictionaries(st.tuples(small, st.binary(max_size=300)), positions),
    st.sets(positions),
)


@settings(SLOW)
@given(manifests)
def test_what_is_saved_comes_back(manifest: Manifest) -> None:
    files = fake_files()
    save(files, FOLDER, manifest)
    assert load(files, FOLDER) == manifest


def test_an_empty_folder_gets_a_manifest_before_any_file() -> None:
    files = FakeFiles(DATA)
    assert load(files, FOLDER) == Manifest()
    assert files.unsynced() == []
    assert files.listdir(FOLDER) == [MANIFEST]


def test_files_without_their_manifest_are_not_taken_for_an_empty_schedule() -> None:
    files = fake_files()
    load(files, FOLDER)
    Fill((0, 100), [parked(NOON, 1)]).write(files)
    files.unlink(FOLDER / MANIFEST)
    with pytest.raises(ScheduleLost, match="manifest is missing, but there are 1 schedule files"):
        load(files, FOLDER)
    assert len(files.listdir(FOLDER)) == 1


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
    assert [one.sid for one in messages_of(found[0])] == [1]
    assert sorted(files.listdir(FOLDER)) == [listed.path.name, MANIFEST, "notes.txt"]


def test_a_newer_format_is_left_to_the_broker_that_wrote_it() -> None:
    files = fake_files()
    manifest = load(files, FOLDER)
    file = Fill((0, 100), [parked(NOON, 1)]).write(files)
    content = newer(files.content(file.path)[-FOOTER.size :], at=4)
    files.damage(file.path, files.content(file.path)[: -FOOTER.size] + content)
    with pytest.raises(StartError, match="format version 2, this broker knows 1"):
        ScheduleFile(files, file.path)
    files.damage(FOLDER / MANIFEST, newer(pack(manifest), at=4))
    with pytest.raises(StartError, match="format version 2, this broker knows 1"):
        load(files, FOLDER)


def newer(content: bytes, at: int) -> bytes:
    data = content[:at] + struct.pack(">H", 2) + content[at + 2 : -4]
    return data + struct.pack(">I", crc32c(data))
