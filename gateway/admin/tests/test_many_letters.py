"""An operator who lists dead-letter subjects waits for ever, or gets nothing because one was deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.delivery.dead_letters.redrive import NoLetters
from kumquat.gateway.admin.arguments import Arguments
from kumquat.gateway.admin.dlq import looking
from kumquat.gateway.admin.dlq.wanted import FILTERS
from kumquat.gateway.admin.tests.dead import Sent, die
from kumquat.gateway.tests.harness import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["t.g.dlq", "u.g.dlq", "v.g.dlq"]


async def letters_of_three(served: Served) -> None:
    for name in "tuv":
        await served.create(name)
        await die(served, name, "g", [Sent(b"x")])


async def listed(served: Served, **values: object) -> tuple[list[str], str | None]:
    arguments = Arguments(values, ("after", "limit"))
    answer: Any = (await looking.list_subjects(served.broker, arguments)).payload
    return [each["subject"] for each in answer["subjects"]], answer["next"]


def test_a_list_of_subjects_that_takes_as_long_as_there_are_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await letters_of_three(served)
        assert await listed(served) == (NAMES, None)
        monkeypatch.setattr(looking, "SEARCH_SECONDS", 0)
        assert await listed(served) == (NAMES[:1], NAMES[0])
        assert await listed(served, after=NAMES[0]) == (NAMES[1:2], NAMES[1])
        assert await listed(served, after=NAMES[1]) == (NAMES[2:], None)

    serve(check, tmp_path)


def test_a_subject_that_is_deleted_while_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await letters_of_three(served)
        redrives = served.broker.dead_letters.redrives
        page = redrives.page

        async def deleted(name: str, *arguments: Any, **named: Any) -> Any:
            if name == NAMES[1]:
                raise NoLetters("it was deleted")
            return await page(name, *arguments, **named)

        monkeypatch.setattr(redrives, "page", deleted)
        assert await listed(served) == ([NAMES[0], NAMES[2]], None)
        arguments = Arguments({"group": "g"}, (*FILTERS, "after", "limit"))
        answer: Any = (await looking.list_letters(served.broker, arguments)).payload
        assert [each["subject"] for each in answer["letters"]] == [NAMES[0], NAMES[2]]
        with pytest.raises(NoLetters):
            await looking.list_letters(served.broker, Arguments({"subject": NAMES[1]}, FILTERS))

    serve(check, tmp_path)
