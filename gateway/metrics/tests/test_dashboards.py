"""A dashboard that stays empty, an alert that can never fire: tried on a real broker by a real Prometheus.

The broker is staged so that every series has something to say: messages, delays, groups that share and do
not, retries, dead letters, refusals.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from kumquat.consumer import reject, retry
from kumquat.gateway.metrics.tests.expressions import (
    ALERTS,
    alerts,
    dashboard,
    dashboard_expressions,
    names,
    selectors,
)
from kumquat.gateway.metrics.tests.prometheus import (
    needs_prometheus,
    promtool,
    promtool_complaints,
    scraping,
)
from kumquat.gateway.testing.broker import TestBroker, broker

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE = 60.0
FIRE = ("KumquatDeadLetters", "KumquatBatchesRefused")
"""Alerts whose conditions the staged broker fulfils, but for how long they have to."""
TOLD = (
    'kumquat_dead_letters_total{reason="rejected"} == 2',
    "kumquat_delay_delivered_total == 2",
    "kumquat_delay_pending == 2",
    'kumquat_delay_pending_by_subject{topic="later"} == 2',
    'kumquat_group_retries_waiting{consumergroup="sharing",topic="orders"} == 2',
    'kafka_consumergroup_members{consumergroup="sharing"} == 1',
    'kafka_consumergroup_current_offset{consumergroup="billing",topic="orders"} == 2',
    'kafka_consumergroup_lag{consumergroup="billing",topic="orders"} == 38',
)
"""What two acts come to."""
NAMES_OF_KAFKA_EXPORTER = {"kafka_consumergroup_current_offset_sum", "kafka_consumergroup_lag_sum"}
"""promtool does not like names like these for what is no histogram. Dashboards do."""


class Stage:
    """A broker on which everything happens once for each `act`."""

    def __init__(self, b: TestBroker) -> None:
        self._broker = b
        self._acts = 0
        self._admin = AdminClient({"bootstrap.servers": b.bootstrap})
        for made in self._admin.create_topics([NewTopic("orders"), NewTopic("later")]).values():
            made.result(DEADLINE)
        self._configure("sharing", **{"consume.mode": "shared"})
        self._producer = Producer({"bootstrap.servers": b.bootstrap})
        self._sharer = self._consumer("sharing", "orders")
        self._reader = self._consumer("billing", "orders")

    def _configure(self, group: str, **configs: str) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(DEADLINE)

    def _consumer(self, group: str, topic: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        return consumer

    def act(self) -> None:
        self._acts += 1
        for number in range(20):
            self._send("orders", b"%d" % number)
        self._send("later", b"soon", qmq_delay_ms=b"1")
        self._send("later", b"tomorrow", qmq_delay_ms=b"86400000")
        self._send("later", b"never", error=KafkaError.INVALID_RECORD, qmq_delay_ms=b"-1")
        records = self._sharer.consume(3, DEADLINE)
        assert len(records) == 3
        retry(self._producer, "sharing", records[0], after=0)
        retry(self._producer, "sharing", records[1], after=3600)
        reject(self._producer, "sharing", records[2], reason="staged")
        self._sharer.commit(message=records[2], asynchronous=False)
        (record,) = self._reader.consume(1, DEADLINE)
        self._reader.commit(message=record, asynchronous=False)
        seen = Consumer({"bootstrap.servers": self._broker.bootstrap, "group.id": "unused"})
        self._wait_for(seen, "orders.sharing.dlq")
        self._wait_for(seen, "later")
        seen.close()

    def _wait_for(self, consumer: Consumer, topic: str) -> None:
        """Until this act's message is in it."""
        consumer.assign([TopicPartition(topic, 0, self._acts - 1)])
        assert consumer.consume(1, DEADLINE)

    def _send(self, topic: str, value: bytes, error: int | None = None, **headers: bytes) -> None:
        told: list[Any] = []
        named: Any = [(name.replace("_", "-"), text) for name, text in headers.items()]
        self._producer.produce(
            topic, value, headers=named, on_delivery=lambda failed, _: told.append(failed)
        )
        assert self._producer.flush(DEADLINE) == 0
        assert [failed and failed.code() for failed in told] == [error]

    def close(self) -> None:
        self._sharer.close()
        self._reader.close()


@pytest.mark.long
@needs_prometheus
def test_an_expression_is_wrong_or_finds_nothing_on_a_running_broker(tmp_path: Path) -> None:
    with broker() as b:
        stage = Stage(b)
        stage.act()
        with scraping(tmp_path, f"{b.admin}/metrics") as prometheus:
            prometheus.wait_for_scrapes(1)
            stage.act()
            prometheus.wait_for_scrapes(2)
            for expression in TOLD:
                assert prometheus.query(expression), expression
            empty = [each for each in dashboard_expressions() if not prometheus.query(each)]
            assert not empty, "the dashboard shows nothing for these"
            for name, rule in alerts().items():
                found = prometheus.query(rule["expr"])
                assert bool(found) >= (name in FIRE), name
                for selector in selectors(rule["expr"]):
                    assert prometheus.query(selector), f"{name}: there is no {selector}"
        stage.close()


@pytest.mark.long
@needs_prometheus
def test_promtool_finds_fault_with_a_scrape() -> None:
    with broker(health_disk_min_free_bytes=0) as b:
        stage = Stage(b)
        stage.act()
        with urlopen(f"{b.admin}/metrics", timeout=DEADLINE) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read()
        for path in ("/health/live", "/health/ready"):
            with urlopen(b.admin + path, timeout=DEADLINE) as answer:
                assert json.load(answer)["ok"] is True
        stage.close()
    assert promtool_complaints(text) == NAMES_OF_KAFKA_EXPORTER


@needs_prometheus
def test_promtool_finds_fault_with_the_alert_rules() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(ALERTS))


def test_an_alert_does_not_say_what_to_do() -> None:
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("page", "ticket"), name
        assert len(rule["annotations"]["summary"]) > 20, name
        assert len(rule["annotations"]["description"]) > 20, name
        assert names(rule["expr"]), name


def test_two_panels_have_one_place_or_one_number() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == [
        "Overview",
        "Throughput",
        "Groups and lag",
        "Messages for later",
        "Retries and dead letters",
        "Storage",
        "Event loop and process",
    ]
