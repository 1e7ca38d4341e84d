"""Topic patterns of KIP-848 members, matched by RE2: in time linear in the name, whatever the pattern.

A client's pattern must not be able to stop the broker, and Python's `re` can take exponential time. Kafka
matches these patterns with RE2/J, a port of RE2 to Java; google-re2 is RE2 itself, so both read the same
syntax. The whole name has to match. There is no look-around and there are no back-references. A group
name that is used twice is accepted here, and refused by Kafka: nobody asks for the groups of a match.

What a pattern can cost: MAX_LENGTH and MAX_INSTRUCTIONS bound the time for a name (a few milliseconds for
the worst pattern, two microseconds for an ordinary one), MAX_MEMORY what RE2 keeps for one pattern,
MAX_COMPILED how many are kept. RE2 can match in several threads at once.

`Patterns` keeps which subjects each pattern has found. A new pattern is tried on all subjects once, and a
new subject with all patterns once. With many subjects or patterns that takes a while: the running broker
does it in a thread, before the result is needed (`learn`, `prepare`).
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

from kumquat.gateway.groups.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kumquat.core.logs.messages.subject import Subject, Subjects

MAX_LENGTH = 4_000
MAX_INSTRUCTIONS = 8_000
"""Of RE2's program, which has about one for each byte that it can read."""
MAX_MEMORY = 1 << 20
MAX_COMPILED = 256
SHOWN = 100
"""Characters of a pattern in an error."""
MANY = 100

logger = logging.getLogger(__name__)


class Pattern:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise _invalid(text, f"it is longer than {MAX_LENGTH} characters")

        # Not before the first pattern: few members have one, and the library costs memory.
        import re2

        options = re2.Options()
        options.max_mem = MAX_MEMORY
        options.never_capture = True
        options.log_errors = False  # it would write to stderr by itself
        try:
            self._pattern = re2.compile(text, options)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")[: 2 * SHOWN]
            raise _invalid(
                text, f"{reason} (it has to be RE2 syntax: no look-around, no back-references)"
            ) from None
        if self._pattern.programsize > MAX_INSTRUCTIONS:
            raise _invalid(text, "it is too large; repeat less, or subscribe to fewer names")

    @staticmethod
    @lru_cache(maxsize=MAX_COMPILED)
    def of(text: str) -> Pattern:
        """Raises InvalidRegularExpression."""
        return Pattern(text)

    def matches(self, name: str) -> bool:
        # For bytes RE2's binding makes no table of characters: that halves the time.
        return self._pattern.fullmatch(name.encode()) is not None


def _invalid(text: str, reason: str) -> InvalidRegularExpression:
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return InvalidRegularExpression(f"the topic pattern {shown!r} cannot be used: {reason}")


def matching_patterns(name: str, texts: Iterable[str]) -> set[str]:
    """The patterns that match a name. Runs in a thread."""
    return {text for text in texts if Pattern.of(text).matches(name)}


class Patterns:
    """The subjects that each pattern in use has found."""

    def __init__(self) -> None:
        self._found: dict[str, set[int]] = {}
        self._prepared: dict[str, tuple[frozenset[str], set[str]]] = {}
        """Name of a subject that is being made → the patterns that were tried, and those that matched."""

    def __contains__(self, text: str) -> bool:
        return text in self._found

    def found(self, text: str, subjects: Subjects) -> set[int]:
        """The ids of the subjects that match."""
        found = self._found.get(text)
        if found is None:
            try:
                matches = Pattern.of(text).matches
            except InvalidRegularExpression as error:
                # A member's pattern is checked when it comes. This one was accepted by an earlier version.
                logger.warning("%s; it matches nothing", error)
                return set()
            found = {subject.id for name, subject in subjects.by_name.items() if matches(name)}
            self._found[text] = found
        return found

    def learn(self, text: str, names: set[str], matching: set[str], subjects: Subjects) -> None:
        """Of these names, `matching` are those that match. The subjects may have changed since."""
        matches = Pattern.of(text).matches
        self._found[text] = {
            subject.id
            for name, subject in subjects.by_name.items()
            if name in matching or (name not in names and matches(name))
        }

    def forget_all_but(self, in_use: Callable[[], set[str]]) -> None:
        """When there are many, drop those that no member uses."""
        if len(self._found) > MANY:
            used = in_use()
            self._found = {text: found for text, found in self._found.items() if text in used}

    def texts(self) -> frozenset[str]:
        return frozenset(self._found)

    def prepare(self, name: str, tried: frozenset[str], matching: set[str]) -> None:
        """A subject of this name is about to be added: of the patterns tried, these match it."""
        self._prepared[name] = tried, matching

    def added(self, subject: Subject) -> set[str]:
        """A subject is new: the patterns that match it."""
        tried, matching = self._prepared.pop(subject.name, (frozenset[str](), set[str]()))
        matching = {
            text
            for text in self._found
            if (text in matching if text in tried else Pattern.of(text).matches(subject.name))
        }
        for text in matching:
            self._found[text].add(subject.id)
        return matching

    def removed(self, subject_id: int) -> None:
        for found in self._found.values():
            found.discard(subject_id)
