"""Dead letters that cannot be written: the message stays, is tried again, and everybody can see why."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from compat_tests.groups.stories import admin, configure, fill
from compat_tests.retries.stories import dead_letters, idle, numbers
from compat_tests.retries.workers import WORKERS, Worker
from compat_tests.support import DEADLINE, eventually

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

pytestmark = [
    pytest.mark.long,
    pytest.mark.differs("Kafka has no dead letters for consumer groups"),
]
TOPIC, GROUP = "orders", "workers"
LETTERS = f"{TOPIC}.{GROUP}.dlq"


def reject_all(worker: Worker, count: int) -> set[str]:
    """Take so many messages and reject them; gives their values."""
    rejected: set[str] = set()

    def take() -> bool:
        for each in worker.take(0.2):
            assert each.value not in rejected, f"{each.value} was rejected and came again"
            worker.reject(each, "cannot be handled")
            rejected.add(each.value)
        return len(rejected) >= count

    eventually(take, "all come")
    return rejected


def kumquat_command(broker: TestBroker, *arguments: str) -> str:
    command = [sys.executable, "-m", "kumquat", *arguments, "--admin", broker.admin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    return done.stdout


def make_letters(broker: TestBroker, most_bytes: int) -> None:
    wanted = NewTopic(LETTERS, 1, 1, config={"max.message.bytes": str(most_bytes)})
    admin(broker.bootstrap).create_topics([wanted])[LETTERS].result(DEADLINE)


def allow(broker: TestBroker, most_bytes: int) -> None:
    change = ConfigEntry(
        "max.message.bytes", str(most_bytes), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, LETTERS, incremental_configs=[change])
    for future in admin(broker.bootstrap).incremental_alter_configs([resource]).values():
        future.result(DEADLINE)


def test_a_subject_that_takes_no_message_of_that_size(kumquat: TestBroker) -> None:
    configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared"})
    make_letters(kumquat, most_bytes=100)
    sent = set(fill(kumquat.bootstrap, TOPIC, 5))
    worker: Worker = WORKERS["confluent"](kumquat.bootstrap, GROUP, TOPIC)
    try:
        assert reject_all(worker, 5) == sent
    finally:
        worker.close()

    def stuck() -> bool:
        found = numbers(kumquat, GROUP, TOPIC)
        return found["doomed"] == 5 and "max.message.bytes" in (found["doomed_why"] or "")

    eventually(stuck, "the reason is visible")
    said = kumquat_command(kumquat, "groups", "describe", GROUP)
    assert "dead letters cannot be written" in said, said
    assert "max.message.bytes" in said, said
    kumquat.kill()
    kumquat.start()
    eventually(stuck, "the reason is visible after a restart too")
    assert dead_letters(kumquat.bootstrap, LETTERS) == []
    allow(kumquat, most_bytes=100_000)
    eventually(partial(idle, kumquat, GROUP, TOPIC), "they are written")
    assert sorted(letter.value for letter in dead_letters(kumquat.bootstrap, LETTERS)) == sorted(
        sent
    )
    assert "cannot be written" not in kumquat_command(kumquat, "groups", "describe", GROUP)


def test_a_subject_that_is_deleted_again_and_again_while_letters_are_written(
    kumquat: TestBroker,
) -> None:
    """Its letters are gone with it, as somebody wanted. The group goes on, and later letters are there."""
    configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared"})
    worker: Worker = WORKERS["confluent"](kumquat.bootstrap, GROUP, TOPIC)
    written = 0
    try:
        for _ in range(6):
            fill(kumquat.bootstrap, TOPIC, 100, first=written)
            written += 100
            reject_all(worker, 100)
            if LETTERS in admin(kumquat.bootstrap).list_topics(timeout=DEADLINE).topics:
                admin(kumquat.bootstrap).delete_topics([LETTERS])[LETTERS].result(DEADLINE)
        eventually(partial(idle, kumquat, GROUP, TOPIC), "all is written")
        last = set(fill(kumquat.bootstrap, TOPIC, 20, first=written))
        assert reject_all(worker, 20) == last
    finally:
        worker.close()
    eventually(partial(idle, kumquat, GROUP, TOPIC), "the last ones are written")
    there = [letter.value for letter in dead_letters(kumquat.bootstrap, LETTERS)]
    assert len(there) == len(set(there)), "some are there twice"
    assert last <= set(there)
