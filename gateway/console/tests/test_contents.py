"""Bytes that are shown as something else, or that do something to the page."""

from __future__ import annotations

import json

import pytest

from kumquat.gateway.console.contents import HEX, JSON, MOST, TEXT, brief, dump, show
from kumquat.gateway.console.render import duration, number, size, when


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b'{"b": [1, 2], "a": null}', JSON),
        (b"[1]", JSON),
        (b"{not json}", TEXT),
        (b"17", TEXT),
        (b"", TEXT),
        ("ä€😀".encode(), TEXT),
        (b"\xff\xfe", HEX),
        (b"[" * 200_000, TEXT),
        (b"[" * 60_000, TEXT),
    ],
)
def test_a_value_is_shown_in_a_form_that_does_not_fit(data: bytes, form: str) -> None:
    shown = show(data)
    assert shown.form == form
    assert shown.size == len(data)
    if form == JSON:
        assert json.loads(shown.text) == json.loads(data)
    if form == TEXT and not shown.cut:
        assert shown.text == data.decode()


def test_a_long_value_is_shown_whole_or_breaks_a_character() -> None:
    shown = show("€".encode() * MOST)
    assert shown.cut
    assert set(shown.text) == {"€"}
    assert show(b"\xff" * (MOST + 1), HEX).cut


def test_a_small_value_becomes_a_page_of_sixty_megabytes() -> None:
    """Nested 900 times, with each of its numbers on a line of its own."""
    data = b"[" * 900 + b"1," * 30_000 + b"1" + b"]" * 900
    shown = show(data)
    assert (shown.form, shown.text) == (TEXT, data.decode())
    assert show(b'{"a":{"b":{"c":[1,[2,[3]]]}}}').form == JSON


def test_a_form_that_is_asked_for_is_not_given() -> None:
    assert show(b'{"a":1}', TEXT).text == '{"a":1}'
    assert show(b"\xff", TEXT).text == "\ufffd"
    assert show(b"A\x00\xff", HEX).text.split() == ["00000000", "41", "00", "ff", "A.."]
    assert show(b"plain", JSON).form == TEXT
    assert dump(bytes(40)).count("\n") == 2


def test_control_characters_reach_the_page() -> None:
    text = show("a\x1b[31m\x00\u202egnp.exe".encode()).text
    assert text == "a␛[31m␀\\u202egnp.exe"
    assert brief(b"a\nb\tc\x07") == "a b c␇"


def test_a_line_of_a_list_is_long_or_wrong() -> None:
    assert brief(None) is None
    assert brief(b"") == ""
    assert len(brief(b"x" * 10_000) or "") < 200
    assert (brief(b"\xff" * 10_000) or "").startswith("0x ff ff")
    assert (brief("€".encode() * 1000) or "").startswith("€€€")


def test_numbers_sizes_and_times_are_shown_wrong() -> None:
    assert (number(1234567), number(None)) == ("1,234,567", "\u2013")
    assert [size(n) for n in (0, 1023, 1536, 5 << 30)] == [
        "0 bytes",
        "1,023 bytes",
        "1.5 KiB",
        "5.0 GiB",
    ]
    assert [duration(ms) for ms in (0, 999, 61_000, 3_600_000, 90_000_000)] == [
        *("0 ms", "999 ms", "1 min 1 s", "1 h", "1 d 1 h")
    ]
    assert 'datetime="2023-11-14T22:13:20.123Z"' in when(1_700_000_000_123)
    assert "time" not in when(None)
    assert str(10**18) in when(10**18)
