"""What classic members are refused, and that it leaves no trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kumquat.core.errors import KumquatError
from kumquat.gateway.groups.errors import InconsistentGroupProtocol, UnknownMember
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.membership.refusals import Refusals
from kumquat.gateway.groups.membership.roster import Ticket
from kumquat.gateway.groups.tests.simulation import (
    GROUP,
    LIMITS,
    REBALANCE_MS,
    SESSION_MS,
    Simulation,
)
from kumquat.gateway.wire import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
)
from kumquat.gateway.wire.codes import ErrorCode


def _request(topics: list[str], **changes: Any) -> JoinGroupRequest:
    data = b"".join(
        ConsumerProtocolSubscription.encode(ConsumerProtocolSubscription(topics=topics), 0)
    )
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"\0\0" + data)],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def join_static(world: Simulation, *, instance: str, topics: list[str]) -> Any:
    answer = world.coordinator.join(
        _request(topics, group_instance_id=instance),
        Caller("c", "/h", {}),
        world.now,
        needs_id=True,
        can_skip=True,
    )
    assert not isinstance(answer, Ticket)
    return answer


def assigned(world: Simulation, joined: Any) -> list[str]:
    answer = world.coordinator.sync(
        SyncGroupRequest(
            group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id
        ),
        Caller("c", "/h", {}),
        world.now,
    )
    assert not isinstance(answer, Ticket)
    by_id = world.subjects.by_id
    members = world.groups.by_name[GROUP].members
    return sorted(by_id[subject_id].name for subject_id in members[joined.member_id].holds)


def beat(world: Simulation, joined: Any, *, instance: str | None = None) -> int:
    request = HeartbeatRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
    )
    try:
        caller = Caller("c", "/h", {})
        return world.coordinator.heartbeat(request, caller, world.now).error_code
    except KumquatError as error:
        return error.error_code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "x" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 0}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 2_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            {"protocols": [JoinGroupRequestProtocol("mine", b"")]},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            {"protocols": [JoinGroupRequestProtocol("range", b"\0\0\xff")]},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        ({"protocols": [JoinGroupRequestProtocol("range", b"")]}, 23),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            {"member_id": "nobody", "group_instance_id": "one"},
            ErrorCode.FENCED_INSTANCE_ID,
        ),
        ({"group_instance_id": "two"}, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_a_bad_joiner_is_refused_and_leaves_no_trace(changes: dict[str, Any], code: int) -> None:
    world = Simulation("t", limits=replace(LIMITS, max_size=1))
    member = join_static(world, instance="one", topics=["t"])
    before = len(world.log)
    with pytest.raises(KumquatError) as refused:
        world.coordinator.join(
            _request(["t"], **changes),
            Caller("c", "/h", {}),
            world.now,
            needs_id=False,
            can_skip=False,
        )
    assert refused.value.error_code == code
    assert len(world.log) == before
    assert beat(world, member) == 0


def test_a_refused_first_member_leaves_no_group() -> None:
    world = Simulation("t")
    bad = [JoinGroupRequestProtocol("range", b"")]
    with pytest.raises(KumquatError):
        world.coordinator.join(
            _request(["t"], protocols=bad), Caller("c", "/h", {}), world.now, needs_id=False, can_skip=False
        )  # fmt: skip
    assert not world.groups.by_id


def test_an_id_that_was_given_is_good_for_a_while() -> None:
    world = Simulation("t")
    caller = Caller("c", "/h", {})

    def ask(member_id: str) -> Any:
        return world.coordinator.join(
            _request(["t"], member_id=member_id), caller, world.now, needs_id=True, can_skip=False
        )

    given = ask("")
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert given.member_id.startswith("c-")
    assert ask(given.member_id).generation_id == 1
    late = ask("")
    world.pass_time(SESSION_MS / 1000 + 1)
    with pytest.raises(KumquatError) as refused:
        ask(late.member_id)
    assert refused.value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_old_generation_is_told() -> None:
    world = Simulation("t")
    joined = join_static(world, instance="one", topics=["t"])
    joined.generation_id -= 1
    assert beat(world, joined) == ErrorCode.ILLEGAL_GENERATION
    joined.member_id = "nobody"
    assert beat(world, joined) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_refused_join_is_logged_with_its_reason_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = iter((5.0, 6.0, 64.0, 65.0))
    refusals, caller = Refusals(lambda: next(times)), Caller("app", "/10.0.0.7", {})
    error = InconsistentGroupProtocol("metadata of 'range': too short")
    for _ in range(4):
        refusals.tell("g", caller, error)
    refusals.tell("g", caller, UnknownMember("nobody"))
    first, second = (record.getMessage() for record in caplog.records)
    assert first == (
        "group g: a join of client 'app' from /10.0.0.7 was refused: metadata of 'range': too short"
    )
    assert second.endswith("too short (2 more times since)")
