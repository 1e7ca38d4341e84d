"""A form that does something else than its page says, or does it before anybody is sure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.admin.tests.dead import Sent, die, letters_in, send
from kumquat.gateway.console.tests.browser import browser
from kumquat.gateway.tests.harness import serve
from kumquat.gateway.tests.members import sharing
from kumquat.meta.values import LONG_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.console.tests.browser import Page
    from kumquat.gateway.tests.harness import Served


def test_a_message_is_not_what_was_written(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with browser(served) as visitor:
            said = await visitor.send(
                "/console/produce", subject="t", key="k", value="ä\r\nb", headers="one: 1\ntwo:  2 "
            )
            assert "stored at offset 0" in said.text
            page = await visitor.get("/console/message?subject=t&offset=0&as=hex")
            assert "c3 a4 0a 62" in page.text
            assert "one" in page.text
            assert "two" in page.text
            wrong = await visitor.send("/console/produce", subject="t", headers="nocolon")
            assert (wrong.status, "name: value" in wrong.text) == (400, True)
            own = await visitor.send("/console/produce", subject="__kumquat_retry", value="x")
            assert own.status == 400
            bad = await visitor.send("/console/produce", subject="t", value="x", delay="soon")
            assert (bad.status, "not stored" in bad.text) == (400, True)
        assert served.broker.log.subjects.by_name["t"].readable_end == 1

    serve(check, tmp_path)


def test_a_delayed_message_cannot_be_moved_or_cancelled(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        delay = served.broker.delay
        async with browser(served) as visitor:
            said = await visitor.send(
                "/console/produce", subject="t", value="v", delay="1h", delay_id="d"
            )
            assert "delivered after 1h" in said.text
            (item,) = (await delay.list(None, 0, LONG_MAX, None, 10)).items
            schedule_id = str(item.schedule_id)
            assert f'value="{schedule_id}"' in (await visitor.get("/console/delays?subject=t")).text
            await visitor.send(
                "/console/delays/move", subject="t", schedule_id=schedule_id, due="3h"
            )
            (moved,) = (await delay.list(None, 0, LONG_MAX, None, 10)).items
            assert abs(moved.due - item.due - 2 * 3_600_000) < 60_000
            wrong = await visitor.send(
                "/console/delays/move", subject="t", schedule_id=schedule_id, due="soon"
            )
            assert wrong.status == 400
            now = str(moved.schedule_id)  # a move writes it again
            said = await visitor.send("/console/delays/cancel", subject="t", schedule_id=now)
            assert "is cancelled" in said.text
            assert await delay.count(None, 0, LONG_MAX) == 0
            late = await visitor.send(
                "/console/delays/cancel", subject="t", schedule_id="999999999"
            )
            assert late.status == 404

    serve(check, tmp_path)


def test_a_reset_happens_before_anybody_is_sure(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await send(served, "t", [Sent(b"v") for _ in range(10)])
        async with browser(served) as visitor:
            async with sharing(served, "g", "t", 1) as (member,):
                await member.drain()
                busy = await visitor.send(
                    "/console/group/reset", group="g", subject="t", where="earliest"
                )
                assert (busy.status, "stop its consumers" in busy.text) == (409, True)
                await member.commit()
                await member.leave()
            progress = served.broker.coordinator.groups.by_name["g"].progress
            subject_id = served.broker.log.subjects.by_name["t"].id
            asked = {"group": "g", "subject": "t", "where": "offset", "place": "4"}
            dry = await visitor.send("/console/group/reset", **asked)
            assert "Nothing has changed yet" in dry.text
            assert progress[subject_id].lowest_unacked() == 10
            said = await visitor.send("/console/group/reset", **asked, sure="yes")
            assert "goes on with t at offset 4" in said.text
            assert progress[subject_id].lowest_unacked() == 4
            wrong = await visitor.send(
                "/console/group/reset", group="g", subject="t", where="offset"
            )
            assert wrong.status == 400

    serve(check, tmp_path)


def test_letters_are_moved_before_anybody_is_sure(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.create("u")
        await die(served, "t", "g", [Sent(b"v%d" % n, b"k%d" % n) for n in range(3)])
        subject = served.broker.log.subjects.by_name["t"]
        async with browser(served) as visitor:
            for what in ("redrive", "purge"):
                dry = await visitor.send(f"/console/letters/{what}", subject="t.g.dlq")
                assert "Nothing has changed yet" in dry.text
                assert "3 letters" in dry.text
            assert subject.readable_end == 3
            some = {"subject": "t.g.dlq", "key": "k1"}
            said = await visitor.send("/console/letters/redrive", **some, sure="yes")
            assert "1 dead letter sent back" in said.text
            assert subject.readable_end == 4
            said = await visitor.send(
                "/console/letters/redrive", subject="t.g.dlq", key="k2", to="u", sure="yes"
            )
            assert served.broker.log.subjects.by_name["u"].readable_end == 1
            said = await visitor.send("/console/letters/purge", subject="t.g.dlq", sure="yes")
            assert "1 dead letter purged" in said.text
            assert "No open letter fits" in (await visitor.get("/console/letters")).text
        assert len(letters_in(served, "t.g.dlq")) == 3

    serve(check, tmp_path)


def test_a_reset_goes_elsewhere_than_was_shown(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await send(served, "t", [Sent(b"v") for _ in range(5)])
        async with browser(served) as visitor:
            async with sharing(served, "g", "t", 1) as (member,):
                await member.drain()
                await member.commit()
                await member.leave()
            dry = await visitor.send("/console/group/reset", group="g", subject="t", where="latest")
            assert "to offset 5?" in dry.text
            await send(served, "t", [Sent(b"came meanwhile")])
            said = await visitor.send("/console/group/reset", **hidden(dry))
            assert "goes on with t at offset 5" in said.text

    serve(check, tmp_path)


@pytest.mark.parametrize("what", ["redrive", "purge"])
def test_letters_are_moved_that_died_after_they_were_counted(tmp_path: Path, what: str) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await die(served, "t", "g", [Sent(b"v")])
        async with browser(served) as visitor:
            asked = {"subject": "t.g.dlq", "since": "2h", "until": "0s"}
            dry = await visitor.send(f"/console/letters/{what}", **asked)
            assert "1 letter<" in dry.text
            served.clock.jump(1)
            await die(served, "t", "g", [Sent(b"later")])
            said = await visitor.send(f"/console/letters/{what}", **hidden(dry))
            assert "1 dead letter " in said.text
            left = await visitor.send(f"/console/letters/{what}", subject="t.g.dlq")
            assert "1 letter<" in left.text

    serve(check, tmp_path)


def hidden(page: Page) -> dict[str, str]:
    """What the page's own form sends."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: value for name, value in found if name != "token"}


def test_an_address_can_make_the_console_say_something(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with browser(served) as visitor:
            page = await visitor.get("/?notice=send+me+your+password")
            assert "password" not in page.text

    serve(check, tmp_path)
