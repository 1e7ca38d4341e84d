"""Topic patterns of KIP-848 members, matched in time linear in the name, whatever the pattern.

A client's pattern must not be able to stop the broker, and Python's `re` can take exponential time.
So the graph of the expression (pattern_parser.py) is walked with sets of nodes, and each set that
turns up is remembered with where each character leads from it: soon a name costs one dictionary
look-up a character. The whole name has to match, as in Kafka.

`Patterns` keeps what each pattern has found among the subjects, so that all are gone through once for
a pattern, and each pattern once for a new subject. With many subjects or patterns that takes a while: the
running broker does it in a thread, before it is needed (`learn`, `prepare`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kumquat.gateway.groups.assignment.pattern_parser import Parser, PatternError
from kumquat.gateway.groups.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kumquat.core.logs.messages.subject import Subject, Subjects

MAX_REMEMBERED = 20_000
"""Nodes in all sets that a pattern remembers: some two megabytes."""
MAX_LENGTH = 4_000
MANY = 100
MAX_COMPILED = 256

_State = frozenset[int]


class Pattern:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidRegularExpression(f"longer than {MAX_LENGTH} characters")
        try:
            self._nodes, first, self._end = Parser(text).graph()
        except PatternError as error:
            raise InvalidRegularExpression(f"{text!r}: {error}") from error
        self._start = self._closure([first], "^")
        self._moves: dict[_State, dict[str, _State]] = {}
        self._accepts: dict[_State, bool] = {}
        self._remembered = 0

    @staticmethod
    @lru_cache(maxsize=MAX_COMPILED)
    def of(text: str) -> Pattern:
        """Raises InvalidRegularExpression."""
        return Pattern(text)

    def matches(self, name: str) -> bool:
        state = self._start
        for char in name:
            moves = self._moves.get(state)
            if moves is None:
                moves = self._moves[state] = {}
            following = moves.get(char)
            if following is None:
                following = moves[char] = self._step(state, char)
                self._remember(len(following) + 1)
            if not following:
                return False
            state = following
        return self._accepted(state, at_start=not name)

    def _remember(self, nodes: int) -> None:
        self._remembered += nodes
        if self._remembered > MAX_REMEMBERED:
            self._remembered = 0
            self._moves.clear()
            self._accepts.clear()

    def _step(self, state: _State, char: str) -> _State:
        nodes = self._nodes
        reached: list[int] = []
        for index in state:
            reads = nodes[index].reads
            if reads is not None and char in reads:
                reached += nodes[index].following
        return self._closure(reached, "")

    def _accepted(self, state: _State, *, at_start: bool) -> bool:
        if at_start:
            return self._end in self._closure(list(state), "^$")
        accepted = self._accepts.get(state)
        if accepted is None:
            accepted = self._accepts[state] = self._end in self._closure(list(state), "$")
        return accepted

    def _closure(self, reached: list[int], anchors: str) -> _State:
        """All nodes that can be got to without reading; anchors other than these stop."""
        seen: set[int] = set()
        while reached:
            index = reached.pop()
            if index in seen:
                continue
            seen.add(index)
            node = self._nodes[index]
            if node.reads is None and (not node.anchor or node.anchor in anchors):
                reached += node.following
        return frozenset(seen)


def matching_patterns(name: str, texts: Iterable[str]) -> set[str]:
    """Those of the patterns that match a name. For a thread."""
    return {text for text in texts if Pattern.of(text).matches(name)}


class Patterns:
    """What patterns in use have found."""

    def __init__(self) -> None:
        self._found: dict[str, set[int]] = {}
        self._prepared: dict[str, tuple[frozenset[str], set[str]]] = {}
        """Name of a subject that is being made → the patterns that were tried, and those that matched."""

    def __contains__(self, text: str) -> bool:
        return text in self._found

    def found(self, text: str, subjects: Subjects) -> set[int]:
        """The ids of the subjects that match. Raises InvalidRegularExpression."""
        found = self._found.get(text)
        if found is None:
            matches = Pattern.of(text).matches
            found = {subject.id for name, subject in subjects.by_name.items() if matches(name)}
            self._found[text] = found
        return found

    def learn(self, text: str, names: set[str], matching: set[str], subjects: Subjects) -> None:
        """Among these names those matched; the subjects may have changed since."""
        matches = Pattern.of(text).matches
        self._found[text] = {
            subject.id
            for name, subject in subjects.by_name.items()
            if name in matching or (name not in names and matches(name))
        }

    def forget_all_but(self, in_use: Callable[[], set[str]]) -> None:
        """When many are kept, those that nobody uses may go."""
        if len(self._found) > MANY:
            used = in_use()
            self._found = {text: found for text, found in self._found.items() if text in used}

    def texts(self) -> frozenset[str]:
        return frozenset(self._found)

    def prepare(self, name: str, tried: frozenset[str], matching: set[str]) -> None:
        """A subject of this name is about to be added: of the patterns tried, these match it."""
        self._prepared[name] = tried, matching

    def added(self, subject: Subject) -> set[str]:
        """A new subject; gives the patterns that match it."""
        tried, matching = self._prepared.pop(subject.name, (frozenset[str](), set[str]()))
        matching = {
            text
            for text in self._found
            if (text in matching if text in tried else Pattern.of(text).matches(subject.name))
        }
        for text in matching:
            self._found[text].add(subject.id)
        return matching

    def removed(self, sid: int) -> None:
        for found in self._found.values():
            found.discard(sid)
