"""The kernel may read or write less than it was asked for, at any time: the file seam never does.

What the seam's callers take for the end of a file is one.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kumquat.core.logs.disk.files import Buffer, RealFiles

CONTENT = bytes(range(256)) * 9


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call does half of what it is asked for, at least a byte."""
    pread, preadv, pwrite = os.pread, os.preadv, os.pwrite

    def half(size: int) -> int:
        return max(1, size // 2)

    def preadv_half(fd: int, buffers: Sequence[memoryview], offset: int, flags: int = 0) -> int:
        return preadv(fd, [memoryview(buffers[0])[: half(len(buffers[0]))]], offset, flags)

    def pwritev_half(fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers)
        return pwrite(fd, data[: half(len(data))], offset)

    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, half(size), at))
    monkeypatch.setattr(os, "preadv", preadv_half)
    monkeypatch.setattr(os, "pwritev", pwritev_half)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[: half(len(data))], at))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    files = RealFiles()
    fd = files.open(tmp_path / "file", create=True)
    yield fd
    files.close(fd)


@pytest.mark.usefixtures("short")
def test_short_writes_leave_nothing_out(file: int) -> None:
    cuts = [CONTENT[:1], CONTENT[1:1000], b"", CONTENT[1000:]]
    assert RealFiles().pwritev(file, cuts, 3) == len(CONTENT)
    assert Path(f"/proc/self/fd/{file}").read_bytes() == bytes(3) + CONTENT


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("read", ["pread", "preadv_into"])
def test_short_reads_give_all_that_the_file_has(file: int, read: str) -> None:
    files = RealFiles()
    files.pwritev(file, [CONTENT], 0)

    def preadv_into(size: int, offset: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: files.preadv_into(file, buffer, offset, nowait=False)])

    reads: dict[str, Callable[[int, int], bytes]] = {
        "pread": lambda size, offset: files.pread(file, size, offset),
        "preadv_into": preadv_into,
    }
    assert reads[read](len(CONTENT), 0) == CONTENT
    assert reads[read](100, 7) == CONTENT[7:107]
    assert reads[read](100, len(CONTENT) - 9) == CONTENT[-9:]
    assert reads[read](100, len(CONTENT)) == b""


def test_a_write_that_stops_short_for_good_is_an_error(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: 5)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        RealFiles().pwritev(file, [CONTENT], 0)
