"""Refused joins in the log. Many clients hide the broker's error text, so the log must say the reason.

A client that is refused tries again at once, so there is one WARNING for each group and code in
QUIET_SECONDS; the next one says how many were left out. What belongs to the normal life of a group is
not told: a member that is not known any more, a rebalance under way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gateway.groups.errors import (
    FencedMemberEpoch,
    GroupError,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)

if TYPE_CHECKING:
    from gateway.groups.members import Caller

QUIET_SECONDS = 60.0
MOST_REMEMBERED = 1_000
ORDINARY = (FencedMemberEpoch, IllegalGeneration, RebalanceInProgress, UnknownMember)

logger = logging.getLogger(__name__)


class Refusals:
    def __init__(self) -> None:
        self._told: dict[tuple[str, int], tuple[float, int]] = {}
        """Group and code → when it was told, and how many were left out since."""

    def tell(self, group: str, caller: Caller, error: GroupError, now: float) -> None:
        if isinstance(error, ORDINARY):
            return
        key = (group[:100], error.error_code)
        told_at, left_out = self._told.get(key, (-QUIET_SECONDS, 0))
        if now - told_at < QUIET_SECONDS:
            self._told[key] = (told_at, left_out + 1)
            return
        self._told.pop(key, None)
        while len(self._told) >= MOST_REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[key] = (now, 0)
        logger.warning(
            "group %s: a join of client %r from %s was refused: %s%s",
            *(key[0], caller.client_id, caller.host, error),
            f" ({left_out} more since the last such line)" if left_out else "",
        )
