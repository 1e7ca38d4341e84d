"""Messages with a number in their first eight bytes, for members that mark what they have handled."""

from __future__ import annotations

from confluent_kafka import Producer

_LIST = 1000
_QUEUED = 200_000


class Writer:
    """A producer whose connection is made before any clock runs."""

    def __init__(self, bootstrap: str, topic: str, size: int, *, batch: int = 1000) -> None:
        self._topic = topic
        self._filler = bytes(range(256)) * (size // 256 + 1)
        self._size = size
        self.written = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 3,
                "linger.ms": 5,
                "batch.num.messages": batch,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": _QUEUED * 2,
                "queue.buffering.max.kbytes": 1 << 20,
            }
        )
        self._producer.list_topics(topic, 30)

    def write(self, count: int) -> None:
        """Sends the next numbers, and waits until all are acknowledged."""
        for begin in range(self.written, self.written + count, _LIST):
            end = min(begin + _LIST, self.written + count)
            some = [{"value": self._value(number)} for number in range(begin, end)]
            while len(self._producer) > _QUEUED:
                self._producer.poll(0.001)
            self._producer.produce_batch(self._topic, some, partition=0)
        self.written += count
        if left := self._producer.flush(120):
            raise RuntimeError(f"{left} messages were not acknowledged")

    def _value(self, number: int) -> bytes:
        return number.to_bytes(8, "big") + self._filler[: self._size - 8]
