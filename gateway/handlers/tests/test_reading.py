"""Reading in steps gives what reading at once would give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.core.errors import CorruptMessage
from kumquat.core.logs.tests.batches import batch
from kumquat.core.records.batch import read_head
from kumquat.gateway.handlers.common import reading
from kumquat.gateway.handlers.common.reading import read_batches
from kumquat.gateway.tests.harness import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.core.logs.messages.subject import Subject

SIZES = [10, 10, 3000, 10, 500, 500, 500, 9000, 10, 20]


async def filled(served: Served) -> Subject:
    subject = await served.broker.subjects.create("t", {})
    for size in SIZES:
        served.broker.log.append_nowait(subject, memoryview(batch(bytes(size), b"second")))
    await served.broker.log.wait_synced()
    return subject


@pytest.mark.parametrize("step", [1, 100, 1000, 5000])
@pytest.mark.parametrize("turn", [0.0, 1.0])
def test_any_step_gives_the_same_as_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, turn: float
) -> None:
    monkeypatch.setattr(reading, "STEP", step)
    monkeypatch.setattr(reading, "TURN_SECONDS", turn)

    async def check(served: Served) -> None:
        subject, log = await filled(served), served.broker.log
        for offset in range(2 * len(SIZES)):
            for limit in (0, 1, 500, 4000, 12_000, 100_000):
                for at_least_one in (False, True):
                    whole = log.read_nowait(subject, offset, limit, at_least_one)
                    parts = await read_batches(log, subject, offset, limit, at_least_one)
                    assert parts == whole, (offset, limit, at_least_one)

    serve(check, tmp_path)


def test_what_is_damaged_behind_good_batches_does_not_take_these_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STEP", 1000)

    async def check(served: Served) -> None:
        subject, log = await filled(served), served.broker.log
        read = log.read_nowait

        def damaged(of: Subject, offset: int, *rest: int) -> list[bytes | memoryview]:
            if offset > 6:
                raise CorruptMessage("bad")
            return read(of, offset, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(log, "read_nowait", damaged)
        found = await read_batches(log, subject, 0, 100_000, at_least_one=True)
        assert [read_head(one).base_offset for one in found[:4]] == [0, 2, 4, 6]
        assert len(found) < len(SIZES)
        with pytest.raises(CorruptMessage):
            await read_batches(log, subject, 8, 100_000, at_least_one=True)

    serve(check, tmp_path)
