"""What /delay/… passes on wrongly, leaves out, or shows so that nobody can read it."""

from __future__ import annotations

from typing import Any

import pytest

from kumquat.core.errors import InvalidRecord
from kumquat.gateway.admin.delay import MAX_KEY, MAX_LIMIT
from kumquat.gateway.admin.tests.endpoint import EPOCH, SUBJECTS, Endpoint, pending, serve_admin
from kumquat.meta.values import LONG_MAX

ORDERS = SUBJECTS["orders"]


def test_count_passes_on_subject_and_times() -> None:
    async def check(endpoint: Endpoint) -> None:
        assert await endpoint.get("/delay/count") == (200, {"count": 5})
        assert await endpoint.get(f"/delay/count?subject=orders&to={EPOCH + 3000}") == (
            200,
            {"count": 2},
        )
        assert await endpoint.get("/delay/count?subject=other") == (200, {"count": 0})
        target = "/delay/count?from=2023-11-14T22:13:23Z&to=2023-11-14T23:13:25%2B01:00"
        assert await endpoint.get(target) == (200, {"count": 2})
        assert endpoint.delay.calls == [
            ("count", None, 0, LONG_MAX),
            ("count", ORDERS, 0, EPOCH + 3000),
            ("count", SUBJECTS["other"], 0, LONG_MAX),
            ("count", None, EPOCH + 3000, EPOCH + 5000),
        ]

    serve_admin(check)


def test_pages_of_a_list_give_everything_once() -> None:
    async def check(endpoint: Endpoint) -> None:
        found: list[dict[str, Any]] = []
        target = "/delay/list?subject=orders&limit=2"
        after = ""
        for _ in range(3):
            status, answer = await endpoint.get(target + after)
            assert status == 200
            found += answer["items"]
            after = f"&after={answer['next']}"
        assert after == "&after=None"
        assert [item["schedule_id"] for item in found] == [100, 200, 300, 400, 500]
        assert found[1] == {
            "subject": "orders",
            "schedule_id": 200,
            "id": "id-2",
            "due": EPOCH + 2000,
            "created": EPOCH,
            "key": "key",
            "size": 42,
        }
        assert found[0]["id"] is None

    serve_admin(check)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (None, {"key": None}),
        (b"", {"key": ""}),
        ("grün".encode(), {"key": "grün"}),
        (b"\xff\x00", {"key": "/wA=", "key_encoding": "base64"}),
        (b"a" * 5000, {"key": "a" * MAX_KEY}),
    ],
)
def test_any_key_can_be_shown(key: bytes | None, shown: dict[str, object]) -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.items = [pending(1, key)]
        _, answer = await endpoint.get("/delay/list")
        (item,) = answer["items"]
        assert {name: item[name] for name in item if name.startswith("key")} == shown

    serve_admin(check)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("count?subject=", "subject must be a text that is not empty"),
        (
            "count?from=yesterday",
            "from must be a time (ISO 8601, milliseconds since 1970, or a duration",
        ),
        ("count?from=-1", "from must be a time"),
        ("count?from=1969-12-31", "from must be a time"),
        ("count?from=99999999999999999999", "from must be a time"),
        ("list?limit=0", f"limit must be a whole number from 1 to {MAX_LIMIT}"),
        (f"list?limit={MAX_LIMIT + 1}", f"limit must be a whole number from 1 to {MAX_LIMIT}"),
        ("list?limit=ten", "limit must be"),
        ("list?limit=%C2%B2", "limit must be"),
        ("list?after=x", "after must be what an earlier list gave, not 'x'"),
        ("list?after=1-2-3", "after must be"),
        ("show?id=a", "subject is missing"),
        ("show?subject=orders", "id is missing"),
    ],
)
def test_a_bad_argument_is_named_with_what_is_allowed(target: str, said: str) -> None:
    async def check(endpoint: Endpoint) -> None:
        status, answer = await endpoint.get(f"/delay/{target}")
        assert (status, answer["error"]) == (400, "INVALID_ARGUMENT")
        assert said in answer["message"]
        assert endpoint.delay.calls == []

    serve_admin(check)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"subject": "orders"}, "give either id or schedule_id"),
        ({"subject": "orders", "id": "a", "schedule_id": 1}, "give either id or schedule_id"),
        ({"subject": "orders", "id": 5}, "id must be a text"),
        ({"subject": "orders", "schedule_id": True}, "schedule_id must be a whole number"),
        ({"subject": "orders", "schedule_id": 1.5}, "schedule_id must be a whole number"),
        ({"subject": "orders", "schedule_id": -1}, "schedule_id must be a whole number"),
        ({"subject": ["orders"], "schedule_id": 1}, "subject must be a text"),
        ({"subject": "orders", "schedule_id": 1}, "due is missing"),
        ({"subject": "orders", "schedule_id": 1, "due": "soon"}, "due must be a time"),
        ({"subject": "orders", "schedule_id": 1, "due": 2027}, "due must be a time"),
        ({"subject": "orders", "schedule_id": 1, "due": EPOCH // 1000}, "due must be a time"),
        ({"subject": "orders", "schedule_id": 1, "due": -1}, "due must be a time"),
        ({"subject": "orders", "schedule_id": 1, "due": 1.7e12}, "due must be a time"),
        ({"subject": "orders", "schedule_id": 1, "due": True}, "due must be a time"),
        ({"subject": "orders", "schedule_id": 1, "due": 2**63}, "due must be a time"),
        ({"subject": "orders", "schedule_id": 1, "due": {}}, "due must be a time"),
    ],
)
def test_a_bad_value_in_a_body_is_named_and_nothing_is_moved(
    values: dict[str, object], said: str
) -> None:
    async def check(endpoint: Endpoint) -> None:
        status, answer = await endpoint.post("/delay/move", **values)
        assert (status, answer["error"]) == (400, "INVALID_ARGUMENT")
        assert said in answer["message"]
        assert endpoint.delay.calls == []

    serve_admin(check)


