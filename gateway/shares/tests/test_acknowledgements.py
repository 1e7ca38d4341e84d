"""Lists of acknowledgements that are malformed: each is INVALID_REQUEST."""

from __future__ import annotations

import pytest

from kumquat.gateway.shares.acknowledgements import check_batches, check_renewing_fetch
from kumquat.gateway.shares.errors import InvalidShareRequest
from kumquat.gateway.wire import AcknowledgementBatch, ShareFetchRequest
from kumquat.gateway.wire.codes import ErrorCode

GOOD = [
    [],
    [(0, 0, [1])],
    [(0, 9, [1])],
    [(0, 2, [1, 2, 3])],
    [(0, 2, [0, 0, 0]), (3, 3, [1]), (7, 1 << 62, [2])],
]
MALFORMED = {
    "last below first": [(5, 4, [1])],
    "negative": [(-1, 3, [1])],
    "descending": [(5, 9, [1]), (0, 4, [1])],
    "overlap": [(0, 4, [1]), (4, 8, [1])],
    "twice": [(0, 4, [1]), (0, 4, [1])],
    "no type": [(0, 4, [])],
    "too few types": [(0, 4, [1, 1])],
    "too many types": [(0, 1, [1, 1, 1])],
    "type below 0": [(0, 4, [-1])],
    "type above 4": [(0, 4, [5])],
    "one type of many": [(0, 2, [1, 1, 5])],
    "the second batch": [(0, 0, [1]), (1, 1, [])],
}


def batches(rows: list[tuple[int, int, list[int]]]) -> list[AcknowledgementBatch]:
    return [AcknowledgementBatch(*row) for row in rows]


@pytest.mark.parametrize("rows", GOOD)
@pytest.mark.parametrize("renews", [False, True])
def test_a_good_list_that_is_refused(rows: list[tuple[int, int, list[int]]], renews: bool) -> None:
    check_batches(batches(rows), renews=renews)


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize("rows", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_list_that_passes(rows: list[tuple[int, int, list[int]]], renews: bool) -> None:
    with pytest.raises(InvalidShareRequest) as refused:
        check_batches(batches(rows), renews=renews)
    assert refused.value.error_code == ErrorCode.INVALID_REQUEST


def test_a_renewal_in_a_request_that_does_not_renew() -> None:
    renewing = batches([(0, 1, [1, 4])])
    check_batches(renewing, renews=True)
    with pytest.raises(InvalidShareRequest):
        check_batches(renewing, renews=False)


@pytest.mark.parametrize("name", ["max_wait_ms", "min_bytes", "max_bytes", "max_records"])
def test_a_renewing_fetch_that_asks_for_records(name: str) -> None:
    request = ShareFetchRequest(is_renew_ack=True, max_bytes=0)
    check_renewing_fetch(request)
    setattr(request, name, 1)
    with pytest.raises(InvalidShareRequest, match=name):
        check_renewing_fetch(request)
