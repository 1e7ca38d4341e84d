"""Who asks ListOffsets for the latest offset: a member that shares the subject, or anybody else.

sarama and kafka-go compare the offset that OffsetFetch gave them with ListOffsets before they fetch. A pull
offset lies far beyond the subject's end: sarama would reset in silence, kafka-go would stop. So a member
is answered the end of its own pull log: the pull offset that the next message for it gets. Earliest is the
subject's for all: it lies below every pull offset. A search by time is in sequences for all.

Everybody else must be answered sequences: Spark, admins, lag tools. ListOffsets names neither group nor
member, so these rules decide whether the asker is a member.

1. Its connection is bound to the member: a request on it has named that member (groups/offsets.py). sarama
   sends all that it asks on one connection. OffsetFetch is answered there in the member's space too, so
   the two agree. Java, librdkafka, kafka-python and aiokafka join on a connection that they use for
   nothing else.
2. It is the reader of a kafka-go member, which dials a connection of its own. All of this must hold:
   - The connection shows the signs of such a reader: no name; ApiVersions not asked, or in version 0; bound
     to no group; ListOffsets in version 1; it has asked for the earliest offset of the subject before.
   - A live member that is kafka-go, with the same client id and from the same address, holds a pull log
     of the subject.
   - Nobody reads in that pull log: no other open connection has fetched at it in the last READING_SECONDS.
     So the member is about to begin, or has lost its connection.
   Of several such pull logs (one process may be several members) the highest end is the answer: each of the
   members finds its own offset below it.
3. A sarama that is bound to nobody (its connection was cut between SyncGroup and ListOffsets), but could be
   a member by its client id, address and a pull log in which nobody reads, gets no offset: it is answered
   NOT_LEADER_OR_FOLLOWER and joins again. A tool that is taken for such a member by mistake tries again.

So Spark never gets a pull offset: it names itself and joins no group. Nor does an admin's tool, with
two exceptions that look like a member on the wire: it speaks on a member's own connection
(an application may give one sarama client to both); or it is the same kafka-go program on the same host as
a member, and asks for both ends while nobody reads in that member's pull log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kumquat.core.delivery.pull_log import pull_offset
from kumquat.gateway.groups.assignment.sharers import KAFKA_GO, SARAMA, name_of
from kumquat.gateway.net.dispatch import Refused
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.core.delivery.state import PullLog
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.net.dispatch import Session

READING_SECONDS = 30.0
READER_VERSION = 1
"""Of ListOffsets, as a kafka-go reader sends it."""


def own_latest(session: Session, subject: Subject) -> int | None:
    """The latest offset in the asker's own space; None: it has none, or is not known to have one.

    Raises Refused when a plain offset might make a member read everything."""
    slots = session.broker.actions.groups.slots.get(subject.id)
    if not slots:
        return None
    logs = list(_bound(session, subject))
    if not logs and not session.members:
        if session.software == SARAMA and any(_beginning(session, subject, SARAMA)):
            raise Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the member is not known yet: join again"
            )
        if _is_reader(session, subject):
            logs = list(_beginning(session, subject, KAFKA_GO))
    return max((pull_offset(log.slot, log.next) for log in logs), default=None)


def _bound(session: Session, subject: Subject) -> Iterator[PullLog]:
    """The pull logs of the members that this connection has spoken for."""
    groups = session.broker.actions.groups
    for name, member_id in session.members.items():
        group = groups.by_name.get(name)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None and member.holds.get(subject.id):
            yield group.progress[subject.id].pull_logs[member.holds[subject.id]]


def _is_reader(session: Session, subject: Subject) -> bool:
    return (
        not session.software
        and session.asked <= 0
        and session.version == READER_VERSION
        and session.asked_earliest == subject.id
    )


def _beginning(session: Session, subject: Subject, software: str) -> Iterator[PullLog]:
    """Pull logs of members that could be on this connection, in which nobody reads."""
    broker, host = session.broker, f"/{session.host}"
    for slot, (group, log) in broker.actions.groups.slots[subject.id].items():
        member = group.members.get(log.member_id)
        if (
            member is not None
            and name_of(member.software) == software
            and member.client_id == (session.client_id or "")
            and member.host == host
            and not _is_read(session, subject, slot)
        ):
            yield log


def _is_read(session: Session, subject: Subject, slot: int) -> bool:
    reading = session.broker.sharing.readers.get((subject.id, slot))
    if reading is None or reading.session.closed or reading.session is session:
        return False
    return trio.current_time() - reading.at < READING_SECONDS