def test_an_unknown_subject_is_said_to_be_unknown() -> None:
    async def check(endpoint: Endpoint) -> None:
        for status, answer in (
            await endpoint.get("/delay/count?subject=nowhere"),
            await endpoint.get("/delay/show?subject=nowhere&id=a"),
            await endpoint.post("/delay/cancel", subject="nowhere", id="a"),
        ):
            assert (status, answer["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
            assert answer["message"] == "there is no subject 'nowhere'"
        assert endpoint.delay.calls == []

    serve_admin(check)


def test_what_became_of_a_message_is_in_status_and_answer() -> None:
    async def check(endpoint: Endpoint) -> None:
        status, answer = await endpoint.get("/delay/show?subject=orders&id=id-2")
        assert (status, answer["status"], answer["due"]) == (200, "pending", EPOCH + 2000)
        status, answer = await endpoint.post("/delay/cancel", subject="orders", id="id-2")
        assert (status, answer["status"], answer["schedule_id"]) == (200, "cancelled", 200)
        status, answer = await endpoint.post("/delay/cancel", subject="orders", schedule_id=300)
        assert (status, answer["status"], answer["schedule_id"]) == (200, "cancelled", 300)
        due = "2023-11-14T22:13:29Z"
        status, answer = await endpoint.post(
            "/delay/move", subject="orders", schedule_id="400", due=due
        )
        assert (status, answer["status"]) == (200, "moved")
        assert endpoint.delay.calls[-1] == ("move", ORDERS, None, 400, EPOCH + 9000)

    serve_admin(check)


def test_what_is_in_a_message_is_shown_when_it_is_asked_for() -> None:
    async def check(endpoint: Endpoint) -> None:
        target = "/delay/show?subject=orders&id=id-2"
        base = {"subject": "orders", "status": "pending", "schedule_id": 200, "due": EPOCH + 2000}
        assert await endpoint.get(target) == (200, base)
        assert await endpoint.get(target + "&value=false") == (200, base)
        content = {"created": EPOCH, "key": None, "value": "/w==", "value_encoding": "base64"}
        assert await endpoint.get(target + "&value=true") == (200, base | content)
        status, answer = await endpoint.get(target + "&value=yes")
        assert (status, answer["message"]) == (400, "value must be true or false")

    serve_admin(check)


def test_too_late_and_never_heard_of_are_no_success() -> None:
    async def check(endpoint: Endpoint) -> None:
        status, answer = await endpoint.post("/delay/cancel", subject="orders", id="late")
        assert (status, answer["status"]) == (409, "delivered")
        status, answer = await endpoint.post("/delay/move", subject="orders", id="late", due=EPOCH)
        assert (status, answer["status"]) == (409, "delivered")
        status, answer = await endpoint.post("/delay/cancel", subject="orders", schedule_id=12345)
        assert (status, answer["status"]) == (404, "unknown")
        status, answer = await endpoint.get("/delay/show?subject=orders&id=late")
        assert (status, answer["status"]) == (200, "delivered")
        status, answer = await endpoint.get("/delay/show?subject=orders&id=nobody")
        assert (status, answer["status"]) == (404, "unknown")

    serve_admin(check)


def test_a_refusal_of_the_service_is_passed_on() -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.error = InvalidRecord("due is beyond delay.max.ms")
        status, answer = await endpoint.post(
            "/delay/move", subject="orders", schedule_id=1, due=10**18
        )
        assert (status, answer["error"]) == (400, "INVALID_RECORD")
        assert answer["message"] == "due is beyond delay.max.ms"

    serve_admin(check)
