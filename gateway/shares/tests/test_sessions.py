"""Share sessions: epochs that are stale, skipped or wrapped, and members on two connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kumquat.gateway.shares.errors import (
    InvalidShareRequest,
    InvalidShareSessionEpoch,
    ShareError,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from kumquat.gateway.shares.sessions import (
    LAST_EPOCH,
    Member,
    Partition,
    ShareSession,
    ShareSessions,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

ANN, BEN = Member("workers", "ann"), Member("workers", "ben")
ORDERS, BILLS = Partition(b"o" * 16, 0), Partition(b"b" * 16, 0)


def opened(
    sessions: ShareSessions[object], member: Member = ANN, connection: object = "c1"
) -> ShareSession[object]:
    return sessions.fetch(member, 0, connection, added=[ORDERS])[0]


def test_a_request_without_a_session() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    for epoch in (1, 7, -1):
        with pytest.raises(ShareSessionNotFound):
            sessions.fetch(ANN, epoch, "c1", added=[])
        with pytest.raises(ShareSessionNotFound):
            sessions.acknowledge(ANN, epoch)


@pytest.mark.parametrize("epoch", [1, 2, 4, LAST_EPOCH, -2])
def test_an_epoch_that_is_stale_or_skipped(epoch: int) -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    session = opened(sessions)
    sessions.fetch(ANN, 1, "c1", added=[])
    sessions.acknowledge(ANN, 2)
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.fetch(ANN, epoch, "c1", added=[BILLS], forgotten=[ORDERS])
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.acknowledge(ANN, epoch)
    assert session.epoch == 3
    assert list(session.partitions) == [ORDERS]


def test_fetches_and_acknowledgements_that_count_apart() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    session = opened(sessions)
    sessions.acknowledge(ANN, 1)
    sessions.fetch(ANN, 2, "c1", added=[])
    sessions.acknowledge(ANN, 3)
    assert session.epoch == 4


def test_an_epoch_that_does_not_wrap_to_one() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    session = opened(sessions)
    session.epoch = LAST_EPOCH
    sessions.fetch(ANN, LAST_EPOCH, "c1", added=[])
    assert session.epoch == 1
    session.epoch = LAST_EPOCH
    sessions.acknowledge(ANN, LAST_EPOCH)
    sessions.acknowledge(ANN, 1)
    assert session.epoch == 2


def test_an_opening_request_that_acknowledges() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    session = opened(sessions)
    with pytest.raises(InvalidShareRequest) as refused:
        sessions.fetch(ANN, 0, "c1", added=[BILLS], acknowledges=True)
    assert refused.value.error_code == ErrorCode.INVALID_REQUEST
    assert sessions.get(ANN) is session


def test_an_acknowledgement_that_opens_a_session() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    for _ in range(2):
        with pytest.raises(InvalidShareSessionEpoch):
            sessions.acknowledge(ANN, 0)
        opened(sessions)


def test_partitions_that_are_not_remembered_or_not_forgotten() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    session = opened(sessions)
    sessions.fetch(ANN, 1, "c1", added=[BILLS])
    assert list(session.partitions) == [ORDERS, BILLS]
    sessions.fetch(ANN, 2, "c1", added=[], forgotten=[ORDERS])
    assert list(session.partitions) == [BILLS]
    sessions.fetch(ANN, 3, "c1", added=[ORDERS, BILLS], forgotten=[ORDERS])
    assert list(session.partitions) == [BILLS]


def test_a_closing_request_that_changes_the_session() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    session = opened(sessions)
    assert sessions.fetch(ANN, -1, "c1", added=[BILLS], forgotten=[ORDERS]) == (session, None)
    assert (session.epoch, list(session.partitions)) == (1, [ORDERS])
    assert sessions.end(session)
    assert not sessions.end(session)
    assert len(sessions) == 0


def test_a_session_too_many() -> None:
    sessions: ShareSessions[object] = ShareSessions(2)
    opened(sessions, ANN)
    opened(sessions, BEN)
    eve = Member("workers", "eve")
    with pytest.raises(ShareSessionLimitReached) as refused:
        opened(sessions, eve)
    assert refused.value.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert opened(sessions, BEN).epoch == 1  # in the place of its own
    sessions.lost("c1")
    assert opened(sessions, eve).epoch == 1


def test_a_first_connection_whose_end_ends_the_session_on_the_second() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    first = opened(sessions, ANN, "c1")
    second, dropped = sessions.fetch(ANN, 0, "c2", added=[BILLS])
    assert dropped is first
    assert first.ended is True
    assert sessions.lost("c1") == []
    assert sessions.get(ANN) is second
    assert sessions.lost("c2") == [second]


def test_a_request_with_the_right_epoch_on_another_connection() -> None:
    """Kafka takes it, and binds the session to the connection that opened it all the same."""
    sessions: ShareSessions[object] = ShareSessions(10)
    session = opened(sessions, ANN, "c1")
    sessions.fetch(ANN, 1, "c2", added=[BILLS])
    assert sessions.lost("c2") == []
    assert sessions.lost("c1") == [session]


def test_a_lost_connection_with_several_members() -> None:
    sessions: ShareSessions[object] = ShareSessions(10)
    ann, ben = opened(sessions, ANN), opened(sessions, BEN)
    other = opened(sessions, Member("others", "ann"), "c2")
    assert sessions.lost("c1") == [ann, ben]
    assert sessions.get(other.member) is other
    assert list(sessions.of_connections()) == ["c2"]


MEMBERS = [Member(group, name) for group in ("g", "h") for name in ("a", "b")]
EPOCHS = st.sampled_from([-2, -1, 0, 1, 2, 3, LAST_EPOCH - 1, LAST_EPOCH])
PARTITIONS = st.lists(st.sampled_from([ORDERS, BILLS, Partition(b"o" * 16, 1)]), max_size=2)
CONNECTIONS = st.sampled_from(["c1", "c2"])
LIMIT = 3


def outcome(decide: Callable[[], ShareSession[str]]) -> tuple[int, ShareSession[str] | None]:
    try:
        return ErrorCode.NONE, decide()
    except ShareError as error:
        return error.error_code, None


class SessionsAndModel(RuleBasedStateMachine):
    """The model: member → [next epoch, partitions, connection]."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: ShareSessions[str] = ShareSessions(LIMIT)
        self.model: dict[Member, list[Any]] = {}

    def expected(self, member: Member, epoch: int) -> ErrorCode:
        if member not in self.model:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in (-1, self.model[member][0]):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return ErrorCode.NONE

    def advance(self, member: Member, epoch: int) -> None:
        if epoch != -1:
            self.model[member][0] = self.model[member][0] % LAST_EPOCH + 1

    @rule(
        member=st.sampled_from(MEMBERS),
        epoch=EPOCHS,
        connection=CONNECTIONS,
        added=PARTITIONS,
        forgotten=PARTITIONS,
        acknowledges=st.booleans(),
    )
    def fetch(
        self,
        member: Member,
        epoch: int,
        connection: str,
        added: list[Partition],
        forgotten: list[Partition],
        acknowledges: bool,
    ) -> None:
        if epoch == 0 and acknowledges:
            code = ErrorCode.INVALID_REQUEST
        elif epoch == 0:
            self.model.pop(member, None)
            code = ErrorCode.NONE
            if len(self.model) == LIMIT:
                code = ErrorCode.SHARE_SESSION_LIMIT_REACHED
            else:
                self.model[member] = [1, set(added), connection]
        else:
            code = self.expected(member, epoch)
            if not code and epoch > 0:
                self.advance(member, epoch)
                known = self.model[member][1]
                self.model[member][1] = (known | set(added)) - set(forgotten)
        found, session = outcome(
            lambda: self.sessions.fetch(
                member,
                epoch,
                connection,
                added=added,
                forgotten=forgotten,
                acknowledges=acknowledges,
            )[0]
        )
        assert found == code
        if session is not None and epoch == -1:
            self.end(member, session)

    @rule(member=st.sampled_from(MEMBERS), epoch=EPOCHS)
    def acknowledge(self, member: Member, epoch: int) -> None:
        code = ErrorCode.INVALID_SHARE_SESSION_EPOCH if epoch == 0 else self.expected(member, epoch)
        found, session = outcome(lambda: self.sessions.acknowledge(member, epoch))
        assert found == code
        if session is not None:
            self.advance(member, epoch)
            if epoch == -1:
                self.end(member, session)

    def end(self, member: Member, session: Any) -> None:
        assert self.sessions.end(session)
        del self.model[member]

    @rule(member=st.sampled_from(MEMBERS))
    def long_life(self, member: Member) -> None:
        session = self.sessions.get(member)
        if session is not None:
            session.epoch = self.model[member][0] = LAST_EPOCH

    @rule(connection=CONNECTIONS)
    def lose(self, connection: str) -> None:
        lost = {session.member for session in self.sessions.lost(connection)}
        assert lost == {member for member, kept in self.model.items() if kept[2] == connection}
        for member in lost:
            del self.model[member]

    @invariant()
    def agree(self) -> None:
        assert len(self.sessions) == len(self.model)
        for member, (epoch, partitions, connection) in self.model.items():
            session = self.sessions.get(member)
            assert session is not None
            assert (session.epoch, set(session.partitions)) == (epoch, partitions)
            assert session.connection == connection
        used = {kept[2] for kept in self.model.values()}
        assert set(self.sessions.of_connections()) == used


TestSessionsAndModel = SessionsAndModel.TestCase
TestSessionsAndModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
