"""Share sessions: what the broker remembers between the requests of one share consumer.

A session belongs to a group and a member id. It holds the partitions that the member reads, so that a
request names only what changes, and the epoch that the next request must carry. ShareFetch and
ShareAcknowledge count with the same epoch. What a request does:

| epoch of the request | no session    | session, epoch fits   | session, epoch does not fit  |
|----------------------|---------------|-----------------------|------------------------------|
| ShareFetch 0         | open, next 1  | drop it, open, next 1 | drop it, open, next 1        |
| ShareFetch n > 0     | NOT_FOUND     | partitions, next n+1  | INVALID_SHARE_SESSION_EPOCH  |
| ShareFetch -1        | NOT_FOUND     | close                 | (-1 always fits)             |
| ShareAcknowledge 0   | INVALID_SHARE_SESSION_EPOCH in all three cases               |
| ShareAcknowledge n   | NOT_FOUND     | next n+1              | INVALID_SHARE_SESSION_EPOCH  |
| ShareAcknowledge -1  | NOT_FOUND     | close                 | (-1 always fits)             |

After 2147483647 comes 1. Other rules:
- A ShareFetch that opens a session acknowledges nothing: INVALID_REQUEST, and an old session stays.
- A partition that a request names and forgets is forgotten.
- There are at most `limit` sessions. One more is SHARE_SESSION_LIMIT_REACHED; an old one of the same
  member is dropped first.
- A close is decided in two steps, because what a closing request acknowledges is applied in between: it
  finds its session, and the caller ends it with `end`.
- A session is bound to the connection that opened it, and ends with it. Requests of another connection
  that carry the right epoch are taken all the same, as in Kafka. When a member opens a session on a
  second connection, the one on the first is dropped, and the end of the first connection does not touch
  the new one.

Left out: what is leased to the member. The caller gives that back when a session ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kumquat.gateway.shares.errors import (
    InvalidShareRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

OPENS, CLOSES = 0, -1
LAST_EPOCH = 0x7FFFFFFF
C = TypeVar("C")
"""What stands for a connection; it is compared by identity, or by value in tests."""


class Member(NamedTuple):
    """Of whom a session is: Kafka's key."""

    group: str
    id: str


class Partition(NamedTuple):
    topic_id: bytes
    number: int


class ShareSession(Generic[C]):
    __slots__ = ("connection", "ended", "epoch", "member", "partitions")

    def __init__(self, member: Member, connection: C, partitions: Iterable[Partition]) -> None:
        self.member = member
        self.connection = connection
        self.epoch = 1
        """The epoch of the next request."""
        self.partitions = dict.fromkeys(partitions)
        """What the member reads, in the order in which it was named."""
        self.ended = False

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1


class ShareSessions(Generic[C]):
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_member: dict[Member, ShareSession[C]] = {}
        self._by_connection: dict[C, dict[Member, ShareSession[C]]] = {}

    def __len__(self) -> int:
        return len(self._by_member)

    def get(self, member: Member) -> ShareSession[C] | None:
        return self._by_member.get(member)

    def of_connections(self) -> Iterable[C]:
        """The connections that have sessions."""
        return self._by_connection.keys()

    def fetch(
        self,
        member: Member,
        epoch: int,
        connection: C,
        *,
        added: Iterable[Partition],
        forgotten: Iterable[Partition] = (),
        acknowledges: bool = False,
    ) -> tuple[ShareSession[C], ShareSession[C] | None]:
        """The session of a ShareFetch, and the one that was dropped for it. Raises ShareError: nothing has
        changed, but that the old session of a member is dropped also where there is no room for a new one.
        """
        if epoch == OPENS:
            if acknowledges:
                raise InvalidShareRequest(
                    "a request that opens a share session acknowledges nothing"
                )
            return self._open(member, connection, added)
        session = self._find(member, epoch)
        if epoch != CLOSES:
            session.partitions.update(dict.fromkeys(added))
            for partition in forgotten:  # a client may acknowledge what it forgets
                session.partitions.pop(partition, None)
            session.advance()
        return session, None

    def acknowledge(self, member: Member, epoch: int) -> ShareSession[C]:
        """The session of a ShareAcknowledge. Raises ShareError: nothing has changed."""
        if epoch == OPENS:
            raise InvalidShareSessionEpoch("a share session is opened by a ShareFetch")
        session = self._find(member, epoch)
        if epoch != CLOSES:
            session.advance()
        return session

    def end(self, session: ShareSession[C]) -> bool:
        """Drop a session; False: it is dropped already."""
        if session.ended:
            return False
        session.ended = True
        del self._by_member[session.member]
        of_connection = self._by_connection[session.connection]
        del of_connection[session.member]
        if not of_connection:
            del self._by_connection[session.connection]
        return True

    def lost(self, connection: C) -> list[ShareSession[C]]:
        """The connection has ended: drops its sessions and gives them."""
        sessions = list(self._by_connection.get(connection, {}).values())
        for session in sessions:
            self.end(session)
        return sessions

    def _open(
        self, member: Member, connection: C, partitions: Iterable[Partition]
    ) -> tuple[ShareSession[C], ShareSession[C] | None]:
        old = self._by_member.get(member)
        if old is not None:
            self.end(old)
        if len(self._by_member) >= self._limit:
            raise ShareSessionLimitReached(
                f"there are {self._limit} share sessions, as many as the broker keeps"
            )
        session = ShareSession(member, connection, partitions)
        self._by_member[member] = session
        self._by_connection.setdefault(connection, {})[member] = session
        return session, old

    def _find(self, member: Member, epoch: int) -> ShareSession[C]:
        session = self._by_member.get(member)
        if session is None:
            raise ShareSessionNotFound(
                f"member {member.id} of group {member.group} has no share session; open one with epoch 0"
            )
        if epoch not in (CLOSES, session.epoch):
            raise InvalidShareSessionEpoch(
                f"epoch {epoch} of member {member.id} of group {member.group}: "
                f"{session.epoch} is expected"
            )
        return session
