"""What configs can belong to, as DescribeConfigs and the two AlterConfigs name it: numbers and names."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from gateway.dispatch import Refused
from gateway.handlers.lookup import find_subject
from gateway.subjects import check_name
from gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from core.logs.subject import Subject
    from gateway.broker import Broker


class Resource(IntEnum):
    """Kafka's numbers for kinds of resources."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def topic_of(broker: Broker, name: str) -> Subject:
    """The subject that a TOPIC resource names. Raises Refused."""
    check_name(name)
    return find_subject(broker, name)


def check_broker(broker: Broker, name: str) -> None:
    """Raises Refused unless a BROKER resource names this broker, or all of them by no name."""
    if name not in ("", str(broker.node_id)):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}; there is no {name!r}"
        )


def unsupported(kind: int) -> Refused:
    known = kind in Resource.__members__.values()
    what = f"{Resource(kind).name} configs" if known else f"resource type {kind}"
    return Refused(ErrorCode.INVALID_REQUEST, f"{what}: not served; TOPIC and BROKER are")
