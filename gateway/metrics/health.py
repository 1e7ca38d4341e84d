"""Whether the broker works, and whether clients should come."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker


@dataclass(frozen=True, slots=True)
class Health:
    ok: bool
    status: str

    def payload(self) -> dict[str, Any]:
        return asdict(self)


def live(broker: Broker) -> Health:
    return Health(True, "live")


def ready(broker: Broker) -> Health:
    return Health(True, "ready")
