"""Where subjects begin and end, and the line that says why this is not known."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from kumquat.spark import ConnectorError, offsets

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

T0 = 1_900_000_000_000
"""Of the future, so that retention leaves it alone."""


def produce(kumquat: TestBroker, subject: str, times: list[int]) -> None:
    producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap)
    for time in times:
        producer.send(subject, b"x", timestamp_ms=time)
    producer.close()


def test_both_ends_when_the_first_messages_are_deleted(kumquat: TestBroker) -> None:
    produce(kumquat, "orders", [T0] * 10)
    produce(kumquat, "audit", [T0])
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.delete_records({TopicPartition("orders", 0): 4})
    both = ["orders", "audit"]
    assert offsets.earliest(kumquat.bootstrap, both) == {"orders": 4, "audit": 0}
    assert offsets.latest(kumquat.bootstrap, both) == {"orders": 10, "audit": 1}
    assert offsets.existing_subjects(kumquat.bootstrap) == ["__kumquat_retry", "audit", "orders"]


def test_pattern_matches_a_topic_of_the_brokers_own(kumquat: TestBroker) -> None:
    produce(kumquat, "orders", [T0])
    produce(kumquat, "__mine", [T0])
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.describe_groups(["g"])  # asks for its coordinator, which makes the topic
    assert "__consumer_offsets" in offsets.existing_subjects(kumquat.bootstrap)
    assert offsets.matching(kumquat.bootstrap, ["*"]) == ["orders"]
    assert offsets.matching(kumquat.bootstrap, ["__*"]) == ["__mine"]


def test_time_after_the_last_message_is_the_end(kumquat: TestBroker) -> None:
    produce(kumquat, "orders", [T0, T0 + 1000, T0 + 2000])
    for time, expected in [(0, 0), (T0 + 1, 1), (T0 + 2000, 2), (T0 + 2001, 3)]:
        assert offsets.at_time(kumquat.bootstrap, ["orders"], time) == {"orders": expected}
    with pytest.raises(ConnectorError, match="before 1970"):
        offsets.at_time(kumquat.bootstrap, ["orders"], -1)


def test_missing_subjects_are_named_and_not_made(kumquat: TestBroker) -> None:
    produce(kumquat, "orders", [T0])
    for _ in range(2):
        with pytest.raises(ConnectorError, match=r"no subjects ordres, audits on 127\.0\.0\.1:"):
            offsets.latest(kumquat.bootstrap, ["orders", "ordres", "audits"])
    with pytest.raises(ConnectorError, match="refuses subject 'no name'"):
        offsets.check_subjects(kumquat.bootstrap, ["no name"])


def test_no_subjects_is_an_empty_answer(kumquat: TestBroker) -> None:
    assert offsets.latest(kumquat.bootstrap, []) == {}


def test_broker_that_is_down_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectorError, match=f"no broker answers at {address} ") as caught:
            offsets.check_broker(address)
    assert "\n" not in str(caught.value)


def test_second_address_is_tried_when_the_first_is_down(kumquat: TestBroker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        down = f"127.0.0.1:{taken.getsockname()[1]}"
        offsets.check_broker(f"{down},{kumquat.bootstrap}")


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", ":9092", "localhost:kafka"])
def test_address_that_is_none(address: str) -> None:
    with pytest.raises(ConnectorError, match="write HOST:PORT"):
        offsets.check_broker(address)


def test_offsets_arrive_at_spark_as_others() -> None:
    ours = {"orders": 4, "au.dit": 2**40}
    assert json.loads(offsets.spark_json(ours)) == {"orders": {"0": 4}, "au.dit": {"0": 2**40}}
