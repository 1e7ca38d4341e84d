"""Regular expressions as RE2 has them, over the characters that topic names are made of, into a graph.

Supported: literals, `.`, classes with ranges, negation and POSIX names, `\\d \\w \\s` and their
opposites, groups, `|`, `* + ? {m,n}` (also lazy: the same for a full match), `^ $ \\A \\z`, and
`(?i)` and other flags in front. Look-around and back-references are refused, as by RE2; so are `\\b`
and `\\p{…}`, which RE2 has.

The graph: a node is (characters, next) to read one, (None, [next …]) to go on without, or an anchor.
Fragments are joined back to front: each is built knowing the node that follows it.
"""

from __future__ import annotations

import string
from typing import NamedTuple

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
MAX_NODES = 5_000
MAX_REPEAT = 1_000
MAX_DEPTH = 100

_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_ESCAPES = {
    "d": _DIGITS,
    "D": ALPHABET - _DIGITS,
    "w": _WORD,
    "W": ALPHABET - _WORD,
    "s": frozenset[str](),
    "S": ALPHABET,
}
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "digit": _DIGITS,
    "lower": frozenset(string.ascii_lowercase),
    "upper": frozenset(string.ascii_uppercase),
    "punct": frozenset("._-"),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}


class PatternError(ValueError):
    """Not an expression, or one that is not supported."""


class Node(NamedTuple):
    reads: frozenset[str] | None
    """None: it reads nothing."""
    following: tuple[int, ...]
    anchor: str = ""
    """`^` or `$`: passed only at the beginning or the end."""


class Tree(NamedTuple):
    """A part of an expression: `read`, `anchor`, `and`, `or`, `repeat`."""

    kind: str
    parts: tuple[Tree, ...] = ()
    reads: frozenset[str] = frozenset()
    anchor: str = ""
    low: int = 0
    high: int = 0


