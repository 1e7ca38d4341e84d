"""A page of some other site that reads the console, or makes it do something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.console.app import ACTIONS, PAGES, TYPES
from kumquat.gateway.console.forms import MAX_FORM
from kumquat.gateway.console.security import Forbidden, Tokens, check_origin
from kumquat.gateway.console.tests.browser import browser
from kumquat.gateway.tests.harness import serve

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.tests.harness import Served

POLICY = "content-security-policy"
FIELDS = {"subject": "t", "value": "hello"}


def test_a_form_without_a_token_or_with_a_foreign_one_changes_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with browser(served) as visitor, browser(served) as other:
            await visitor.get("/")
            foreign = (await other.get("/console/produce?subject=t")).token
            for action in ACTIONS:
                for token in (
                    {},
                    {"token": ""},
                    {"token": "0" * 64},
                    {"token": "ä"},
                    {"token": foreign},
                ):
                    answer = await visitor.post(action, {**FIELDS, **token})
                    assert answer.status == 403
                    assert "load the page again" in answer.text
        assert served.broker.log.subjects.by_name["t"].next_sequence == 0

    serve(check, tmp_path)


def test_a_token_without_its_cookie_changes_nothing(tmp_path: Path) -> None:
    """That is what a form of another site is: SameSite=Strict keeps the cookie back."""

    async def check(served: Served) -> None:
        await served.create("t")
        async with browser(served) as visitor:
            token = (await visitor.get("/console/produce?subject=t")).token
            assert (
                "SameSite=Strict" in (await visitor.get("/", cookie="none=1")).headers["set-cookie"]
            )
            answer = await visitor.post(
                "/console/produce", {**FIELDS, "token": token}, cookie="other=1"
            )
            assert answer.status == 403
        assert served.broker.log.subjects.by_name["t"].next_sequence == 0

    serve(check, tmp_path)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_form_from_another_origin_changes_nothing(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with browser(served) as visitor:
            token = (await visitor.get("/console/produce?subject=t")).token
            answer = await visitor.post("/console/produce", {**FIELDS, "token": token}, **headers)
            assert answer.status == 403
            own = await visitor.post(
                "/console/produce", {**FIELDS, "token": token}, origin=visitor.origin
            )
            assert own.status == 303
        assert served.broker.log.subjects.by_name["t"].next_sequence == 1

    serve(check, tmp_path)


def test_every_answer_forbids_what_is_inline_foreign_or_framed(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with browser(served) as visitor:
            targets = [*PAGES, *(f"/static/{name}" for name in TYPES)]
            for target in targets:
                page = await visitor.get(target)
                policy = page.headers[POLICY]
                assert "unsafe" not in policy
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert page.headers["x-content-type-options"] == "nosniff"
                assert " style=" not in page.text
                assert " onclick=" not in page.text
                assert "<script>" not in page.text
                assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "")

    serve(check, tmp_path)


def test_a_foreign_name_that_resolves_to_this_machine_reads_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with browser(served) as visitor:
            for target in ("/", "/static/console.js"):
                page = await visitor.get(target, host="evil.example:9093")
                assert page.status == 403

    serve(check, tmp_path)


def test_a_form_that_is_too_large_or_no_form_is_refused(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with browser(served) as visitor:
            token = (await visitor.get("/console/produce?subject=t")).token
            full = {"token": token, "subject": "t"}
            large = await visitor.post("/console/produce", {**full, "value": "x" * MAX_FORM})
            assert large.status == 413
            json = await visitor.post("/console/produce", full, content_type="application/json")
            assert json.status == 415
            many = {f"f{number}": "x" for number in range(100)}
            assert (await visitor.post("/console/produce", {**full, **many})).status == 400
            rest = await visitor.get("/console/messages?subject=t&offset=minus")
            assert rest.status == 400
        assert served.broker.log.subjects.by_name["t"].next_sequence == 0

    serve(check, tmp_path)


def test_tokens_of_two_processes_or_two_browsers_are_the_same() -> None:
    tokens, others = Tokens(), Tokens()
    one, two = tokens.new_cookie(), tokens.new_cookie()
    assert len({tokens.of(one), tokens.of(two), others.of(one)}) == 3
    tokens.check(one, tokens.of(one))
    for cookie, token in ((one, tokens.of(two)), (one, others.of(one)), (None, tokens.of(one))):
        with pytest.raises(Forbidden):
            tokens.check(cookie, token)


def test_an_origin_with_another_port_is_the_same() -> None:
    check_origin({"host": "127.0.0.1:9093", "origin": "http://127.0.0.1:9093"})
    check_origin({"host": "127.0.0.1:9093"})
    with pytest.raises(Forbidden):
        check_origin({"host": "127.0.0.1:9093", "origin": "http://127.0.0.1:9094"})
