"""A page that fails, shows what it must not, or does not end."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
import trio

from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.routes import ROUTES
from kumquat.gateway.admin.tests.dead import REJECTED, Sent, die, send
from kumquat.gateway.console.app import PAGES
from kumquat.gateway.console.tests.browser import browser
from kumquat.gateway.console.views import trace as traces
from kumquat.gateway.console.views.messages import LISTED, browse, message
from kumquat.gateway.console.views.subjects import PAGE
from kumquat.gateway.console.views.trace import NOTHING, Trace
from kumquat.gateway.tests.harness import serve
from kumquat.gateway.tests.members import sharing

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.admin.arguments import Arguments
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.tests.harness import Served

EVIL = "<img src=x onerror=alert(1)>\"'&</script><script>alert(2)</script>"
NAMED = {
    "/console/subject": "?name=t",
    "/console/messages": "?subject=t",
    "/console/message": "?subject=t&offset=0",
    "/console/produce": "?subject=t",
    "/console/group": "?name=g",
    "/console/letter": "?subject=t.g.dlq&sequence=0",
    "/console/trace": "?subject=t&offset=0",
    "/console/search": "?q=t",
}


def test_a_page_fails_on_a_broker_with_everything_on_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await die(served, "t", "g", [Sent(b'{"a": 1}', b"k", [("h", b"v")])], text="no")
        await send(served, "t", [Sent(b"later", None, [("qmq-delay-ms", b"900000")])])
        await send(served, "t", [Sent(bytes(range(256))), Sent(None)])
        async with browser(served) as visitor:
            for path in PAGES:
                page = await visitor.get(path + NAMED.get(path, ""))
                assert page.status == 200, (path, page.text)
                assert "<h1>" in page.text
            assert "1 dead letter is open" in (await visitor.get("/")).text

    serve(check, tmp_path)


def test_a_page_fails_on_a_broker_with_nothing_on_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with browser(served) as visitor:
            for path in PAGES:
                page = await visitor.get(path)
                assert page.status == (
                    400
                    if path in NAMED and "q=" not in NAMED[path] and path != "/console/trace"
                    else 200
                ), path

    serve(check, tmp_path)


@pytest.mark.parametrize("form", ["text", "json", "hex", ""])
def test_what_a_message_holds_becomes_part_of_the_page(tmp_path: Path, form: str) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        evil = EVIL.encode()
        await send(
            served,
            "t",
            [Sent(b'{"a": "' + b"<script>" + b'"}', evil, [(EVIL, evil)]), Sent(evil, evil)],
        )
        async with browser(served) as visitor:
            targets = ["/console/messages?subject=t", "/console/messages?subject=t&offset=0"]
            targets += [f"/console/message?subject=t&offset={n}&as={form}" for n in (0, 1)]
            for target in targets:
                page = await visitor.get(target)
                assert page.status == 200
                assert "<script>" not in page.text
                assert "<img src=x" not in page.text
            assert "&lt;img src=x" in (await visitor.get(targets[0])).text

    serve(check, tmp_path)


def test_the_names_of_groups_members_and_reasons_become_part_of_the_page(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await die(served, "t", "g", [Sent(b"v", EVIL.encode())], REJECTED, EVIL)
        async with sharing(served, EVIL, "t", 1), browser(served) as visitor:
            targets = ["/", "/console/groups", f"/console/group?name={quote(EVIL)}"]
            targets += ["/console/groups?q=%3Cimg", f"/console/search?q={quote_plus(EVIL)}"]
            targets += [
                f"/console/subjects?q={quote_plus(EVIL)}",
                f"/console/subject?name={quote(EVIL)}",
            ]
            targets += ["/console/letters", f"/console/letters?group={quote(EVIL)}"]
            targets += ["/console/letter?subject=t.g.dlq&sequence=0", "/console/connections"]
            targets += [
                f"/console/trace?subject={quote(EVIL)}&offset=1",
                f"/console/configs?q={quote(EVIL)}",
            ]
            for target in targets:
                page = await visitor.get(target)
                assert page.status in (200, 404), (target, page.text)
                assert "<script>alert" not in page.text, target
                assert "<img src=x" not in page.text, target

    serve(check, tmp_path)


def test_a_list_of_subjects_does_not_end_or_leaves_some_out(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        names = {f"s-{number:03}" for number in range(2 * PAGE + 7)}
        await served.broker.subjects.create_all({name: {} for name in names})
        async with browser(served) as visitor:
            seen: set[str] = set()
            target: str | None = "/console/subjects?q=s-"
            pages = 0
            while target is not None:
                page = await visitor.get(target)
                here = {name for name in names if f"name={name}" in page.text}
                assert len(here) <= PAGE
                assert not here & seen
                seen |= here
                pages += 1
                following = page.text.partition('rel="next" href="')[2].partition('"')[0]
                target = following.replace("&amp;", "&") or None
            assert seen == names
            assert pages == 3
            found = await visitor.get("/console/subjects?q=S-04")
            assert found.text.count("/console/subject?name=s-04") == 10
            await served.create("s-04x")
            found = await visitor.get("/console/subjects?q=S-04")
            assert found.text.count("/console/subject?name=s-04") == 11

    serve(check, tmp_path)


def test_a_page_that_has_not_changed_is_sent_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with browser(served) as visitor:
            target = "/console/subject?name=t"
            whole = await visitor.get(target)
            part = await visitor.get(target, x_fragment="1")
            assert "<nav" in whole.text
            assert "<nav" not in part.text
            assert whole.headers["etag"] != part.headers["etag"]
            again = await visitor.get(target, x_fragment="1", if_none_match=part.headers["etag"])
            assert (again.status, again.text) == (304, "")
            await send(served, "t", [Sent(b"v")])
            fresh = await visitor.get(target, x_fragment="1", if_none_match=part.headers["etag"])
            assert fresh.status == 200
            style = await visitor.get("/static/console.css")
            kept = await visitor.get("/static/console.css", if_none_match=style.headers["etag"])
            assert (style.status, kept.status) == (200, 304)

    serve(check, tmp_path)


def test_messages_are_browsed_by_offset_and_time_and_none_is_left_out(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        for start in range(0, 120, 10):
            await send(served, "t", [Sent(b"value-%03d" % n) for n in range(start, start + 10)])
        async with browser(served) as visitor:
            newest = await visitor.get("/console/messages?subject=t")
            assert newest.text.index("value-119") < newest.text.index("value-070")
            assert "value-069" not in newest.text
            first = await visitor.get("/console/messages?subject=t&offset=5")
            assert all(f"value-{n:03}" in first.text for n in range(5, 55))
            assert "value-055" not in first.text
            assert "offset=55" in first.text
            timed = await visitor.get("/console/messages?subject=t&time=2000-01-01")
            assert "value-000" in timed.text
            wrong = await visitor.get("/console/messages?subject=t&time=yesterday")
            assert wrong.status == 400
            gone = await visitor.get("/console/message?subject=t&offset=120")
            assert (gone.status, "0 to 119" in gone.text) == (404, True)

    serve(check, tmp_path)


async def _trace(broker: Broker, arguments: Arguments) -> Answer:
    event = {"at": 1_700_000_000_000, "event": "pulled", "text": EVIL}
    group = {"group": EVIL, "state": "in flight", "member": EVIL, "since": 1, "due": None}
    letter = {"subject": "t.g.dlq", "offset": 3, "group": "g", "reason": EVIL}
    told = {"history": "all", "message": None}
    return Answer(200, {**told, "events": [event], "groups": [group], "letters": [letter]})


async def _search(broker: Broker, arguments: Arguments) -> Answer:
    if arguments.text("key") == "bad":
        raise HttpError(400, "INVALID_ARGUMENT", EVIL)
    header = {"name": EVIL, "value": {"base64": "/w=="}}
    found = {
        "offset": 7,
        "timestamp": 5,
        "key": {"text": EVIL},
        "value": {"text": EVIL, "cut": True},
    }
    scanned = {"batches": 3, "bytes": 99, "from": 0, "to": 7}
    messages = [{**found, "headers": [header], "size": 9}, {**found, "key": None, "headers": []}]
    return Answer(200, {"messages": messages, "scanned": scanned, "by": "scan", "next": 7})


def test_the_history_and_the_search_of_another_package_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROUTES, ("GET", "/trace"), (_trace, ("subject", "offset")))
    monkeypatch.setitem(
        ROUTES, ("GET", "/search"), (_search, ("subject", "key", "text", "limit", "after"))
    )

    async def check(served: Served) -> None:
        await served.create("t")
        await send(served, "t", [Sent(b"v")])
        async with browser(served) as visitor:
            for target in (
                "/console/trace?subject=t&offset=0",
                "/console/message?subject=t&offset=0",
            ):
                page = await visitor.get(target)
                assert "in flight" in page.text
                assert "<img src=x" not in page.text
            found = await visitor.get("/console/search?subject=t&key=k")
            assert "offset=7" in found.text
            assert "after=7" in found.text
            assert "<img src=x" not in found.text
            wrong = await visitor.get("/console/search?subject=t&key=bad")
            assert (wrong.status, "&lt;img src=x" in wrong.text) == (200, True)

    serve(check, tmp_path)


def test_a_list_of_long_messages_is_held_in_memory(tmp_path: Path) -> None:
    """Fifty of a megabyte each, which are nothing on disk if they are compressed."""

    async def check(served: Served) -> None:
        await served.create("t")
        long = b"x" * 100_000
        for _ in range(3):
            await send(served, "t", [Sent(long, long)])
        subject = served.broker.log.subjects.by_name["t"]
        page = await browse(served.broker, subject, 0)
        assert [len(record.value or b"") for record in page.records] == [LISTED] * 3
        assert [len(record.key or b"") for record in page.records] == [LISTED] * 3
        assert (await message(served.broker, subject, 1)).value == long

    serve(check, tmp_path)


def test_each_open_page_reads_the_history_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read it may take seconds of a core, and a page asks every two."""
    asked: list[int] = []

    async def check(served: Served) -> None:
        async def slow(broker: Broker, subject: str, offset: int) -> Trace:
            asked.append(offset)
            served.clock.jump(1)
            await trio.lowlevel.checkpoint()
            return NOTHING

        monkeypatch.setattr(traces, "trace", slow)
        await served.create("t")
        await send(served, "t", [Sent(b"v"), Sent(b"v")])
        async with browser(served) as one:
            for _ in range(3):
                assert (await one.get("/console/message?subject=t&offset=0")).status == 200
            assert asked == [0]
            await one.get("/console/trace?subject=t&offset=1")
            assert asked == [0, 1]
            served.clock.jump(1000)
            await one.get("/console/trace?subject=t&offset=0")
            assert asked == [0, 1, 0]

    serve(check, tmp_path)
