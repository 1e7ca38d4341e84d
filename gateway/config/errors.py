"""Options that the broker cannot start with."""

from dataclasses import dataclass


class BadOptions(Exception):
    """What is wrong with the options: a line for each complaint, which names the option, its value, where
    it was set, and what is allowed."""

    def __init__(self, *complaints: str) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints


@dataclass(frozen=True, slots=True)
class Conflict:
    """Options that are right one by one and do not fit together."""

    names: tuple[str, ...]
    complaint: str


class ConflictingOptions(BadOptions):
    """Raised where a BrokerConfig is made, which does not know where its values come from."""

    def __init__(self, *conflicts: Conflict) -> None:
        super().__init__(*(conflict.complaint for conflict in conflicts))
        self.conflicts = conflicts
