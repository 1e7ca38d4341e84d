"""The PromQL expressions of the dashboard and of the alert rules, and the series that they name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parents[3] / "docs"
DASHBOARD = DOCS / "grafana" / "kumquat.json"
ALERTS = DOCS / "alerts" / "kumquat.yml"

SELECTOR = re.compile(r"\b(?:(?:kafka|kumquat|process)_\w+|up\b)(?:\{[^}]*\})?")
NAME = re.compile(r"\w+")
VARIABLES = {
    "$__rate_interval": "5m",
    "$instance": ".+",
    "$group": ".*",
    "$topic": ".*",
}


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


def dashboard_expressions() -> list[str]:
    """With Grafana's variables filled in."""
    found = [
        target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())
    ]
    for variable, value in VARIABLES.items():
        found = [expression.replace(variable, value) for expression in found]
    return found


def alerts() -> dict[str, Any]:
    """By name."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules), "a name is there twice"
    return {rule["alert"]: rule for rule in rules}


def selectors(expression: str) -> list[str]:
    """What it reads, without ranges."""
    return SELECTOR.findall(expression)


def names(expression: str) -> set[str]:
    """The names of the series that it reads."""
    found = (NAME.match(selector) for selector in selectors(expression))
    return {match[0] for match in found if match is not None}
