"""What `kumquat dump` shows of the schedule is what is there, and damage is shown where it is."""

from io import StringIO
from pathlib import Path

from kumquat.core.logs.disk.files import RealFiles
from kumquat.core.wheel.dump import dump_schedule, is_of_schedule
from kumquat.core.wheel.files.manifest import MANIFEST, load, save
from kumquat.core.wheel.files.manifest_format import Listed, Manifest
from kumquat.core.wheel.files.tests.schedules import NOON, Fill, parked
from kumquat.core.wheel.format import PENDING, Name, Tombstone
from kumquat.core.wheel.schedule.model import Remembered

FILL = Fill(
    (100, 200),
    [parked(NOON, 101), parked(NOON + 1, 102, 2, b"x")],
    [Tombstone(NOON + 7, 50, 1)],
    [Name(2, b"x", 102, NOON + 1, PENDING)],
)


def dumped(path: Path) -> tuple[int, list[str]]:
    out = StringIO()
    code = dump_schedule(path, out)
    return code, out.getvalue().splitlines()


def test_every_message_tombstone_and_name_is_shown(tmp_path: Path) -> None:
    file = FILL.write(RealFiles(), tmp_path)
    file.close()
    assert is_of_schedule(file.path)
    code, lines = dumped(file.path)
    soon = "2027-01-15T08:00:00.001+00:00"
    assert code == 0
    assert lines == [
        "messages 2027-01-15T08:00:00.000+00:00 subject=1",
        "    due=2027-01-15T08:00:00.000+00:00 id=101 byte=0 length=46",
        "messages 2027-01-15T08:00:00.000+00:00 subject=2",
        "    due=2027-01-15T08:00:00.001+00:00 id=102 byte=46 length=47",
        "tombstones 2027-01-15T08:00:00.000+00:00 subject=1",
        "    due=2027-01-15T08:00:00.007+00:00 id=50",
        f"name 'x' subject=2 id=102 due={soon} pending kept until {soon}",
        f"{file.path}: log positions 100 to 200, 2 messages in 2 rows, 1 tombstones, 1 names, 0 bad",
    ]


def test_damage_is_shown_where_it_is(tmp_path: Path) -> None:
    file = FILL.write(RealFiles(), tmp_path)
    file.close()
    content = file.path.read_bytes()
    for at in range(len(content)):
        file.path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        code, lines = dumped(file.path)
        assert code == 1
        assert any("BAD: " in line for line in lines), at
    file.path.write_bytes(content[:-1])
    assert dumped(file.path)[0] == 1
    assert dumped(tmp_path / "nothing.schedule")[0] == 2
    renamed = file.path.with_name("copy.schedule")
    renamed.write_bytes(content)
    assert dumped(renamed)[0] == 1


def test_the_manifest_is_shown(tmp_path: Path) -> None:
    files = RealFiles()
    load(files, tmp_path)
    file = FILL.write(files, tmp_path)
    file.close()
    path = tmp_path / MANIFEST
    assert is_of_schedule(path)
    save(
        files,
        tmp_path,
        Manifest(
            200, (NOON, 101), [Listed.of(file)], {1: 1}, {(2, b"y"): Remembered(NOON, None)}, {102}
        ),
    )
    noon = "2027-01-15T08:00:00.000+00:00"
    assert dumped(path) == (
        0,
        [
            f"file {file.path.name} messages=2 size={file.size} crc={file.crc:#010x}",
            "pending subject=1 messages=1",
            "cancel of 'y' subject=2 until=2027-01-15T08:00:00.000+00:00",
            "done id=102",
            f"{path}: filled up to log position 200, delivered until due={noon} id=101, 1 files; whole",
        ],
    )
    path.write_bytes(path.read_bytes()[:-1])
    code, [line] = dumped(path)
    assert code == 1
    assert line.startswith(f"BAD: {path}: byte ")
