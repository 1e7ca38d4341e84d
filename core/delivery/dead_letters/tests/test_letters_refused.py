"""Dead letters that must not be written where somebody says, and a task that must go on in any case."""

from pathlib import Path

import pytest

from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.dead_letters import backlog
from kumquat.core.delivery.dead_letters.tests.rig import Rig
from kumquat.core.delivery.dead_letters.tests.test_letters import DLQ, run


def test_a_group_whose_letters_would_go_back_to_where_they_come_from_writes_none(
    tmp_path: Path,
) -> None:
    """Each would be delivered, fail and die again, without an end."""

    async def test(it: Rig) -> None:
        await it.produce("s", b"a")
        it.config.dead_letter_subject = "{subject}"
        it.doom("g", "s", [[0, 1, 2]])
        await it.until(lambda: bool(it.dead.statistics().failing))
        (reason,) = it.dead.statistics().failing.values()
        assert "errors.deadletterqueue.topic.name" in reason
        assert [each.value for each in it.letters("s")] == [b"a"]
        it.config.dead_letter_subject = ""
        await it.written("g", "s")
        assert [each.value for each in it.letters(DLQ)] == [b"a"]

    run(tmp_path, test)


def test_an_error_that_nobody_foresaw_does_not_end_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the task the whole broker would end."""
    monkeypatch.setattr(backlog, "FIRST_PAUSE", 0.01)

    async def test(it: Rig) -> None:
        await it.produce("s", b"a")
        wrong = [ValueError("out of order")]
        joinable = it.joiner.joinable

        def fails_once(durable: int) -> list[kinds.Action]:
            if wrong:
                raise wrong.pop()
            return joinable(durable)

        monkeypatch.setattr(it.joiner, "joinable", fails_once)
        it.doom("g", "s", [[0, 1, 2]])
        await it.written("g", "s")
        assert [each.value for each in it.letters(DLQ)] == [b"a"]
        assert "no dead letters can be written: ValueError: out of order" in caplog.text

    run(tmp_path, test)
