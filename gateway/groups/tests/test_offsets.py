"""Commits and positions: each in its own space, whoever asks."""

from __future__ import annotations

import pytest

from kumquat.core.delivery.state import JUMP, pull_offset
from kumquat.core.errors import KumquatError
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.offsets import Position
from kumquat.gateway.groups.tests.clients import Classic, Client, Modern
from kumquat.gateway.groups.tests.simulation import GROUP, Simulation
from kumquat.gateway.groups.tests.test_classic import holds, live
from kumquat.gateway.wire import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def sharing(*kinds: type[Client]) -> tuple[Simulation, list[Client]]:
    world = Simulation("t", mode="shared")
    world.produce("t", 100)
    clients = [kind(world, str(number), ["t"]) for number, kind in enumerate(kinds)]
    live(world, *clients, seconds=2)
    assert all(holds(world, client) == "pull" for client in clients)
    return world, clients


def ask(
    world: Simulation, caller: Caller, *, member_id: str | None = None, epoch: int = -1
) -> Position:
    (position,) = world.coordinator.fetch(GROUP, member_id, epoch, [("t", [0])], caller)
    return position


def stranger(client_id: str = "tool") -> Caller:
    return Caller(client_id, "/h", {}, "kafka-python")


def commit(
    world: Simulation,
    offset: int,
    member_id: str = "",
    generation: int = -1,
    *,
    topic: str = "t",
    metadata: str = "",
    group: str = GROUP,
) -> int:
    partition = OffsetCommitRequestPartition(0, offset, -1, metadata)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(topic, [partition])],
    )
    try:
        (code,) = world.coordinator.commit(request, stranger(), world.now)
    except KumquatError as error:
        return error.error_code
    return code


# --- positions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Classic, Modern])
def test_a_member_is_told_its_own_first_unacked(kind: type[Client]) -> None:
    world, (client,) = sharing(kind)
    client.read(10)
    client.commit()
    read_on = client.positions["t"]
    client.read(5)
    assert ask(world, client.caller) == Position("t", 0, read_on or 0)


def test_everybody_else_is_told_the_lowest_sequence_that_is_not_acked() -> None:
    world, (first, second) = sharing(Classic, Modern)
    first.read(10)
    second.read(10)
    second.commit()
    assert ask(world, stranger()).offset == 0
    first.commit()
    assert ask(world, stranger()).offset == 20
    (position,) = world.coordinator.fetch(GROUP, None, -1, None, stranger())
    assert position.offset == 20


def test_an_unbound_member_is_not_told_a_plain_position() -> None:
    world, (client,) = sharing(Classic)
    cut = stranger(client.caller.client_id)
    assert ask(world, cut).error_code == LOADING
    assert ask(world, stranger("tool")).error_code == 0
    client.caller = cut
    client.next_beat = 0.0
    client.step()
    position = ask(world, cut)
    assert position.error_code == 0
    assert position.offset >> 48
    assert ask(world, stranger(cut.client_id)).error_code == 0, "it has asked"


def test_a_member_that_asks_on_another_connection_waits_for_its_heartbeat() -> None:
    world, (client,) = sharing(Classic)
    other = stranger(client.caller.client_id)
    for _ in range(2):
        assert ask(world, other).error_code == LOADING
    client.caller = other
    client.next_beat = 0.0
    client.step()
    assert ask(world, other).offset >> 48


def test_a_member_that_was_thrown_out_is_not_told_a_plain_position() -> None:
    world, (frozen, other) = sharing(Classic, Classic)
    live(world, other, seconds=12, reads=1)
    assert frozen.member_id not in world.groups.by_name[GROUP].members
    assert ask(world, frozen.caller).error_code == LOADING


def test_a_member_that_is_between_two_assignments_is_not_told_a_plain_position() -> None:
    world, (client, _) = sharing(Classic, Classic)
    client.read(1)
    world.coordinator.request_rebalance(world.groups.by_name[GROUP], client.member_id, world.now)
    client.next_beat = 0.0
    client.step()
    assert holds(world, client) == "none"
    assert ask(world, client.caller).error_code == LOADING


def test_a_member_that_has_left_may_look_at_the_group() -> None:
    world, (client, other) = sharing(Classic, Classic)
    other.read(1)
    client.leave()
    assert ask(world, client.caller) == Position("t", 0, 0)


