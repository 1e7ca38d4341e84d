"""Every kind of action against its literal bytes: a data folder written by an older broker is read by this
one, and back."""

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action, Unknown, from_json, to_json
from kumquat.core.delivery.state import Groups
from kumquat.core.logs.actions.format import ACTIONS, HEADER_SIZE, pack_frame, parse_actions

FIELDS = {"id": "m", "generation": 1, "kind": "client", "holds": {"7": 2}, "rack": None}
STORED: list[tuple[Action, bytes]] = [
    (actions.Group(1, "g"), b'["group",1,"g"]'),
    (actions.Group(1, "g", 0), b'["group",1,"g",0]'),
    (actions.Group(1, "\u00e9", 3), b'["group",1,"\\u00e9",3]'),
    (actions.Forget(1), b'["forget",1]'),
    (
        actions.Member(1, FIELDS),
        b'["member",1,{"id":"m","generation":1,"kind":"client","holds":{"7":2},"rack":null}]',
    ),
    (actions.Left(1, "m"), b'["left",1,"m"]'),
    (actions.Commit(1, 7, 42, -1, "text"), b'["commit",1,7,42,-1,"text"]'),
    (actions.Commit(1, 7, 42, 3, ""), b'["commit",1,7,42,3,""]'),
    (actions.Share(1, 7, 42), b'["share",1,7,42]'),
    (actions.Unshare(1, 7), b'["unshare",1,7]'),
    (actions.Unshare(1, 7, 42), b'["unshare",1,7,42]'),
    (actions.InOrder(1, 7, 42), b'["inorder",1,7,42]'),
    (actions.Slot(1, 7, 2, "m", 100), b'["slot",1,7,2,"m",100]'),
    (actions.Pull(1, 7, 2, 100, [[42, 5, 1], [50, 1, 2]]), b'["pull",1,7,2,100,[[42,5,1],[50,1,2]]]'),
    (actions.Ack(1, 7, 2, 103), b'["ack",1,7,2,103]'),
    (actions.Accept(1, 7, 2, [[42, 5], [50, 1]]), b'["accept",1,7,2,[[42,5],[50,1]]]'),
    (actions.Retry(1, 7, 2, [[42, 5, 2, 1234]]), b'["retry",1,7,2,[[42,5,2,1234]]]'),
    (
        actions.Doom(1, 7, 2, [[42, 5, 16]], "rejected", "text"),
        b'["doom",1,7,2,[[42,5,16]],"rejected","text"]',
    ),
    (actions.Settle(1, 7, [[42, 5]]), b'["settle",1,7,[[42,5]]]'),
    (actions.Joined(1000), b'["joined",1000]'),
    (actions.Release(1, 7, 2), b'["release",1,7,2]'),
    (actions.Expire(1, 7, 44), b'["expire",1,7,44]'),
    (actions.Lost(1, 7, 44, 2), b'["lost",1,7,44,2]'),
    (actions.Holes(1, 7, 44, 2), b'["holes",1,7,44,2]'),
    (actions.Drop(1, 7), b'["drop",1,7]'),
    (actions.Drop(1, 7, 42), b'["drop",1,7,42]'),
    (actions.Gone(7), b'["gone",7]'),
    (actions.Heard(1, "m"), b'["heard",1,"m"]'),
    (actions.Silent(1000), b'["silent",1000]'),
    (actions.Jump(16777216), b'["jump",16777216]'),
    (actions.Stopped(), b'["stopped"]'),
    (actions.Numbers(4, 99), b'["numbers",4,99]'),
    (actions.Slots(7, 3, 105), b'["slots",7,3,105]'),
    (actions.Numbers(4, 99, 1000), b'["numbers",4,99,1000]'),
    (actions.Again(1, 7, 42, 5, 2, 1234), b'["again",1,7,42,5,2,1234]'),
    (actions.Waits(1, 7, "AAEC"), b'["waits",1,7,"AAEC"]'),
    (
        actions.Doomed(1, 7, 42, 5, 16, "attempts", "text", 1234, 5678),
        b'["doomed",1,7,42,5,16,"attempts","text",1234,5678]',
    ),
    (actions.Expired(1, 7, 6), b'["expired",1,7,6]'),
    (actions.Emptied(1, "eager", "consumer", 1234), b'["emptied",1,"eager","consumer",1234]'),
    (actions.Committed(1, 7, 1234), b'["committed",1,7,1234]'),
    (actions.Silence(1, {"m": 500}), b'["silence",1,{"m":500}]'),
    (
        actions.Log(1, 7, 2, "m", [100, 101, 105], [[1, 2]], [[101, 42, 4, 1, 1234, 5678]]),
        b'["log",1,7,2,"m",[100,101,105],[[1,2]],[[101,42,4,1,1234,5678]]]',
    ),
]  # fmt: skip


def test_the_bytes_of_every_kind_stay_as_they_are() -> None:
    assert {type(action) for action, _ in STORED} == set(actions.TYPES)
    for action, stored in STORED:
        payload = pack_frame(ACTIONS, [action, action], 0, 0, 0)[HEADER_SIZE:]
        assert payload == b"[" + stored + b"," + stored + b"]"
        if type(action) is not actions.Pull:  # see below
            assert pack_frame(ACTIONS, [action], 0, 0, 0)[HEADER_SIZE:] == b"[" + stored + b"]"


def test_a_pull_alone_in_its_frame_has_spaces_in_its_ranges() -> None:
    pull = actions.Pull(1, 7, 2, 100, [[42, 5, 1], [50, 1, 2]])
    payload = pack_frame(ACTIONS, [pull], 0, 0, 0)[HEADER_SIZE:]
    assert payload == b'[["pull",1,7,2,100,[[42, 5, 1], [50, 1, 2]]]]'
    assert parse_actions(payload) == [pull]


@pytest.mark.parametrize(("action", "stored"), STORED)
def test_what_an_older_broker_wrote_is_read_as_the_same_action(
    action: Action, stored: bytes
) -> None:
    (read,) = parse_actions(b"[" + stored + b"]")
    assert (type(read), read) == (type(action), action)
    assert from_json(list(to_json(read))) == action


def test_an_array_that_is_no_action_does_not_take_its_neighbours_along() -> None:
    frame = b'[["group",1,"g"],["future",1,2],["commit",1],[],["commit",1,7,42,-1,""]]'
    groups, refused = Groups(), 0
    for action in parse_actions(frame):
        try:
            groups.apply(action)
        except ValueError:
            assert type(action) is Unknown
            refused += 1
    assert refused == 3
    assert groups.by_id[1].progress[7].position == 42


def test_every_kind_can_be_applied() -> None:
    assert set(Groups()._appliers) == {*actions.TYPES, Unknown}


def test_what_an_older_broker_wrote_without_times_is_read() -> None:
    assert from_json(["again", 1, 7, 42, 5, 2]) == actions.Again(1, 7, 42, 5, 2, 0)
    groups = Groups()
    numbers = [1 << 24, 1 << 24, (1 << 24) + 4]
    for found in (
        ["group", 1, "g"],
        ["share", 1, 7, 50],
        ["log", 1, 7, 2, "m", numbers, [], [[1 << 24, 42, 4, 1]]],
    ):
        groups.apply(from_json(found))
    (lease,) = groups.slots[7][2][1].leases
    assert (lease.first, lease.size, lease.attempt, lease.since, lease.at) == (42, 4, 1, 0, 0)
