"""A format that writes other bytes than the record has, or that hides a mistake."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.gateway.cli.records.format import ENCODINGS, Format, as_json, unescape, visible
from kumquat.gateway.cli.records.lines import Cutter, Lines, Sent
from kumquat.gateway.cli.records.start import Start, read_start

if TYPE_CHECKING:
    from kumquat.gateway.cli.records.lines import Headers

HEADERS = [("a", b"1"), ("b", None), ("a", b"\xff")]
NOW = 1_700_000_000_000


def record(value: bytes | None = b"v", key: bytes | None = b"k", **rest: Any) -> Any:
    fields = {"topic": "t", "partition": 0, "offset": 7, "timestamp": 99, "headers": HEADERS}
    return SimpleNamespace(value=value, key=key, **{**fields, **rest})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%s\\n", b"v\n"),
        ("%k\\t%s", b"k\tv"),
        ("%t[%p] %o %T", b"t[0] 7 99"),
        ("%S %K", b"1 1"),
        ("%h", b"a=1,b=,a=\xff"),
        ("100%% \\x41\\\\n\\0", b"100% A\\n\0"),
        ("", b""),
        ("ö%s", "öv".encode()),
    ],
)
def test_a_token_gives_something_else(text: str, line: bytes) -> None:
    assert Format(text).line(record()) == line


def test_null_looks_like_an_empty_value() -> None:
    assert Format("%S %K %s.").line(record(None, None)) == b"-1 -1 ."
    assert Format("%s %k", null=b"NULL").line(record(None, None)) == b"NULL NULL"
    assert Format("%S %s", null=b"NULL").line(record(b"")) == b"0 "


@pytest.mark.parametrize("text", ["%", "%z", "\\q", "\\x4", "\\xzz", "a\\"])
def test_a_token_that_is_not_known_is_written_as_it_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"not known|hexadecimal"):
        Format(text)


def test_bytes_are_shown_in_another_encoding() -> None:
    assert Format("%s", ENCODINGS["hex"]).line(record(b"\xff\0")) == b"ff00"
    assert Format("%s", ENCODINGS["base64"]).line(record(b"\xff\0")) == b"/wA="


def test_a_value_moves_the_cursor_of_a_terminal() -> None:
    assert visible(b"a\x1b[2J\tb\r\n\xff") == "a\ufffd[2J\tb\ufffd\n\ufffd".encode()


@given(st.binary() | st.none(), st.binary() | st.none(), st.text())
def test_what_json_writes_is_read_as_another_record(
    value: bytes | None, key: bytes | None, text: str
) -> None:
    name = text.encode(errors="replace").decode() or "n"
    line = as_json(record(value, key, headers=[(name, value), ("x", None)]))
    assert Lines().json_record(line) == Sent(value, key, [(name, value), ("x", None)])


@given(st.binary(), st.lists(st.integers(1, 10)), st.sampled_from([b"\n", b"ab", b"\0"]))
def test_a_record_is_cut_by_how_it_arrives(data: bytes, sizes: list[int], end: bytes) -> None:
    expected = data.split(end)
    if not expected[-1]:
        expected.pop()
    cutter = Cutter(end)
    pieces: list[bytes] = []
    for size in sizes:
        pieces += cutter.feed(data[:size])
        data = data[size:]
    assert pieces + cutter.feed(data) + cutter.end() == expected


def test_a_line_that_was_given_is_dropped() -> None:
    cutter = Cutter(b"\n")
    assert cutter.feed(b"a\n\nb") + cutter.end() == [b"a", b"", b"b"]
    assert cutter.feed(b"a\n") + cutter.end() == [b"a"]
    assert cutter.end() == []


def test_a_key_is_cut_off_at_another_place() -> None:
    lines = Lines(key_delimiter=b"::")
    assert lines.record(b"k::v::w") == Sent(b"v::w", b"k")
    assert lines.record(b"none") == Sent(b"none", None)
    assert Lines(b":", b"fixed").record(b"v") == Sent(b"v", b"fixed")
    assert Lines(b":", empty_is_null=True).record(b"k:") == Sent(None, b"k")
    assert Lines(b":", empty_is_null=True).record(b":v") == Sent(b"v", None)
    assert Lines(b":").record(b"k:") == Sent(b"", b"k")


def test_a_line_of_json_becomes_another_record() -> None:
    line = {"key": None, "value": {"n": [1, "ä"]}, "headers": {"h": "1"}, "delay": "10m"}
    found = Lines(key=b"k", headers=[("x", b"y")]).json_record(json.dumps(line).encode())
    headers: Headers = [("x", b"y"), ("h", b"1"), ("qmq-delay-ms", b"10m")]
    assert found == Sent('{"n":[1,"ä"]}'.encode(), None, headers)
    given = b'{"value": {"base64": "/w=="}, "at": 5, "delay_id": "i", "offset": 3}'
    asked: Headers = [("qmq-deliver-at", b"5"), ("qmq-delay-id", b"i")]
    assert Lines(key=b"k").json_record(given) == Sent(b"\xff", b"k", asked)
    assert Lines().json_record(b'{"value": 5}') == Sent(b"5")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"x", "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"{}", 'it has no "value"'),
        (b'{"value": "v", "dealy": "1h"}', "'dealy' is not known; there are at, delay"),
        (b'{"value": {"base64": "*"}}', "base64|Only"),
        (b'{"value": "v", "key": 5}', "key must be a string"),
        (b'{"value": "v", "headers": 5}', "headers must be an object"),
    ],
)
def test_a_wrong_line_of_json_is_sent(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Lines().json_record(line)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", 10),
        ("earliest", 10),
        ("end", 50),
        ("latest", 50),
        ("20", 20),
        ("0", 10),
        ("-5", 45),
        ("-500", 10),
        ("@1h", 33),
        ("s@2023-01-01", 33),
    ],
)
def test_it_begins_somewhere_else(text: str, place: int) -> None:
    assert read_start(text, NOW).place(10, 50, lambda time: 33) == place


def test_a_time_after_the_last_message_begins_at_the_first() -> None:
    assert read_start("@0s", NOW).place(10, 50, lambda time: None) == 50
    assert read_start("@1h", NOW) == Start(time=NOW - 3_600_000)


@pytest.mark.parametrize("text", ["", "x", "1.5", "@", "@soon", "--5", "-0", "٣x"])
def test_a_wrong_beginning_is_taken_for_another(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_start(text, NOW)


def test_a_delimiter_is_taken_literally() -> None:
    assert unescape("\\t\\x00\\n:") == b"\t\0\n:"


def test_the_name_of_a_header_or_a_line_of_json_controls_the_terminal() -> None:
    hostile = "a\x1b[2J\x9b31m\u202eb"
    found = record(hostile.encode(), headers=[(hostile, b"1")])
    shown = Format("%h %s", visible).line(found).decode()
    assert all(character.isprintable() for character in shown)
    line = as_json(found).decode()
    assert all(character.isprintable() for character in line.rstrip("\n"))
    assert json.loads(line)["value"] == hostile
    assert Format("%h").line(found) == hostile.encode() + b"=1"
