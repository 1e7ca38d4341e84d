"""What the broker's clients have asked for since its start, in numbers: requests, bytes, connections.

The numbers only grow; /metrics shows them. They are plain attributes of one object, changed on the event
loop. Nothing is counted per record:

- requests, by API, when their header is read. Those of APIs that are not served count as one, UNKNOWN: a
  client may make up 65,536 of them, and each would be a series of its own for ever. Requests that a
  template takes (repeats.py) are counted once for their burst, and all of them are Produce. When a burst
  ends with its connection closed, those of them that were in it are not counted.
- what a Fetch or ShareFetch was given, once for each answer.
- batches that were refused, and partitions that a Fetch could not read, where the error is made.

What was written is counted by the log itself (core/logs/messages/writer.py).
"""

from __future__ import annotations

from collections import defaultdict

PRODUCE = 0
UNKNOWN = -1


class Traffic:
    __slots__ = (
        "closed",
        "fetch_failures",
        "fetched_bytes",
        "opened",
        "produce_failures",
        "refused",
        "repeated",
        "requests",
    )

    def __init__(self) -> None:
        self.requests: defaultdict[int, int] = defaultdict(int)
        """By API key, without those that a template took."""
        self.repeated = 0
        """Produce requests that a template took."""
        self.fetched_bytes = 0
        """Bytes of record batches in answers to Fetch and ShareFetch."""
        self.produce_failures = 0
        """Batches that were refused, or could not be stored."""
        self.fetch_failures = 0
        """Partitions in answers to Fetch that say an error."""
        self.opened = self.closed = 0
        """Connections that were taken, and those of them that have ended."""
        self.refused = 0
        """Connections that were closed at once: over a limit."""

    @property
    def connections(self) -> int:
        return self.opened - self.closed

    def by_api(self) -> dict[int, int]:
        """Requests by API key, all of them."""
        found = dict(self.requests)
        found[PRODUCE] = found.get(PRODUCE, 0) + self.repeated
        return found
