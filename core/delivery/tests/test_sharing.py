"""What sharing remembers of groups and subjects that are gone."""

from types import SimpleNamespace
from typing import Any, cast

import trio

from kumquat.core.delivery import actions
from kumquat.core.delivery.engine import Allowed
from kumquat.core.delivery.sharing.service import Sharing
from kumquat.core.delivery.state import Groups


class FakeActions:
    def __init__(self) -> None:
        self.groups = Groups()

    def now_ms(self) -> int:
        return 0

    def append_nowait(self, changes: list[actions.Action]) -> int:
        for action in changes:
            self.groups.apply(action)
        return 1


def fake_log() -> Any:
    options = SimpleNamespace(max_decompressed_bytes=1 << 20)
    return SimpleNamespace(log=SimpleNamespace(options=options))


def test_a_subject_that_is_deleted_leaves_nothing_behind_in_sharing() -> None:
    async def story() -> None:
        sharing = Sharing(cast("Any", FakeActions()), fake_log(), cast("Any", None))
        sharing.append([actions.Group(1, "g"), actions.Share(1, 7, 0)], {(1, 7): Allowed.ALL})
        assert sharing.allowed(1, 7) is Allowed.ALL
        sharing.append([actions.Gone(7)], {(1, 7): Allowed.NOTHING})
        assert sharing.allowed(1, 7) is Allowed.NOTHING
        assert not sharing._allowed

    trio.run(story)
