"""Leases on parts of compressed batches that neither memory nor the page cache has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kumquat.core.delivery.pull_log import Lease
from kumquat.core.delivery.sharing.lease_reader import Loading
from kumquat.core.errors import WouldBlock
from kumquat.core.records.tests.test_batch import built
from kumquat.gateway.tests.harness import Served, produce, serve

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GZIP = 1


def test_a_lease_on_part_of_a_large_compressed_batch_is_not_inflated_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read has to wait for a thread, as on a file system that cannot say what is cached."""

    async def check(served: Served) -> None:
        await served.create("t")
        values = [os.urandom(1000) for _ in range(800)]
        async with served.client() as client:
            await client.call(produce("t", records=bytes(built(*values, codec=GZIP))), 9)
        broker, opened = served.broker, 0
        subject, reader = broker.log.subjects.by_name["t"], broker.sharing.reader
        read, inflate = broker.log.read_nowait, reader._open

        def cold(*asked: Any) -> Any:
            raise WouldBlock

        async def threaded(*asked: Any) -> Any:
            return read(*asked)

        async def counted(*batch: Any) -> Any:
            nonlocal opened
            opened += 1
            assert opened == 1, "it was inflated already"
            return await inflate(*batch)

        monkeypatch.setattr(broker.log, "read_nowait", cold)
        monkeypatch.setattr(broker.log, "read", threaded)
        monkeypatch.setattr(reader, "_open", counted)
        loading = Loading(reader, subject, 1, [Lease(1 << 24, 0, 100, 1)], 1 << 20)
        await reader.finish(loading)
        assert (opened, loading.messages) == (1, 100)

    serve(check, tmp_path)