class Parser:
    """Parses to a small tree first; the graph is built from that, `{m,n}` by building its part again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._fold = False
        self.nodes: list[Node] = []

    def graph(self) -> tuple[list[Node], int, int]:
        """The nodes, the first, and the one in which a match ends."""
        tree = self._alternatives()
        if self._at < len(self._text):
            raise PatternError(f"unexpected {self._text[self._at]!r} at {self._at}")
        end = self._node(Node(None, ()))
        return self.nodes, self._build(tree, end), end

    # --- the tree --------------------------------------------------------------------------------

    def _alternatives(self) -> Tree:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError("too deeply nested")
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        self._depth -= 1
        return options[0] if len(options) == 1 else Tree("or", tuple(options))

    def _sequence(self) -> Tree:
        parts: list[Tree] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return Tree("and", tuple(parts))

    def _repeated(self, part: Tree) -> Tree:
        while self._at < len(self._text):
            if self._take("*"):
                low, high = 0, -1
            elif self._take("+"):
                low, high = 1, -1
            elif self._take("?"):
                low, high = 0, 1
            elif (bounds := self._bounds()) is not None:
                low, high = bounds
            else:
                break
            self._take("?")
            part = Tree("repeat", (part,), low=low, high=high)
        return part

    def _bounds(self) -> tuple[int, int] | None:
        if not self._text.startswith("{", self._at):
            return None
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(close, 0)].partition(",")
        if close < 0 or not low.isdecimal() or not (high == "" or high.isdecimal()):
            return None  # RE2 takes it for plain characters
        least = int(low)
        most = -1 if comma and not high else int(high) if comma else least
        if max(least, most) > MAX_REPEAT or 0 <= most < least:
            raise PatternError(f"bad repeat count {self._text[self._at : close + 1]!r}")
        self._at = close + 1
        return least, most

    def _atom(self) -> Tree:
        char = self._text[self._at]
        self._at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return Tree("read", reads=self._class())
        if char == ".":
            return Tree("read", reads=ALPHABET)
        if char in "^$":
            return Tree("anchor", anchor=char)
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise PatternError(f"nothing to repeat at {self._at - 1}")
        return Tree("read", reads=self._folded(char))

    def _group(self) -> Tree:
        fold = self._fold
        if self._take("?"):
            if self._take("P<") or (
                self._peek() == "<" and self._peek(1) not in "=!" and self._take("<")
            ):
                close = self._text.find(">", self._at)
                if close < 0:
                    raise PatternError("a group's name has no end")
                self._at = close + 1
            elif not self._flags():
                return Tree("and")  # flags for all that follows
        inner = self._alternatives()
        if not self._take(")"):
            raise PatternError("a group has no end")
        self._fold = fold
        return inner

    def _flags(self) -> bool:
        """`(?i)`, `(?i:…`, `(?:…`; whether a group follows."""
        on = True
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == ":":
                return True
            if char == ")":
                return False
            if char == "-":
                on = False
            elif char == "i":
                self._fold = on
            elif char not in "msU":
                break
        raise PatternError(f"unknown group syntax at {self._at - 1}")

    def _escape(self) -> Tree:
        char = self._peek()
        self._at += 1
        if char in ("A", "z"):
            return Tree("anchor", anchor="^" if char == "A" else "$")
        if char in _ESCAPES:
            return Tree("read", reads=_ESCAPES[char])
        if char == "" or char.isalnum():
            raise PatternError(f"\\{char} is not supported")
        return Tree("read", reads=self._folded(char))

    def _class(self) -> frozenset[str]:
        negated = self._take("^")
        chars: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            chars |= self._class_item()
        self._at += 1
        return ALPHABET - chars if negated else ALPHABET & chars

    def _class_item(self) -> frozenset[str]:
        if self._take("[:"):
            close = self._text.find(":]", self._at)
            name = self._text[self._at : close] if close >= 0 else ""
            self._at = close + 2
            if name.removeprefix("^") not in _POSIX:
                raise PatternError(f"unknown class {name!r}")
            chars = _POSIX[name.removeprefix("^")]
            return ALPHABET - chars if name.startswith("^") else chars
        low = self._class_char()
        if isinstance(low, frozenset):
            return low
        if self._peek() != "-" or self._peek(1) in ("]", ""):
            return self._folded(low)
        self._at += 1
        high = self._class_char()
        if isinstance(high, frozenset) or high < low:
            raise PatternError(f"bad range at {self._at}")
        folded = [self._folded(c) for c in ALPHABET if low <= c <= high]
        return frozenset().union(*folded)

    def _class_char(self) -> str | frozenset[str]:
        char = self._peek()
        if not char:
            raise PatternError("a class has no end")
        self._at += 1
        if char != "\\":
            return char
        char = self._peek()
        self._at += 1
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "" or char.isalnum():
            raise PatternError(f"\\{char} is not supported")
        return char

    def _folded(self, char: str) -> frozenset[str]:
        return frozenset({char, char.lower(), char.upper()} if self._fold else {char})

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _take(self, wanted: str) -> bool:
        if self._text.startswith(wanted, self._at):
            self._at += len(wanted)
            return True
        return False

    # --- the graph -------------------------------------------------------------------------------

    def _node(self, node: Node) -> int:
        if len(self.nodes) >= MAX_NODES:
            raise PatternError("too large")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _build(self, tree: Tree, after: int) -> int:
        """The node with which this part begins, when `after` follows it."""
        if tree.kind == "read":
            return self._node(Node(tree.reads, (after,)))
        if tree.kind == "anchor":
            return self._node(Node(None, (after,), tree.anchor))
        if tree.kind == "or":
            return self._node(Node(None, tuple(self._build(part, after) for part in tree.parts)))
        if tree.kind == "and":
            for part in reversed(tree.parts):
                after = self._build(part, after)
            return after
        return self._build_repeat(tree, after)

    def _build_repeat(self, tree: Tree, after: int) -> int:
        (part,) = tree.parts
        if tree.high < 0:
            loop = self._node(Node(None, ()))
            self.nodes[loop] = Node(None, (self._build(part, loop), after))
            after = loop
        else:
            done = after
            for _ in range(tree.high - tree.low):
                after = self._node(Node(None, (self._build(part, after), done)))
        for _ in range(tree.low):
            after = self._build(part, after)
        return after