def test_a_member_that_names_itself_must_be_in_its_epoch() -> None:
    world, (client,) = sharing(Modern)
    caller = stranger()
    assert ask(world, caller, member_id=client.member_id, epoch=client.generation).offset >> 48
    assert ask(world, caller, member_id=client.member_id).offset >> 48
    for member_id, epoch, code in [
        (client.member_id, client.generation + 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with pytest.raises(KumquatError) as refused:
            ask(world, caller, member_id=member_id, epoch=epoch)
        assert refused.value.error_code == code


def test_what_was_never_committed_has_no_position() -> None:
    world = Simulation("t", checked=True)
    assert ask(world, stranger()) == Position("t", 0, -1)
    live(world, client := Classic(world, "c", ["t"]), seconds=2)
    assert ask(world, client.caller) == Position("t", 0, -1)
    (other,) = world.coordinator.fetch(GROUP, None, -1, [("nope", [3])], stranger())
    assert other == Position("nope", 3, -1)
    assert world.coordinator.fetch(GROUP, None, -1, None, stranger()) == []


def test_after_a_restart_nobody_is_told_a_plain_position_before_its_heartbeat() -> None:
    world, (client,) = sharing(Classic)
    client.read(5)
    world.restart()
    client.broker_restarted()
    assert ask(world, client.caller).error_code == LOADING
    client.next_beat = 0.0
    client.step()
    assert ask(world, client.caller).offset >> 48


# --- commits -------------------------------------------------------------------------------------


def test_a_commit_acks_what_was_given_and_nothing_else() -> None:
    world, (client, other) = sharing(Classic, Classic)
    client.read(10)
    other.read(10)
    at, others = client.positions["t"] or 0, other.positions["t"] or 0
    progress = world.groups.by_name[GROUP].progress[1]
    who = (client.member_id, client.generation)
    before = len(world.log)
    for wrong in (
        at + 1,
        at + JUMP,
        others,
        5,
        0,
        -1,
        -(1 << 62),
        pull_offset(9, 1 << 24),
        at - 10,
    ):
        assert commit(world, wrong, *who) == 0, wrong
    assert len(world.log) == before
    assert commit(world, at - 4, *who) == 0
    assert progress.unacked == 14
    assert commit(world, at, *who) == 0
    written = len(world.log)
    assert commit(world, at, *who) == 0
    assert len(world.log) == written, "a commit that says nothing new is not written"
    assert progress.unacked == 10


def test_a_commit_must_come_from_a_member_in_its_generation() -> None:
    world, (client, modern) = sharing(Classic, Modern)
    assert commit(world, 5, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, 5, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    generation = client.generation
    assert commit(world, 5, client.member_id, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    epoch = modern.generation
    assert commit(world, 5, modern.member_id, epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, 5, "m", 1, group="nowhere") == ErrorCode.ILLEGAL_GENERATION
    assert commit(world, 5, group="x" * 40_000) == ErrorCode.INVALID_GROUP_ID
    member_id = client.member_id
    assert commit(world, 5, member_id, generation, topic="nope") == 3
    assert commit(world, 5, member_id, generation, metadata="x" * 5000) == 12


def test_an_owner_moves_the_group_with_plain_offsets() -> None:
    world = Simulation("t", checked=True)
    world.produce("t", 10)
    live(world, client := Classic(world, "c", ["t"]), seconds=2)
    who = (client.member_id, client.generation)
    assert commit(world, 7, *who, metadata="seven") == 0
    assert ask(world, client.caller) == Position("t", 0, 7, -1, "seven")
    assert commit(world, pull_offset(1, 1 << 24), *who) == 0
    assert ask(world, client.caller).offset == 7
    written = len(world.log)
    commit(world, 7, *who, metadata="seven")
    assert len(world.log) == written


def test_a_group_without_members_can_be_set_anywhere() -> None:
    world = Simulation("t", checked=True)
    world.produce("t", 100)
    assert commit(world, 40) == 0
    live(world, client := Classic(world, "c", ["t"]), seconds=2)
    client.read(1)
    assert client.positions["t"] == 41


def test_setting_back_a_group_that_shared_forgets_what_was_unacked() -> None:
    world, (client, _) = sharing(Classic, Classic)
    client.read(10)
    live(world, seconds=20)
    progress = world.groups.by_name[GROUP].progress[1]
    assert progress.shared
    assert progress.retries
    assert commit(world, 50) == 0
    assert ask(world, stranger()).offset == 50
    live(world, again := Modern(world, "again", ["t"]), seconds=2)
    again.read(3)
    assert world.handled["t"][50] == 1
    assert not world.handled["t"][49]


def test_the_first_commit_opens_the_group_to_others() -> None:
    world = Simulation("t", checked=True)
    world.produce("t", 10)
    owner, other = Modern(world, "owner", ["t"]), Classic(world, "other", ["t"])
    live(world, owner, other, seconds=6, reads=1)
    assert (holds(world, owner), holds(world, other)) == ("plain", "none")
    owner.commit()
    live(world, owner, other, seconds=12, reads=1)
    assert (holds(world, owner), holds(world, other)) == ("pull", "pull")


# --- negative offsets, and who is no member -----------------------------------------------------


def test_a_negative_commit_is_told_again() -> None:
    world = Simulation("t", checked=True)
    world.produce("t", 10)
    for offset in (-2, 4, -1):
        assert commit(world, offset, metadata="m") == ErrorCode.NONE
        assert ask(world, stranger())[2:] == (offset, -1, "m", ErrorCode.NONE)
        world.restart()
        assert ask(world, stranger()).offset == offset


def test_a_negative_commit_of_an_owner_is_no_position_to_share_from() -> None:
    world = Simulation("t", checked=True)
    world.produce("t", 10)
    owner = Classic(world, "0", ["t"])
    live(world, owner, seconds=2)
    assert commit(world, -2, owner.member_id, owner.generation) == ErrorCode.NONE
    assert ask(world, stranger()).offset == -2
    assert ask(world, owner.caller).offset == -2
    second = Classic(world, "1", ["t"])
    live(world, owner, second, seconds=20, reads=3)
    assert holds(world, second) == "pull", "the owner has committed since"
    assert sorted(world.handled["t"]) == list(range(10))


@pytest.mark.parametrize(("offset", "begins"), [(-2, 40), (-1, 100)])
def test_a_sharing_member_that_is_alone_begins_at_an_end(offset: int, begins: int) -> None:
    world, (client,) = sharing(Classic)
    client.read(60)
    client.commit()
    client.read(10)
    world.subjects.by_name["t"].earliest = 40
    assert commit(world, offset, client.member_id, client.generation) == ErrorCode.NONE
    assert ask(world, stranger()).offset == begins
    told = ask(world, client.caller).offset
    assert told >> 48
    world.restart()
    assert ask(world, stranger()).offset == begins
    assert world.read("t", told, 1)[0] == ([begins] if begins < 100 else [])


def test_one_of_several_sharing_members_does_not_set_the_others_back() -> None:
    world, (first, second) = sharing(Classic, Modern)
    first.read(10)
    second.read(10)
    second.commit()
    before = len(world.log)
    assert commit(world, -2, second.member_id, second.generation) == ErrorCode.NONE
    assert len(world.log) == before


def test_a_negative_commit_sets_back_an_empty_group_that_shares() -> None:
    world, (client,) = sharing(Classic)
    client.read(60)
    client.leave()
    assert ask(world, stranger()).offset == 60
    assert commit(world, -2) == ErrorCode.NONE
    assert ask(world, stranger()).offset == 0, "in mode `shared` it begins there at once"
    world.set_mode("auto")
    assert commit(world, -2) == ErrorCode.NONE
    assert ask(world, stranger()).offset == -2


def test_who_has_a_member_id_but_no_generation_may_commit_for_an_empty_group() -> None:
    world = Simulation("t", checked=True)
    assert commit(world, 7, "of-no-member") == ErrorCode.NONE
    assert ask(world, stranger(), member_id="of-no-member").offset == 7
    client = Classic(world, "0", ["t"])
    live(world, client, seconds=2)
    assert commit(world, 8, "of-no-member") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, 8, client.member_id) == ErrorCode.ILLEGAL_GENERATION
    client.leave()
    assert commit(world, 9, client.member_id) == ErrorCode.NONE
    assert ask(world, stranger()).offset == 9


def test_a_commit_for_a_topic_that_is_not_there_makes_no_group() -> None:
    world = Simulation("t", checked=True)
    assert commit(world, 1, topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not world.groups.by_name
    assert not world.log
