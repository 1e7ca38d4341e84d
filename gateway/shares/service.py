"""Share sessions in a running broker: a thin Trio shell around ShareSessions (sessions.py).

It finds what a member holds (its share log), passes on what it acknowledges, and gives back what it held
when its session ends:

| what ends the session                              | what the member holds             |
|----------------------------------------------------|-----------------------------------|
| epoch -1                                           | given back, as closed             |
| the connection that opened it has ended            | given back, as lost               |
| the member opens another, on the same connection   | stays: it is the same client      |
| the member opens another, on another connection    | given back, as lost               |
| the broker stops                                   | stays, until the member comes back |

A member that leaves its group while its session is open keeps what it holds (`keep`), and the session ends
it as above. It is given nothing more. When the broker stops, that is given back: nobody comes for it.

A member that opens its first session may hold something from before the broker's start: that is given
back, as lost. Whatever is not given back here is when its lock expires.

A connection is not read while its ShareFetch waits, so nobody notices that its client has closed. The
broker looks for such connections once a second (net/acceptor.py). Here one task asks the kernel every
LOOK_SECONDS for those with share sessions, as long as there are any.

Left out: a give-back that cannot be written (the disk is full) is logged, and left to the lock's end. The
log of a member that has left then ends with the next start.
"""

from __future__ import annotations

import logging
import select
from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.delivery.acknowledge import AckBatch
from kumquat.core.delivery.pull_log import ShareLog
from kumquat.core.delivery.state import SHARE
from kumquat.core.errors import InvalidRecordState, KumquatError
from kumquat.gateway.net.acceptor import CLOSED
from kumquat.gateway.shares.sessions import ShareSessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kumquat.core.delivery.sharing.shares import Shares
    from kumquat.core.delivery.state import Group, Groups
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.shares.acknowledgements import Batch
    from kumquat.gateway.shares.sessions import Member, Partition, ShareSession
    from kumquat.meta.group_configs import GroupConfig

LOOK_SECONDS = 0.1

logger = logging.getLogger(__name__)


class Holding(NamedTuple):
    """Where the messages of one subject are that a member holds."""

    group: Group
    log: ShareLog


class Known(NamedTuple):
    """A member of a share group."""

    group: Group
    holds: Mapping[int, int]
    """Subject id → the slot of its log."""


