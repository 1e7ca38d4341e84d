"""Refused joins in the log. Many clients hide the broker's error text, so the log must say the reason.

A client that is refused tries again at once, so each group and code is logged once a minute at the most.
What belongs to the normal life of a group is not logged: a member that is no longer known, a rebalance
under way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kumquat.core.complaints import Complaints
from kumquat.gateway.groups.errors import (
    FencedMemberEpoch,
    GroupError,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)

if TYPE_CHECKING:
    from kumquat.gateway.groups.membership.members import Caller

ORDINARY = (FencedMemberEpoch, IllegalGeneration, RebalanceInProgress, UnknownMember)

logger = logging.getLogger(__name__)


class Refusals:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._complaints = Complaints(logger, clock)

    def tell(self, group: str, caller: Caller, error: GroupError) -> None:
        if not isinstance(error, ORDINARY):
            self._complaints.warning(
                (group[:100], error.error_code),
                f"group {group[:100]}: a join of client {caller.client_id!r} from {caller.host} "
                f"was refused: {error}",
            )
