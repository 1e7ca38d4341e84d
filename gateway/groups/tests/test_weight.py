"""What members may hold: ids that are given and not used, metadata, assignments, how many there are."""

from __future__ import annotations

import pytest

from kumquat.core.logs.messages.subject import Subject, SubjectConfig
from kumquat.gateway.groups.assignment.pattern import Pattern, Patterns, matching_patterns
from kumquat.gateway.groups.errors import GroupFull
from kumquat.gateway.groups.membership import members, weight
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.tests.simulation import GROUP, Simulation
from kumquat.gateway.groups.tests.test_refusals import _request
from kumquat.gateway.wire import JoinGroupRequestProtocol, JoinGroupResponse
from kumquat.gateway.wire.codes import ErrorCode


def join(
    world: Simulation, *, needs_id: bool = False, name: str = "c", **changes: object
) -> JoinGroupResponse:
    request, caller = _request(["t"], **changes), Caller(name, "/h", {})
    answer = world.coordinator.join(request, caller, world.now, needs_id=needs_id, can_skip=True)
    assert isinstance(answer, JoinGroupResponse)
    return answer


def custom(size: int) -> list[JoinGroupRequestProtocol]:
    plain = _request(["t"]).protocols[0].metadata
    return [JoinGroupRequestProtocol("range", plain + bytes(size))]


def test_ids_that_nobody_comes_back_with_are_not_kept_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "MAX_GIVEN", 10)
    world = Simulation()
    given = [
        join(world, needs_id=True, name="x" * 30_000, group_id=f"g{number % 3}").member_id
        for number in range(30)
    ]
    kept = world.coordinator.decisions._members.pending
    assert sum(map(len, kept.values())) == 10
    assert {one for ids in kept.values() for one in ids} == set(given[-10:])
    assert max(map(len, given)) < 300
    late = join(world, needs_id=True, group_id="g2", member_id=given[-1])
    assert late.error_code == ErrorCode.NONE


def test_ids_for_large_group_names_are_few_leave_nothing_behind_and_push_out_no_others() -> None:
    world = Simulation()
    honest = join(world, needs_id=True, group_id="honest").member_id
    for number in range(3 * members.MAX_GIVEN_LARGE):
        join(world, needs_id=True, group_id=f"{number}" + "x" * members.LARGE_NAME)
    kept = world.coordinator.decisions._members
    assert len(kept.pending) == members.MAX_GIVEN_LARGE + 1
    deadlines = world.coordinator.deadlines
    assert len(deadlines._heap) == len(deadlines._place) == len(deadlines) == len(kept.pending)
    assert not world.coordinator._draft.undo._steps
    late = join(world, needs_id=True, group_id="honest", member_id=honest)
    assert late.error_code == ErrorCode.NONE


def test_metadata_of_all_members_together_is_bounded_and_a_member_comes_back_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weight, "MAX_BYTES", 100_000)
    world = Simulation()
    first = join(world, protocols=custom(40_000))
    join(world, group_id="other", protocols=custom(40_000))
    with pytest.raises(GroupFull, match="all groups would hold more than 100000"):
        join(world, group_id="third", protocols=custom(40_000))
    for _ in range(5):
        again = join(world, member_id=first.member_id, protocols=custom(40_000))
        assert again.error_code == ErrorCode.NONE
    assert {group.name for group in world.coordinator.groups.by_id.values()} == {GROUP, "other"}


def test_a_few_large_members_do_not_lock_out_ordinary_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight, "MAX_BYTES", 100_000)
    world = Simulation()
    for number in range(2):
        join(world, group_id=f"large{number}", protocols=custom(49_900))
    for number in range(50):
        with pytest.raises(GroupFull):
            join(world, group_id="refused", protocols=custom(5_000))
        assert join(world, group_id=f"small{number}").error_code == ErrorCode.NONE
        world.now += 2


def test_joins_that_are_refused_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight, "MAX_BYTES", 100_000)
    world = Simulation()
    for _ in range(3):
        with pytest.raises(GroupFull):
            join(world, protocols=custom(110_000))
    assert join(world, protocols=custom(40_000)).error_code == ErrorCode.NONE


def test_joins_of_groups_that_a_client_leads_are_counted_before_they_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weight, "MAX_BYTES", 100_000)
    world = Simulation()

    def lead(group: str) -> None:
        protocols = [JoinGroupRequestProtocol("mine", bytes(40_000))]
        request = _request(["t"], group_id=group, protocol_type="connect", protocols=protocols)
        caller = Caller("c", "/h", {})
        world.coordinator.join(request, caller, world.now, needs_id=False, can_skip=True)

    for group in ("one", "two"):
        lead(group)
        world.now += 2
    with pytest.raises(GroupFull, match="all groups would hold more than 100000"):
        lead("three")


def test_members_of_all_groups_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight, "MAX_MEMBERS", 3)
    world = Simulation()
    for number in range(3):
        join(world, group_id=f"g{number}")
    with pytest.raises(GroupFull, match="3 members, which is the most"):
        join(world, group_id="another")
    world.now += 2
    with pytest.raises(GroupFull):
        join(world, group_id="another")


def test_a_new_subject_is_matched_against_prepared_patterns_without_compiling_them_again() -> None:
    world = Simulation()
    patterns, subjects = Patterns(), world.subjects
    for text in ("a.*", "b.*"):
        patterns.found(text, subjects)
    texts = patterns.texts()
    assert matching_patterns("apple", texts) == {"a.*"}
    patterns.prepare("apple", texts, {"a.*"})
    patterns.found(".*e", subjects)
    subject = Subject(1, bytes(16), "apple", SubjectConfig(1, -1, -1))
    Pattern.of.cache_clear()
    assert patterns.added(subject) == {"a.*", ".*e"}
    assert Pattern.of.cache_info().misses == 1, "only the one that came in between"