class ShareService:
    def __init__(
        self, groups: Groups, shares: Shares, config: Callable[[str], GroupConfig], limit: int
    ) -> None:
        self._groups = groups
        self._shares = shares
        self._config = config
        self.sessions: ShareSessions[Session] = ShareSessions(limit)
        self._kept: dict[Member, dict[int, ShareLog]] = {}
        """Members that left, or were about to, with an open session → by subject id, what they held."""
        self._opened = trio.Event()
        self._complaints = Complaints(logger)

    # --- sessions --------------------------------------------------------------------------------

    def fetch(
        self,
        member: Member,
        epoch: int,
        connection: Session,
        *,
        added: Iterable[Partition],
        forgotten: Iterable[Partition],
        acknowledges: bool,
    ) -> ShareSession[Session]:
        """The session of a ShareFetch. Raises ShareError."""
        session, dropped = self.sessions.fetch(
            member,
            epoch,
            connection,
            added=added,
            forgotten=forgotten,
            acknowledges=acknowledges,
        )
        if not epoch:
            connection.on_end.add(self._lose)
            self._opened.set()
            if dropped is None:
                self._give_back(session, lost=True)
            elif dropped.connection is not connection:
                self._give_back(session, lost=True)
                if dropped.connection.poll is not None:
                    dropped.connection.end_poll()
        return session

    def close(self, session: ShareSession[Session]) -> None:
        """The member has closed its session."""
        if self.sessions.end(session):
            self._give_back(session, lost=False)

    def keep(self, member: Member) -> bool:
        """A member is about to leave: whether it has a session, and so keeps what it holds."""
        if self.sessions.get(member) is None:
            return False
        known = self._known(member)
        if known is not None:
            group, holds = known
            held = {
                subject_id: group.progress[subject_id].pull_logs[slot]
                for subject_id, slot in holds.items()
            }
            kept = {
                subject_id: log for subject_id, log in held.items() if isinstance(log, ShareLog)
            }
            self._kept[member] = {**self._kept.get(member, {}), **kept}
        return True

    def _lose(self, connection: Session) -> None:
        for session in self.sessions.lost(connection):
            if not connection.broker.stopping:
                self._give_back(session, lost=True)
            elif kept := self._kept.pop(session.member, None):
                self._shares.release(kept)

    def _give_back(self, session: ShareSession[Session], *, lost: bool) -> None:
        member, known = session.member, self._known(session.member)
        kept = self._kept.pop(member, {})
        try:
            if kept:
                self._shares.give_back_kept(kept, lost=lost)
            if known is not None:
                self._shares.give_back_all(known.group, member.id, lost=lost)
        except KumquatError as error:
            self._complaints.error(
                member, f"member {member.id} of group {member.group} gives back later: {error}"
            )

    # --- what members hold -----------------------------------------------------------------------

    def _known(self, member: Member) -> Known | None:
        """None: nobody of that id is a member. A group of another type may have one."""
        group = self._groups.by_name.get(member.group)
        known = None if group is None else group.members.get(member.id)
        if group is None or known is None or known.kind != SHARE:
            return None
        return Known(group, known.holds)

    def holding(self, member: Member, subject: Subject) -> Holding | None:
        """None: nobody of that id is a member, or it is not assigned that subject."""
        known = self._known(member)
        slot = None if known is None else known.holds.get(subject.id)
        if known is None or slot is None:
            return None
        log = known.group.progress[subject.id].pull_logs[slot]
        assert isinstance(log, ShareLog)
        return Holding(known.group, log)

    def _kept_of(self, member: Member, subject: Subject) -> Holding | None:
        """What a member that has left can still acknowledge."""
        log = self._kept.get(member, {}).get(subject.id)
        group = None if log is None else self._shares.owner(subject.id, log)
        return None if log is None or group is None else Holding(group, log)

    def acknowledge(
        self, member: Member, subject: Subject, batches: Sequence[Batch], *, renews: bool
    ) -> int:
        """Apply what a member says of one subject, all of it or nothing. The batches are well-formed
        (acknowledgements.py); `renews`: one of them does. Gives the position up to which the action log
        must be synced. Raises KumquatError."""
        if renews and not self._config(member.group).share_renew_enable:
            raise InvalidRecordState(f"group {member.group} does not let its members renew")
        holding = self.holding(member, subject) or self._kept_of(member, subject)
        if holding is None:
            raise InvalidRecordState(f"member {member.id} holds nothing of {subject.name}")
        # Nobody holds anything below: of very many batches, few are looked at one by one.
        lowest = holding.group.progress[subject.id].lowest_unacked() or 0
        begin = bisect_left(batches, lowest, key=lambda batch: batch.last_offset)
        acked = (
            AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in islice(batches, begin, None)
        )
        return self._shares.acknowledge(holding.group, subject, holding.log, acked)

    def lock_ms(self, group: str) -> int:
        """How long the records that a member of this group is handed are its own."""
        return self._config(group).share_record_lock_duration_ms

    # --- clients that have gone ------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for clients that close while they wait, until cancelled."""
        task_status.started()
        while True:
            await self._opened.wait()
            while self.sessions:
                await trio.sleep(LOOK_SECONDS)
                self._end_polls_of_closed_clients()
            self._opened = trio.Event()

    def _end_polls_of_closed_clients(self) -> None:
        """Such a client is answered; then its connection is read, and ends."""
        asked = select.poll()
        waiting = {}
        for connection in self.sessions.of_connections():
            if connection.poll is not None:
                waiting[connection.fd] = connection
                asked.register(connection.fd, CLOSED)
        for fd, _ in asked.poll(0) if waiting else ():
            waiting[fd].end_poll()
