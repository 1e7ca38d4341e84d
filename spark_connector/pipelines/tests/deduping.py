"""What the tests of dedupe share: messages with ids into `in`, and what has come to `out`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from kumquat.spark.tests.messages import held

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = int(time.time() * 1000)

Message = tuple[int, int]
"""Its id and its time in ms."""


def make(bootstrap: str, *names: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in names])


def recreate(bootstrap: str, name: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_topics([name])
        admin.create_topics([NewTopic(name, 1, 1)])


def send(bootstrap: str, messages: Sequence[Message], first: int = 0) -> None:
    """Message n of the subject, counted from `first`, has the value n."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number, (ident, ms) in enumerate(messages, first):
        headers = [("message-id", b"m%d" % ident)]
        producer.send("in", b"%d" % number, headers=headers, timestamp_ms=ms)
    producer.flush()
    producer.close()


def let_through(bootstrap: str) -> list[int]:
    return [int(record.value) for record in held(bootstrap, "out")]
