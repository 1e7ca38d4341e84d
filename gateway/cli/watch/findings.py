"""What `kumquat doctor` finds: a Finding for each check, and how they are shown.

    ok    nothing to do         warn  it works, and could hurt later
    bad   do something now      ?     it cannot be known here

A finding that is not ok says what to do. The exit code is 1 if one is bad.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.tables import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

OK, WARN, BAD, UNKNOWN = "ok", "warn", "bad", "unknown"
SHOWN = {OK: "ok  ", WARN: "warn", BAD: "bad ", UNKNOWN: "?   "}
STYLES = {OK: "green", WARN: "yellow", BAD: "bold red", UNKNOWN: "dim"}


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: str
    found: str
    advice: str = ""


def graded(
    check: str, found: str, advice: str, *, bad: bool = False, warn: bool = False
) -> Finding:
    """With the advice where it is not ok."""
    if not (bad or warn):
        return Finding(check, OK, found)
    return Finding(check, BAD if bad else WARN, found, advice)


def told(findings: Iterable[Finding]) -> dict[str, Any]:
    """For `--json`."""
    listed = [asdict(each) for each in findings]
    return {"ok": not any(each["state"] == BAD for each in listed), "checks": listed}


def show(finding: Finding) -> None:
    """One line, and one for what to do; at a terminal with a colour."""
    line = plain(f"{finding.check + ':':<14} {finding.found}")
    advice = plain(f"{'':<19} {finding.advice}")
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        console.print(Text(SHOWN[finding.state], STYLES[finding.state]), line, soft_wrap=True)
        if finding.advice:
            console.print(Text(advice, "dim"), soft_wrap=True)
        return
    print(SHOWN[finding.state], line)
    if finding.advice:
        print(advice)
