"""A compressed batch without a delay header that is checked, inflated or appended more than once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.errors import KumquatError, WouldBlock
from kumquat.core.records import batch as batches
from kumquat.core.records import compression
from kumquat.core.records.tests.test_batch import built
from kumquat.gateway.handlers.common.produce_template import Template
from kumquat.gateway.net.repeats import ToOpen
from kumquat.gateway.tests.harness import Served, produce, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REQUESTS = 6
SMALL, LARGE = 10_000, 900_000
VALUE = bytes(range(256)) * (LARGE // 256)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a batch is checked and inflated, errors are made, and templates used."""
    counts: Counter[str] = Counter()

    def count(module: Any, name: str, what: str) -> None:
        function = getattr(module, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            counts[what] += 1
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, counted)

    count(batches, "crc32c", "CRC checks")
    for codec in ("_gzip", "_snappy", "_lz4", "_zstd", "_zstd_whole"):
        count(compression, codec, "inflations")
    count(KumquatError, "__init__", "errors")
    count(WouldBlock, "__init__", "errors")
    stage: Callable[[Template, memoryview], Any] = Template.stage

    def staged(self: Template, frame: memoryview) -> Any:
        slot = stage(self, frame)
        counts["in a template"] += slot is not None
        counts["in a thread"] += isinstance(slot, ToOpen)
        return slot

    monkeypatch.setattr(Template, "stage", staged)
    return counts


def send(folder: Path, counts: Counter[str], *values: bytes, codec: int) -> Counter[str]:
    """Produce each of them, one after the other; what that cost."""
    costs: Counter[str] = Counter()

    async def check(served: Served) -> None:
        await served.create("t")
        counts.clear()
        async with served.client() as client:
            for offset, value in enumerate(values):
                data = bytes(built(value, codec=codec))
                answer = await client.call(produce("t", records=data), 9)
                (answered,) = answer.responses[0].partition_responses
                assert (answered.error_code, answered.base_offset) == (0, offset)
            costs.update(counts)

    serve(check, folder)
    return costs


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_an_ordinary_compressed_batch_costs_one_check_one_inflation_and_no_error(
    tmp_path: Path, counts: Counter[str], codec: int, size: int
) -> None:
    costs = send(tmp_path, counts, *[VALUE[:size]] * REQUESTS, codec=codec)
    assert costs["CRC checks"] == costs["inflations"] == REQUESTS
    assert costs["errors"] == 0
    if size == SMALL:
        assert costs["in a template"] >= REQUESTS - 2
        assert costs["in a thread"] == 0


def test_an_ordinary_batch_costs_one_check_and_is_not_opened(
    tmp_path: Path, counts: Counter[str]
) -> None:
    costs = send(tmp_path, counts, *[VALUE] * REQUESTS, codec=0)
    assert costs["CRC checks"] == REQUESTS
    assert costs["inflations"] == costs["errors"] == 0


def test_a_batch_that_the_template_has_looked_at_is_not_looked_at_by_the_handler(
    tmp_path: Path, counts: Counter[str]
) -> None:
    """Small plain batches have a template made; then large ones come."""
    costs = send(tmp_path, counts, *[VALUE[:2_000]] * 3, *[VALUE] * 2, codec=4)
    assert costs["in a thread"] == 2
    assert costs["CRC checks"] == costs["inflations"] == 5
    assert costs["errors"] == 0
