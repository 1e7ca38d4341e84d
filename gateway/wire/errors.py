"""The one failure that leaves the wire package.

Anything wrong with bytes that are decoded, or with a message that is encoded, is a `WireError`. It
says which message and version, which field (its path, as in `topics[].partitions[].records`), at
which byte, and why. A connection that gets one on a request is closed, and `str(error)` logged.
"""


class WireError(Exception):
    """Bytes that are not the message they should be, or a message the version cannot carry."""

    def __init__(
        self, reason: str, *, message: str = "", path: str = "", position: int | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message
        self.path = path
        self.position = position

    def __str__(self) -> str:
        where = [part for part in (self.message, self.path) if part]
        if self.position is not None:
            where.append(f"byte {self.position}")
        return ": ".join([*where, self.reason])
