"""What the stories of share groups share, for confluent-kafka's ShareConsumer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import AcknowledgeType, ShareConsumer

from compat_tests.groups.stories import configure
from compat_tests.support import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

ACCEPT, RELEASE, REJECT = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
)


def from_the_first(bootstrap: str, group: str, is_kafka: bool, **configs: str) -> None:
    """The group begins with the first message, and gets again at once what it releases."""
    ours = {} if is_kafka else {"retry.backoff.ms": "0"}
    configure(bootstrap, group, **{"share.auto.offset.reset": "earliest", **ours, **configs})


def member(bootstrap: str, group: str, topic: str, **settings: object) -> ShareConsumer:
    made = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "log_level": 3,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    made.subscribe([topic])
    return made


def explicit(bootstrap: str, group: str, topic: str) -> ShareConsumer:
    return member(bootstrap, group, topic, share_acknowledgement_mode="explicit")


def some(reader: ShareConsumer) -> list[Message]:
    """What the first poll gives that gives something."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        got = list(reader.poll(0.2))
        for message in got:
            assert message.error() is None, message.error()
        if got:
            return got
    raise AssertionError("nothing came")


def take(reader: ShareConsumer, count: int) -> list[Message]:
    """So many, with as many polls as it takes; each accepts what the one before gave."""
    got: list[Message] = []
    while len(got) < count:
        got += some(reader)
    return got


def values(messages: Iterable[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]


def settle(reader: ShareConsumer, messages: Iterable[Message], kind: AcknowledgeType) -> None:
    for message in messages:
        reader.acknowledge(message, kind)
    succeeds(reader)


def succeeds(reader: ShareConsumer) -> None:
    results = reader.commit_sync(DEADLINE)
    assert results, "something was acknowledged"
    assert not [error for error in results.values() if error is not None], results
