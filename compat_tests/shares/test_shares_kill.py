"""kill -9 of the broker while share consumers work: what was acknowledged never comes again, what was not
always does.

An acknowledgement that was sent and not answered may have been done or not: such a message may come again.
Only Kumquat: the test kills the broker.
"""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaException, ShareConsumer

from compat_tests.groups.stories import configure, fill
from compat_tests.shares.stories import ACCEPT, member, values
from compat_tests.support import DEADLINE
from kumquat.testing import broker

READERS = 3
STEP = 400
"""Messages that are acknowledged between two kills."""
AT_ONCE = 10


class Ledger:
    """What was acknowledged and answered, what was not answered, and what came after it was answered."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done: set[str] = set()
        self.unanswered: set[str] = set()
        self.again: list[str] = []
        self.lock = threading.Lock()
        self.ended = False

    def left(self) -> int:
        with self.lock:
            return self.count - len(self.done | self.unanswered)

    def read(self, bootstrap: str, group: str, topic: str) -> None:
        settings = {
            "share_acknowledgement_mode": "explicit",
            "max_poll_records": AT_ONCE,
            "reconnect_backoff_max_ms": 200,
        }
        with member(bootstrap, group, topic, **settings) as reader:
            while self.left() and not self.ended:
                self._step(reader)

    def _step(self, reader: ShareConsumer) -> None:
        try:
            got = [message for message in reader.poll(0.2) if message.error() is None]
        except KafkaException:
            return
        came = values(got)
        with self.lock:
            self.again += [value for value in came if value in self.done]
        for message in got:
            reader.acknowledge(message, ACCEPT)
        if not got:
            return
        try:
            answered = all(error is None for error in reader.commit_sync(DEADLINE).values())
        except KafkaException:
            answered = False
        with self.lock:
            (self.done if answered else self.unanswered).update(came)


@pytest.mark.long
@pytest.mark.parametrize("kills", [2, 8])
def test_what_was_acknowledged_never_comes_again_and_the_rest_always_does(kills: int) -> None:
    count = STEP * (kills + 1)
    with broker() as running:
        # A message that was out when the broker died has used up no delivery.
        configure(
            running.bootstrap,
            "group",
            **{"share.auto.offset.reset": "earliest", "retry.backoff.ms": "0"},
        )
        fill(running.bootstrap, "work", count, batch=AT_ONCE)
        ledger = Ledger(count)
        threads = [
            threading.Thread(target=ledger.read, args=(running.bootstrap, "group", "work"))
            for _ in range(READERS)
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(1, kills + 1):
                _wait(ledger, count - number * STEP)
                running.kill()
                running.start()
            _wait(ledger, 0)
        finally:
            ledger.ended = True
            for thread in threads:
                thread.join()
    assert not ledger.again, "acknowledged, and came again"
    assert len(ledger.done) > count / 2, "few were on their way when the broker was killed"


def _wait(ledger: Ledger, left: int) -> None:
    end = time.monotonic() + 2 * DEADLINE
    while ledger.left() > left:
        assert time.monotonic() < end, f"{ledger.left()} of {ledger.count} never came"
        time.sleep(0.005)
