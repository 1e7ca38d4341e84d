"""The broker's metrics in Prometheus' text format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Gauge, generate_latest

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


async def render(broker: Broker) -> bytes:
    registry = CollectorRegistry()
    subjects = Gauge("kumquat_subjects", "Subjects that there are.", registry=registry)
    subjects.set(len(broker.log.subjects.by_name))
    return generate_latest(registry)
