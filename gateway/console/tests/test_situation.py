"""What the broker knows of a group does not reach the page that says why it stands still.

The same situations are staged with real clients and a browser in compat_tests/console/test_diagnosis.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kumquat.gateway.admin.tests.dead import Sent, send
from kumquat.gateway.console.tests.browser import browser
from kumquat.gateway.groups.failures import Failure
from kumquat.gateway.tests.harness import serve
from kumquat.gateway.tests.members import SESSION_MS, sharing

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.console.tests.browser import Browser
    from kumquat.gateway.tests.harness import Served
    from kumquat.gateway.tests.members import Member

GROUP = "/console/group?name=g"


async def causes(visitor: Browser) -> dict[str, str]:
    """As the page of the group names them."""
    text = (await visitor.get(GROUP)).text
    found = re.findall(r'data-cause="([^"]+)">(.*?)</article>', text, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]+>", "", rest).split()) for name, rest in found}


async def wait(served: Served, member: Member, seconds: int) -> None:
    """Time passes for a member that sends its heartbeats."""
    for _ in range(seconds):
        served.clock.jump(1.0)
        await member.heartbeat()


def test_a_member_that_asks_for_nothing_is_taken_for_one_that_does(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await send(served, "t", [Sent(b"v") for _ in range(9)])
        async with sharing(served, "g", "t", 1) as (member,), browser(served) as visitor:
            await member.drain()
            assert await causes(visitor) == {}
            await wait(served, member, 12)
            (text,) = (await causes(visitor)).values()
            assert text.startswith("Paused member in t")
            assert "holds 9 messages" in text
            assert member.id in text
            assert "Paused member" in (await visitor.get("/")).text
            await member.fetch()
            (text,) = (await causes(visitor)).values()
            assert text.startswith("Missing commit in t")
            await member.drain()
            await member.commit()
            assert await causes(visitor) == {}

    serve(check, tmp_path)


def test_a_member_without_heartbeats_is_taken_for_a_paused_one(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await send(served, "t", [Sent(b"v") for _ in range(9)])
        async with sharing(served, "g", "t", 1) as (member,), browser(served) as visitor:
            await member.drain()
            await wait(served, member, 5)
            served.clock.jump(6.0)
            (text,) = (await causes(visitor)).values()
            assert text.startswith("Stopped consumer in t")
            for _ in range(2 * SESSION_MS // 1000):  # a long jump is no silence of the member
                served.clock.jump(0.9)
                await served.settled()
            found = await causes(visitor)
            assert "no consumer" in found

    serve(check, tmp_path)


def test_the_reason_of_a_failure_is_not_told(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await send(served, "t", [Sent(b"v") for _ in range(3)])
        async with sharing(served, "g", "t", 1) as (member,), browser(served) as visitor:
            records = await member.drain()
            coordinator = served.broker.coordinator
            failure = Failure("g", "t", records[1].offset, after_ms=600_000, reason="no <money>")
            assert await coordinator.fail([failure]) == [None]
            await member.commit()
            (text,) = (await causes(visitor)).values()
            assert "message 1 of t failed once" in text
            assert "“no &lt;money&gt;”" in text
            assert "its next attempt is at" in text
            for number in range(1500):
                coordinator._note(Failure(f"g-{number}", "t", 0))
            assert len(coordinator.last_failures) == 1000

    serve(check, tmp_path)
