"""What a list of acknowledgements may look like, whoever holds the records.

Of one partition: batches [first offset, last offset, types], ascending and without overlap, with one type
for all offsets or one for each. Types: 0 gap (no such record), 1 accept, 2 release, 3 reject, and 4 renew
where the request says that it renews (version 2). Anything else is INVALID_REQUEST for that partition, and
nothing of the list is applied. A ShareFetch that renews reads nothing, and says so with zeros.

Left out: whether the member holds the records. The delivery engine says that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kumquat.gateway.shares.errors import InvalidShareRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.gateway.wire import ShareFetchRequest

REJECT, RENEW = 3, 4


class Batch(Protocol):
    """As it comes in either request."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> list[int]: ...


def check_batches(batches: Iterable[Batch], *, renews: bool, before: int = -1) -> int:
    """Some batches behind that offset; gives the last offset that they name. Raises InvalidShareRequest."""
    highest = RENEW if renews else REJECT
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last:
            raise InvalidShareRequest(f"acknowledged offsets {first} to {last} are no range")
        if first <= before:
            raise InvalidShareRequest(
                f"acknowledged offsets are not ascending: {first} comes after {before}"
            )
        if len(types) != 1 and len(types) != last - first + 1:
            raise InvalidShareRequest(
                f"offsets {first} to {last} have {len(types)} acknowledge types: give one, or one each"
            )
        if min(types) < 0 or max(types) > highest:
            raise InvalidShareRequest(
                f"offsets {first} to {last}: acknowledge types are 0 to {REJECT}, "
                f"and {RENEW} in a request with is_renew_ack; got {sorted(set(types))}"
            )
        before = last
    return before


def check_renewing_fetch(request: ShareFetchRequest) -> None:
    """A ShareFetch with `is_renew_ack` asks for nothing. Raises InvalidShareRequest."""
    asked = {
        "max_bytes": request.max_bytes,
        "min_bytes": request.min_bytes,
        "max_records": request.max_records,
        "max_wait_ms": request.max_wait_ms,
    }
    given = [f"{name}={value}" for name, value in asked.items() if value]
    if given:
        raise InvalidShareRequest(
            f"a ShareFetch that renews reads nothing, so these must be 0: {', '.join(given)}"
        )
