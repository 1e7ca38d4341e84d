"""Subscriptions as clients really send them."""

from __future__ import annotations

import pytest

from kumquat.gateway.groups.membership.protocol import read_subscription
from kumquat.gateway.wire import ConsumerProtocolSubscription, SubscriptionTopicPartition
from kumquat.gateway.wire.errors import WireError


def body(version: int) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=["orders", "orders"],
        user_data=b"",
        owned_partitions=[SubscriptionTopicPartition("orders", [0])],
        generation_id=7,
        rack_id="r",
    )
    return b"".join(ConsumerProtocolSubscription.encode(subscription, version))


@pytest.mark.parametrize("said", range(6))
@pytest.mark.parametrize("sent", range(4))
def test_a_body_that_is_older_or_newer_than_its_version_is_read_as_far_as_it_goes(
    said: int, sent: int
) -> None:
    """kafka-go says version 1 and sends version 0."""
    found = read_subscription(said.to_bytes(2, "big") + body(sent))
    assert found.topics == ["orders"]
    has_owned = said >= 1 and sent >= 1
    assert found.owned == ({"orders"} if has_owned else None)
    assert found.short == (said >= 1 and sent == 0)


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1", b"\0\1\0\0\0\1\0\4or"])
def test_what_has_no_topics_is_no_subscription(metadata: bytes) -> None:
    with pytest.raises(WireError):
        read_subscription(metadata)
