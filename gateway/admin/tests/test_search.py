"""GET /search and GET /messages: what is asked and what is answered, of a real broker."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.logs.tests.batches import TIME
from kumquat.core.logs.tests.keyed import Sent, packed
from kumquat.gateway.admin.arguments import Arguments
from kumquat.gateway.admin.http import HttpError
from kumquat.gateway.admin.routes import ROUTES
from kumquat.gateway.net.dispatch import Refused
from kumquat.gateway.tests.harness import serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kumquat.gateway.tests.harness import Served

    Ask = Callable[..., Awaitable[dict[str, Any]]]

SENT = [
    Sent(b"a", b"first", (("id", b"1"), ("note", None)), TIME),
    Sent(b"\xff", "ein Käse".encode(), (), TIME + 1000),
    Sent(None, None, (), TIME + 2000),
    Sent(b"", b"x" * 10_000, (("id", b"2"),), TIME + 3000),
]


def run(check: Callable[[Ask, Ask, Served], Awaitable[None]], folder: Path) -> None:
    async def filled(served: Served) -> None:
        await served.create("orders")
        subject = served.broker.log.subjects.by_name["orders"]
        served.broker.log.append_nowait(subject, memoryview(packed(SENT)))
        await served.broker.log.wait_synced()

        def asking(path: str) -> Ask:
            handler, allowed = ROUTES["GET", path]

            async def ask(**values: str) -> dict[str, Any]:
                values = {name.rstrip("_"): value for name, value in values.items()}
                arguments = Arguments({"subject": "orders", **values}, allowed)
                answer = await handler(served.broker, arguments)
                assert answer.status == 200
                return dict(answer.payload)

            return ask

        await check(asking("/search"), asking("/messages"), served)

    serve(filled, folder)


def offsets(answer: dict[str, Any]) -> list[int]:
    return [message["offset"] for message in answer["messages"]]


def test_an_answer_is_as_the_contract_says(tmp_path: Path) -> None:
    async def check(search: Ask, _: Ask, served: Served) -> None:
        answer = await search(key="a")
        size = len(packed(SENT))
        assert answer == {
            "messages": [
                {
                    "offset": 0,
                    "timestamp": TIME,
                    "key": {"text": "a"},
                    "headers": [
                        {"name": "id", "value": {"text": "1"}},
                        {"name": "note", "value": None},
                    ],
                    "value": {"text": "first"},
                    "size": 1 + 5 + 2 + 1 + 4,
                }
            ],
            "scanned": {"batches": 1, "bytes": size, "from": 0, "to": 4},
            "by": "scan",
            "unreadable": [],
            "next": None,
        }

    run(check, tmp_path)


def test_keys_values_and_headers_are_found_in_every_form(tmp_path: Path) -> None:
    async def check(search: Ask, _: Ask, served: Served) -> None:
        assert offsets(await search(key="")) == [3]
        coded = await search(key_base64=b64encode(b"\xff").decode())
        assert offsets(coded) == [1]
        assert coded["messages"][0]["key"] == {"base64": b64encode(b"\xff").decode()}
        assert offsets(await search(header="id=2")) == [3]
        assert offsets(await search(text="Käse")) == [1]
        assert offsets(await search(text="x", header="id=1")) == []
        assert offsets(await search(since=str(TIME + 1000), until=str(TIME + 3000))) == [2, 1]
        assert offsets(await search(from_="1", to="3", order="oldest")) == [1, 2]
        empty = (await search(from_="2", to="3"))["messages"][0]
        assert (empty["key"], empty["value"]) == (None, None)

    run(check, tmp_path)


def test_a_long_value_is_cut_between_characters_and_says_so(tmp_path: Path) -> None:
    async def check(search: Ask, browse: Ask, served: Served) -> None:
        value = (await search(key=""))["messages"][0]["value"]
        assert value == {"text": "x" * 4096, "cut": True, "size": 10_000}
        whole = (await search(key="", value_bytes="20000"))["messages"][0]["value"]
        assert whole == {"text": "x" * 10_000}
        cheese = (await browse(offset="1", limit="1", value_bytes="6"))["messages"][0]["value"]
        assert cheese == {"text": "ein K", "cut": True, "size": 9}

    run(check, tmp_path)


def test_pages_follow_each_other_without_gap_or_repeat(tmp_path: Path) -> None:
    async def check(search: Ask, browse: Ask, served: Served) -> None:
        for ask, more, expected in (
            (search, {}, [3, 2, 1, 0]),
            (search, {"order": "oldest"}, [0, 1, 2, 3]),
            (browse, {}, [0, 1, 2, 3]),
            (browse, {"last": "true"}, [3, 2, 1, 0]),
        ):
            found: list[int] = []
            page = await ask(limit="1", **more)
            found += offsets(page)
            while page["next"] is not None:
                page = await ask(limit="1", after=str(page["next"]), **more)
                found += offsets(page)
            assert found == expected

    run(check, tmp_path)


def test_a_subject_is_looked_through_by_offset_and_by_time(tmp_path: Path) -> None:
    async def check(_: Ask, browse: Ask, served: Served) -> None:
        answer = await browse(offset="2")
        assert offsets(answer) == [2, 3]
        assert (answer["subject"], answer["earliest"], answer["end"]) == ("orders", 0, 4)
        assert offsets(await browse(time=str(TIME + 1500))) == [2, 3]
        assert offsets(await browse(time=str(TIME + 9000))) == []
        assert offsets(await browse(offset="99")) == []
        assert offsets(await browse(last="true", limit="2")) == [3, 2]

    run(check, tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"header": "id"}, "name=value"),
        ({"key": "a", "key_base64": "YQ=="}, "not both"),
        ({"key_base64": "a b"}, "not base64"),
        ({"order": "random"}, "newest or oldest"),
        ({"text": ""}, "not empty"),
        ({"limit": "1001"}, "from 1 to 1000"),
        ({"since": "yesterday"}, "how long ago"),
        ({"colour": "red"}, "unknown argument"),
    ],
)
def test_a_wrong_question_is_told(tmp_path: Path, values: dict[str, str], said: str) -> None:
    async def check(search: Ask, _: Ask, served: Served) -> None:
        with pytest.raises(HttpError, match=said):
            await search(**values)

    run(check, tmp_path)


def test_an_unknown_subject_and_two_starts_are_told(tmp_path: Path) -> None:
    async def check(search: Ask, browse: Ask, served: Served) -> None:
        with pytest.raises(Refused, match="no subject"):
            await search(subject="nothing")
        with pytest.raises(HttpError, match="one of offset, time and last"):
            await browse(offset="1", last="true")

    run(check, tmp_path)
