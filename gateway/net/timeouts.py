"""When a client has kept the broker waiting for too long: the rules, without socket or task.

The acceptor looks at all connections every so often (`Connection.watch`), and closes one
- whose client does not take its answers: after UNTAKEN_SECONDS;
- of whose frame too little comes: nothing for `socket.request.receive.timeout.ms`, or in all less than
  MIN_BYTES_PER_SECOND after that time;
- on which nothing has happened for `connections.max.idle.ms`.
A connection that holds memory which others have waited for (limits.py: it is *pressed*) has much less time.
A client is not blamed for a time in which the broker was busy with its request.
"""

from __future__ import annotations

MIN_BYTES_PER_SECOND = 8192
PRESSED_FRAME_SECONDS = 5.0
MIN_PRESSED_BYTES_PER_SECOND = 1 << 20
UNTAKEN_SECONDS = 300.0
"""As long as a Java consumer may work on what it has before it reads on (max.poll.interval.ms)."""
IMPATIENT_SECONDS = 2.0
"""While others wait for room: how long answers may stay untaken, or no byte of a frame come."""


class Progress:
    """When a client last did something. The connection writes the times down as they come."""

    __slots__ = ("_seen_sent", "busy", "frame_began", "last_active", "last_received", "last_taken")

    def __init__(self, now: float) -> None:
        self.last_active = self.last_received = self.last_taken = now
        self.frame_began: float | None = None
        """When the connection first waited for the rest of the frame that has begun."""
        self.busy = False
        """A request is handled or held back: the broker does not wait for the client to send."""
        self._seen_sent = 0

    def look(self, now: float, sent: int, unsent: int) -> None:
        """See whether the client has taken answers. `sent`, `unsent`: bytes so far, and bytes that wait."""
        if sent != self._seen_sent:
            self._seen_sent = sent
            self.last_active = self.last_taken = now
        elif not unsent:
            self.last_taken = now

    def fault(
        self,
        now: float,
        *,
        unsent: int,
        partial: int,
        max_receive: float,
        pressed: bool,
        frame_pressed: bool,
    ) -> str | None:
        """Why the client is too slow; None if it is not.

        `partial`: how many bytes have come of the frame that has begun. `pressed`: others wait for room
        that this connection holds; `frame_pressed`: for the room of that frame.
        """
        untaken = now - self.last_taken
        if untaken > (IMPATIENT_SECONDS if pressed else UNTAKEN_SECONDS):
            return f"{unsent} bytes of answers were not taken in {untaken:.0f} s"
        if self.frame_began is None or (self.busy and not unsent):
            return None
        taken, silent = now - self.frame_began, now - self.last_received
        if frame_pressed:
            most = PRESSED_FRAME_SECONDS + partial / MIN_PRESSED_BYTES_PER_SECOND
            late = silent > IMPATIENT_SECONDS or taken > most
        else:
            most = max_receive + partial / MIN_BYTES_PER_SECOND
            late = silent > max_receive or taken > most
        return f"only {partial} bytes of a frame came in {taken:.0f} s" if late else None

    def is_idle(self, now: float, max_idle: float, unsent: int) -> bool:
        if self.busy and not unsent:
            return False
        return now - self.last_active > max_idle
