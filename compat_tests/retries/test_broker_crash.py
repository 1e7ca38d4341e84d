"""kill -9 of the broker while retries wait, dead letters are written and share groups acknowledge.

What was acknowledged never comes again, what was not always does, and each dead letter is there once.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from compat_tests.groups.stories import admin, configure, fill
from compat_tests.members.fixture import SHARE, Members
from compat_tests.members.remote import wait
from compat_tests.retries.stories import Handled, crew, dead_letters, idle, now_ms
from compat_tests.retries.workers import WORKERS, Got, Worker
from compat_tests.support import DEADLINE, eventually
from kumquat.consumer import Refused

if TYPE_CHECKING:
    from kumquat.testing import TestBroker

__all__ = ["crew"]

pytestmark = [
    pytest.mark.long,
    pytest.mark.differs("Kafka has no retries for consumer groups"),
]
TOPIC, GROUP, SHARERS = "orders", "workers", "sharers"
LETTERS = f"{TOPIC}.{GROUP}.dlq"
CRASHES = 5
EACH_LIFE = 200


def is_retried(value: str) -> bool:
    return int(value) % 10 == 3


def is_rejected(value: str) -> bool:
    return int(value) % 10 == 7


class Crew:
    """Workers, a thread each, that insist on an answer before they go on, however often the broker dies."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self.acked: dict[str, int] = {}
        """When the commit, or the reject, was answered, ms."""
        self.given: list[tuple[str, int, int]] = []
        """Value, attempt, and when it came, ms."""
        self.rejected: set[str] = set()
        self.sent_back: dict[str, int] = {}
        self.errors: list[BaseException] = []
        self._enough = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(bootstrap,)) for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, bootstrap: str) -> None:
        worker: Worker = WORKERS["confluent"](bootstrap, GROUP, TOPIC)
        try:
            while not self._enough.is_set():
                self._batch(worker)
        except BaseException as error:
            self.errors.append(error)
        finally:
            with suppress(KafkaException):
                worker.close()

    def _batch(self, worker: Worker) -> None:
        found = worker.take(0.1)
        handled: list[str] = []
        for each in found:
            self.given.append((each.value, each.attempt, int(each.at * 1000)))
            if is_rejected(each.value):
                if self._insists(lambda each=each: worker.reject(each, "no")):
                    self.rejected.add(each.value)
                    self.acked[each.value] = now_ms()
            elif is_retried(each.value) and each.attempt == 1:
                self._retry(worker, each)
            else:
                handled.append(each.value)
        if found and self._insists(worker.commit):
            at = now_ms()
            self.acked.update(dict.fromkeys(handled, at))

    def _retry(self, worker: Worker, each: Got) -> None:
        if self._insists(lambda: worker.retry(each, after=1.5)):
            self.sent_back[each.value] = int(each.at * 1000) + 1500

    def _insists(self, ask: object) -> bool:
        """Until it is answered; whether it was done."""
        end = time.monotonic() + DEADLINE
        while True:
            try:
                ask()  # type: ignore[operator]
            except Refused:
                return False
            except RuntimeError:  # the producer has given up
                assert time.monotonic() < end
            except KafkaException as error:
                kafka_error = error.args[0]
                if kafka_error.name() == "_NO_OFFSET":
                    return True
                if kafka_error.name() in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"):
                    return False
                assert time.monotonic() < end, kafka_error
            else:
                return True

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(2 * DEADLINE)


def test_a_broker_that_is_killed_again_and_again_forgets_nothing_and_doubles_nothing(
    kumquat: TestBroker, crew: Members
) -> None:
    configure(kumquat.bootstrap, GROUP, **{"consume.mode": "shared", "retry.backoff.ms": "500"})
    configs = {"share.auto.offset.reset": "earliest", "retry.backoff.ms": "100"}
    configure(kumquat.bootstrap, SHARERS, **configs)
    written = len(fill(kumquat.bootstrap, TOPIC, EACH_LIFE))
    sharers = [crew(variant, SHARERS, TOPIC) for variant in SHARE]
    for member in sharers:
        member.run(handler_ms=1)
    accepted = Handled(sharers)
    workers = Crew(kumquat.bootstrap, 3)
    kills: list[int] = []
    try:
        for _ in range(CRASHES):
            before = (len(workers.acked), accepted.count())
            eventually(
                lambda before=before: (  # type: ignore[misc]
                    len(workers.acked) > before[0] and accepted.count() > before[1]
                ),
                "both groups go on",
            )
            kills.append(now_ms())
            accepted.mark()
            kumquat.kill()
            kumquat.start()
            written += len(fill(kumquat.bootstrap, TOPIC, EACH_LIFE, first=written))
        admin.cache_clear()  # librdkafka's admin client waits in vain after several restarts
        eventually(lambda: idle(kumquat, SHARERS, TOPIC), "all is acknowledged", 2 * DEADLINE)
        eventually(lambda: idle(kumquat, GROUP, TOPIC), "all is acked or dead", 2 * DEADLINE)
    finally:
        workers.stop()
    assert not workers.errors, workers.errors
    sent = {str(number) for number in range(written)}
    assert accepted.again() == []
    wait(lambda: accepted.ended() == sent, "all are accepted")
    letters = dead_letters(kumquat.bootstrap, LETTERS)
    dead = [letter.value for letter in letters]
    assert sorted(dead) == sorted(value for value in sent if is_rejected(value))
    assert workers.rejected <= set(dead)
    assert {value for value, _, _ in workers.given} == sent
    late = [
        (value, at - workers.acked[value])
        for value, _, at in workers.given
        if value in workers.acked and any(workers.acked[value] < kill < at for kill in kills)
    ]
    assert not late, f"acked before a kill, and came after it: {late}"
    for value, due in workers.sent_back.items():
        again = [at for each, attempt, at in workers.given if each == value and attempt > 1]
        assert again, f"{value} was sent back and never came"
        assert min(again) >= due, f"{value} came {due - min(again)} ms early"
