"""Patterns of topic names: as `re` matches them where both know them, as RE2/J accepts them, never slow."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.logs.messages.subject import SubjectConfig, Subjects
from kumquat.gateway.groups.assignment.pattern import MAX_MEMORY, Pattern, Patterns
from kumquat.gateway.groups.errors import InvalidRegularExpression

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


REFUSED = [
    "(", ")", "[a", "a{3,2}", "*a", "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "a{1001}", "a**", "(?P<n",
    "[[:nope:]]", "[z-a]", "\\", "(" * 500, "(?#x)", "(?x)a", r"\Z", "x" * 20_000, "((a{900}){900})",
    "(.{1,31}){31}", r"(\pL{1,30}){30}",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression, match=r"the topic pattern .* cannot be used: "):
        Pattern(text)


def test_a_refusal_says_what_is_wrong_and_what_to_write() -> None:
    with pytest.raises(InvalidRegularExpression) as refused:
        Pattern("orders(?!-old).*")
    assert str(refused.value) == (
        "the topic pattern 'orders(?!-old).*' cannot be used: invalid perl operator: (?! (it has to be "
        "RE2 syntax: no look-around, no back-references)"
    )
    with pytest.raises(InvalidRegularExpression) as refused:
        Pattern("(" * 3_000)
    assert len(str(refused.value)) < 500


# What the documentation of RE2 and RE2/J says of both, and `re` does not know or means otherwise.
SHARED_WITH_RE2J = [
    ("[[:alpha:]]+[[:^alpha:]]", "abc1", True),
    ("[[:digit:]]", "a", False),
    (r"\pL+", "abc", True),
    (r"\p{Lu}.*", "abc", False),
    (r"\Qa.b\E.*", "a.b.c", True),
    (r"\Qa.b\E.*", "axb", False),
    (r"orders\b.*", "orders-1", True),
    (r"orders\b.*", "orders1", False),
    ("(?i:ORDERS)-eu", "orders-eu", True),
    ("(?i:ORDERS)-eu", "orders-EU", False),
    (r"\x{61}\x62", "ab", True),
    ("a{,2}", "a{,2}", True),
    ("(?U)a+", "aaa", True),
    ("заказы|orders", "orders", True),
    ("orders", "orders-1", False),
    ("orders|orders-1", "orders-1", True),
]


@pytest.mark.parametrize(("text", "name", "expected"), SHARED_WITH_RE2J)
def test_a_pattern_means_what_it_means_to_kafka(text: str, name: str, expected: bool) -> None:
    assert Pattern(text).matches(name) == expected


@pytest.mark.parametrize(
    "text",
    ["(a+)+b", "(a|aa)+b", "(a*)*b", "a?" * 30 + "a" * 30, "(.*a){12}b", "(.*a.*b){100}c",
     ".*a.{200}c|.*b.{199}d", "(.?a?){100}(.?b?){100}c"],
)  # fmt: skip
def test_no_pattern_takes_long(text: str) -> None:
    """In processor time: a backtracking engine would need years, RE2 needs milliseconds."""
    pattern = Pattern(text)
    began = time.thread_time()
    pattern.matches("a" * 249)
    pattern.matches("ab" * 124)
    assert time.thread_time() - began < 2


def test_threads_can_match_with_one_pattern_at_once() -> None:
    pattern = Pattern("(.*a){12}b|x.*")
    wrong: list[str] = []

    def work(letter: str) -> None:
        for number in range(2_000):
            name = f"{letter}{number}"
            if pattern.matches(name) != (letter == "x"):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(letter,)) for letter in "xyxy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


MEASURE_MEMORY = """
import random, resource, sys
from kumquat.gateway.groups.assignment.pattern import Pattern

def used():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

Pattern("warm").matches("warm")
before = used()
draw = random.Random(1)
patterns = [Pattern(".*a[abcd]{15}[abc]|%d" % number) for number in range(20)]
for _ in range(200):
    name = "".join(draw.choices("abcd", k=249))
    for pattern in patterns:
        pattern.matches(name)
print((used() - before) // len(patterns))
"""


def test_what_a_pattern_keeps_in_memory_is_bounded() -> None:
    """Each name leads it to new states. With RE2's default each of these patterns keeps three megabytes."""
    seen = subprocess.run(
        [sys.executable, "-c", MEASURE_MEMORY], capture_output=True, text=True, check=True
    )
    assert int(seen.stdout) < 1.5 * MAX_MEMORY


def test_a_stored_pattern_that_is_no_longer_accepted_does_not_stop_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert Patterns().found("a**", Subjects(SubjectConfig(1, -1, -1))) == set()
    assert "the topic pattern 'a**' cannot be used" in caplog.text
