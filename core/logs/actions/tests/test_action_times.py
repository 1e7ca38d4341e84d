"""What the action log remembers of time is the same after any start: since when groups are empty, when they
committed, for how long members were silent."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action, to_json
from kumquat.core.delivery.lifetimes import expired
from kumquat.core.delivery.state import Groups
from kumquat.core.logs.actions.log import ActionLog
from kumquat.core.logs.actions.recovery import open_action_log
from kumquat.core.logs.tests.power import FakeFiles

DATA = Path("/data")
DAY = 86_400_000
MOVES = ("join", "leave", "commit", "share", "drop", "heard", "silent", "restart", "expire")


def member(name: str) -> dict[str, object]:
    numbers = {"generation": 1, "session_ms": 1, "rebalance_ms": 1}
    return {"id": name, "kind": "eager", "client_id": "", "host": "", **numbers}


class Life:
    """Some groups, and a clock that goes on with each move."""

    def __init__(self) -> None:
        self.files = FakeFiles(DATA)
        self.now = 1_700_000_000_000
        self.log = self.open()

    def open(self) -> ActionLog:
        log = open_action_log(self.files, DATA, lambda: self.now, 400, 4096)
        while log.snapshot_step():
            pass
        return log

    @property
    def groups(self) -> Groups:
        return self.log.groups

    def do(self, *changes: Action) -> None:
        self.log.append(changes)
        self.log.sync()
        while self.log.snapshot_step(1):
            self.log.sync()

    def move(self, what: str, name: str) -> None:
        group = self.groups.by_name.get(name)
        if what == "restart":
            self.restart()
        elif what == "silent":
            self.do(actions.Silent(700))
        elif group is None:
            self.do(actions.Group(self.groups.next_id, name))
        elif what == "expire":
            self.do(*expired(group, set(), self.now, 2 * DAY, DAY), actions.Silent(0))
        else:
            self.do(*self._in(what, group.id))

    def _in(self, what: str, gid: int) -> list[Action]:
        made: dict[str, list[Action]] = {
            "join": [actions.Member(gid, member("m")), actions.Member(gid, member("n"))],
            "leave": [actions.Left(gid, "m"), actions.Left(gid, "n")],
            "commit": [actions.Commit(gid, 1, self.now, -1, "")],
            "share": [actions.Share(gid, 2, 5)],
            "drop": [actions.Drop(gid, 1)],
            "heard": [actions.Heard(gid, "m")],
        }
        return made[what]

    def restart(self) -> None:
        before, silent = told(self.groups), dict(self.groups.silent)
        for group in self.groups.by_id.values():
            silent |= {(group.id, m): silent.get((group.id, m), 0) for m in group.members}
        self.log.close()
        self.now += DAY
        self.log = self.open()
        assert told(self.groups) == before
        assert self.groups.silent == silent, "who was not heard since the start is asked for again"


def told(groups: Groups) -> str:
    timed = (actions.Committed, actions.Emptied)
    found = [a for g in groups.by_id.values() for a in groups.snapshot(g) if type(a) in timed]
    return json.dumps(sorted(map(to_json, found), key=str))


@given(st.lists(st.tuples(st.sampled_from(MOVES), st.sampled_from("gh")), max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_history_is_read_back_with_its_times(moves: list[tuple[str, str]]) -> None:
    life = Life()
    for what, name in moves:
        life.now += DAY // 3
        life.move(what, name)
    life.restart()


def test_a_log_from_before_there_were_times_counts_from_what_its_frames_say() -> None:
    life = Life()
    life.do(actions.Group(1, "g"))
    life.now += DAY
    life.do(actions.Commit(1, 1, 7, -1, ""))
    at = life.now
    life.now += DAY
    life.restart()
    assert life.groups.by_name["g"].progress[1].committed_at == at
    assert not expired(life.groups.by_name["g"], set(), at + 7 * DAY - 1, 7 * DAY, 0)
    assert expired(life.groups.by_name["g"], set(), at + 7 * DAY, 7 * DAY, 0)
