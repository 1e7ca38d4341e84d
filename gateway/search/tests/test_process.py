"""Search in a broker of its own process, over HTTP, with a real client, also after kill -9."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

pytestmark = pytest.mark.long
COUNT, KEYS = 2000, 50


def ask(broker: TestBroker, path: str, **values: object) -> dict[str, Any]:
    with urlopen(f"{broker.admin}{path}?{urlencode(values)}", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def check(broker: TestBroker) -> None:
    for key in range(0, KEYS, 7):
        answer = ask(broker, "/search", subject="orders", key=f"customer-{key}", limit=1000)
        expected = list(range(COUNT - KEYS + key, -1, -KEYS))
        assert [message["offset"] for message in answer["messages"]] == expected
        assert (answer["unreadable"], answer["next"]) == ([], None)
    answer = ask(broker, "/search", subject="orders", text='"n": 1234}', header="source=shop")
    assert [message["offset"] for message in answer["messages"]] == [1234]
    page = ask(broker, "/messages", subject="orders", offset=100, limit=3)
    assert [message["value"] for message in page["messages"]] == [
        {"text": f'{{"n": {n}}}'} for n in (100, 101, 102)
    ]


@pytest.mark.kumquat(log_segment_bytes=20_000)
def test_a_killed_broker_finds_what_it_found_before(kumquat: TestBroker) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=kumquat.bootstrap)) as admin:
        admin.create_topics([NewTopic("orders", 1, 1, topic_configs={"index.keys": "true"})])
    with closing(KafkaProducer(bootstrap_servers=kumquat.bootstrap, acks="all")) as producer:
        for n in range(COUNT):
            producer.send(
                "orders",
                key=b"customer-%d" % (n % KEYS),
                value=b'{"n": %d}' % n,
                headers=[("source", b"shop")],
            )
        producer.flush()
    check(kumquat)
    kumquat.kill()
    kumquat.start()
    check(kumquat)
