"""Patterns of topic names: as `re` matches them where both know them, and never slow."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.gateway.groups.assignment.pattern import Pattern
from kumquat.gateway.groups.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    TraceFunction = Callable[[FrameType, str, Any], Any]

PATTERNS = [
    "orders", "orders.*", r"orders\.(eu|us)\.[a-z]+", "a{2,3}b?", "(?i)AbC", "[^a]b", "x*y+z?", "",
    "^a.*z$", "a|^b|c$", "(a|b)*c", "[a-c_.-]+", r"\d+", r"\w{3}", "(?:ab)+", "(?P<n>a)b",
    "a{,2}", "a{2,}", "[]a]b",
    r"\Aab\z", "(a*)*", "a??b", "a$b", "(|a)b", "[A-Z0-9-]+",
]  # fmt: skip


@pytest.mark.parametrize("text", PATTERNS)
@settings(max_examples=40, deadline=None)
@given(name=st.text("abcxyzAB019._-", max_size=8))
def test_a_pattern_means_what_it_means_elsewhere(text: str, name: str) -> None:
    theirs = text.replace(r"\z", r"\Z").replace("a{,2}", r"a\{,2\}")
    assert Pattern(text).matches(name) == bool(re.fullmatch(theirs, name)), (text, name)


@pytest.mark.parametrize(
    "text",
    ["(", ")", "[a", "a{3,2}", "*a", "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", r"\p{L}", r"\b", "a{1001}",
     "(?P<n", "[[:nope:]]", "[z-a]", "\\", "(" * 500, "(?#x)", "x" * 20_000, "((a{900}){900})"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Pattern(text)


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|aa)+b", "(a*)*b", "a?" * 30 + "a" * 30, "(.*a){12}b"]
)
def test_no_pattern_takes_long(text: str) -> None:
    """Measured in lines of code that are run, since time is the machine's."""
    steps = 0

    def count(*_: object) -> TraceFunction:
        nonlocal steps
        steps += 1
        assert steps < 100_000
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        Pattern(text).matches("a" * 249)
    finally:
        sys.settrace(before)
    assert steps > 1000, "they were counted"


def test_posix_classes_are_known() -> None:
    assert Pattern("[[:alpha:]]+[[:^alpha:]]").matches("abc1")
    assert not Pattern("[[:digit:]]").matches("a")
