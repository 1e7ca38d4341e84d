"""`kumquat trace` and `search`: what the endpoint knows and nobody gets to see; what a message could do
to the terminal.

The tables are tested with answers of a fake endpoint. The last tests ask a real broker, if it has the
routes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.cli.endpoint import ask
from kumquat.gateway.cli.tests.terminal import run
from kumquat.gateway.cli.watch.tests.answers import answering
from kumquat.gateway.cli.watch.trace import distance

if TYPE_CHECKING:
    from kumquat.gateway.testing.broker import TestBroker

T = 1_700_000_000_000
TRACE: dict[str, Any] = {
    "subject": "orders",
    "offset": 17,
    "history": "all",
    "message": {
        "timestamp": T,
        "stored": T + 2,
        "key": {"text": "k\x1b[2J"},
        "headers": [
            {"name": "tenant", "value": {"text": "a"}},
            {"name": "raw", "value": {"base64": "/wA="}},
            {"name": "none", "value": None},
        ],
        "size": 2048,
    },
    "events": [
        {"at": T, "event": "produced", "group": None, "member": None, "text": "by shop"},
        {"at": T + 150, "event": "pulled", "group": "billing", "member": "m1", "text": "given"},
        {"at": T + 61_150, "event": "acked", "group": "billing", "member": "m1", "text": "done"},
    ],
    "groups": [
        {"group": "billing", "state": "acked", "member": None, "since": None, "due": None},
        {"group": "audit", "state": "in flight", "member": "m9", "since": T, "attempt": 2},
    ],
    "letters": [
        {"subject": "orders.x.dlq", "offset": 3, "group": "x", "reason": "attempts"},
    ],
}
MESSAGE = {
    "offset": 5,
    "timestamp": T,
    "key": None,
    "headers": [{"name": "h", "value": {"text": "1"}}],
    "value": {"text": "long", "cut": True, "size": 5000},
    "size": 5000,
}
SEARCH: dict[str, Any] = {
    "messages": [MESSAGE, {**MESSAGE, "offset": 9, "value": {"base64": "/wA="}}],
    "scanned": {"batches": 3, "bytes": 4096, "from": 0, "to": 40},
    "by": "scan",
    "next": 10,
}


def test_a_trace_hides_what_happened() -> None:
    with answering({"/trace": (200, TRACE)}) as fake:
        done = run("trace", "orders", "17", "--admin", fake.url)
        assert fake.asked == [("/trace", {"subject": "orders", "offset": "17"})]
        whole = run("trace", "orders", "17", "--admin", fake.url, "--json").json
    assert whole == TRACE
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.text
    shown = done.text.splitlines()
    assert shown[0] == "orders, offset 17"
    assert "headers:  tenant=a, raw=ff 00, none=-" in shown
    assert "size:     2.0 KiB" in shown
    rows = [line.split() for line in shown]
    pulled = ["2023-11-14T22:13:20.150Z", "150", "ms", "pulled", "billing", "m1", "given"]
    assert pulled in rows
    assert ["2023-11-14T22:14:21.150Z", "1.0", "min", "acked", "billing", "m1", "done"] in rows
    assert ["billing", "acked", "-", "-", "-", "-"] in rows
    assert ["audit", "in", "flight", "m9", "2023-11-14T22:13:20.000Z", "-", "2"] in rows
    assert ["orders.x.dlq", "3", "x", "attempts"] in rows


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"history": "off", "events": []}, "The history of orders is off"),
        ({"history": "sampled"}, "not all that happened is known"),
        ({"events": []}, "The history has nothing on it"),
        ({"message": None}, "The message itself is not there any more"),
        ({"cut": True}, "There may be more"),
    ],
)
def test_a_trace_looks_complete_and_is_not(changed: dict[str, Any], said: str) -> None:
    with answering({"/trace": (200, {**TRACE, **changed})}) as fake:
        assert said in run("trace", "orders", "--key", "k", "--admin", fake.url).text


def test_a_message_for_later_has_no_trace() -> None:
    answer = {
        "subject": "orders",
        "delay_id": "i",
        "schedule_id": None,
        "history": "all",
        "delay": {"state": "pending", "due": T, "schedule_id": 5},
        "events": [{"at": T, "event": "scheduled", "text": "for later"}],
    }
    with answering({"/trace": (200, answer)}) as fake:
        shown = run("trace", "orders", "--delay-id", "i", "--admin", fake.url).text.splitlines()
        assert fake.asked == [("/trace", {"subject": "orders", "id": "i"})]
    assert shown[:2] == [
        "orders, message for later i",
        "It is pending, due 2023-11-14T22:13:20.000Z.",
    ]


def test_a_search_hides_where_it_goes_on() -> None:
    with answering({"/search": (200, SEARCH)}) as fake:
        query = ("--key", "k", "--since", "2h", "--limit", "2")
        done = run("search", "orders", *query, "--admin", fake.url)
        asked = {"subject": "orders", "key": "k", "since": "2h", "limit": "2"}
        assert fake.asked == [("/search", asked)]
    head, first, second, scanned, more = done.text.splitlines()
    assert head.split() == ["OFFSET", "TIME", "KEY", "HEADERS", "SIZE", "VALUE"]
    assert first.endswith("long… (5,000 bytes)")
    assert second.endswith("ff 00")
    assert scanned == "Found by reading: 3 batches, 4.0 KiB, offsets 0 to 40."
    assert more == "There are more: --after 10"


def test_a_search_ends_in_the_middle() -> None:
    parts = [
        (200, SEARCH),
        (200, {**SEARCH, "messages": [], "next": 20}),
        (200, {**SEARCH, "next": None}),
    ]
    with answering({"/search": list(parts)}) as fake:
        done = run("search", "orders", "--text", "x", "--all", "--json", "--admin", fake.url)
        assert [values.get("after") for _, values in fake.asked] == [None, "10", "20"]
    assert [json.loads(line)["offset"] for line in done.out.splitlines()] == [5, 9, 5, 9]
    with answering({"/search": list(parts)}) as fake:
        done = run("search", "orders", "--text", "x", "--all", "--admin", fake.url)
        assert done.text.count("OFFSET") == 2
    nothing = {**SEARCH, "messages": [], "next": None}
    damaged = {**nothing, "unreadable": [{"from": 3, "to": 9, "why": "damaged"}]}
    with answering({"/search": (200, damaged)}) as fake:
        done = run("search", "orders", "--key", "k", "--order", "oldest", "--admin", fake.url)
        assert "Offsets 3 to 9 could not be read: damaged" in done.text
    with answering({"/search": (200, nothing)}) as fake:
        done = run("search", "orders", "--header", "a=b", "--admin", fake.url)
        assert done.text.startswith("There are no such messages.\n")


def test_an_error_is_not_one_line() -> None:
    refused = 404, {"error": "UNKNOWN_TOPIC_OR_PARTITION", "message": "there is no subject 'o'"}
    with answering({"/trace": refused, "/search": refused}) as fake:
        assert "there is no subject 'o'" in run("trace", "o", "1", "--admin", fake.url).refused
        command = ("search", "o", "--key", "k", "--all", "--admin", fake.url)
        assert "there is no subject 'o'" in run(*command).refused
    with answering({}) as fake:
        said = run("trace", "o", "1", "--admin", fake.url).wrong
        assert "has no /trace: it is of an older version; kumquat doctor says which" in said
    which = "say which message: OFFSET, --key, --header or --delay-id"
    assert which in run("trace", "orders").wrong
    assert which in run("trace", "orders", "1", "--key", "k").wrong
    assert "say what to search for" in run("search", "orders", "--since", "2h").wrong


def test_a_distance_is_in_the_wrong_unit() -> None:
    shown = [distance(ms) for ms in (0, 999, 1500, 90_000, 7_200_000, 172_800_000)]
    assert shown == ["0 ms", "999 ms", "1.5 s", "1.5 min", "2.0 h", "2.0 d"]


def _has(running: TestBroker, path: str) -> bool:
    status, answer = ask(running.admin, "GET", path, {})
    return not (status == 404 and answer["message"].startswith(f"there is no {path}"))


def test_a_real_trace_cannot_be_shown(running: TestBroker, topic: str) -> None:
    if not _has(running, "/trace"):
        pytest.skip("this broker has no /trace")
    at = ("--bootstrap", running.bootstrap)
    assert run("produce", topic, "-K:", *at, stdin=b"k1:one\nk2:two\n").code == 0
    assert run("consume", topic, "-e", "-g", topic, *at).code == 0
    admin = ("--admin", running.admin)
    shown = run("trace", topic, "1", *admin)
    assert (shown.code, shown.err) == (0, "")
    assert f"{topic}, offset 1" in shown.text
    assert "key:      k2" in shown.text
    (group,) = run("trace", topic, "--key", "k2", "--json", *admin).json["groups"]
    assert group["group"] == topic
    assert "nowhere" in run("trace", "nowhere", "1", *admin).refused


def test_a_real_search_cannot_be_shown(running: TestBroker, topic: str) -> None:
    if not _has(running, "/search"):
        pytest.skip("this broker has no /search")
    at = ("--bootstrap", running.bootstrap)
    assert run("produce", topic, "-K:", "-H", "h=1", *at, stdin=b"k1:one\nk2:two\n").code == 0
    admin = ("--admin", running.admin)
    for query in (("--key", "k2"), ("--text", "two")):
        (message,) = run("search", topic, *query, "--json", *admin).json["messages"]
        assert (message["offset"], message["key"]) == (1, {"text": "k2"})
        assert "two" in run("search", topic, *query, *admin).text
    found = run("search", topic, "--header", "h=1", "--limit", "1", "--all", "--json", *admin)
    assert sorted(json.loads(line)["offset"] for line in found.out.splitlines()) == [0, 1]
    assert "nowhere" in run("search", "nowhere", "--key", "k", *admin).refused
