"""Kafka's notation for schemas, with less to write."""

from __future__ import annotations

from typing import Any


def field(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "versions": "0+", **more}


def nullable(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {**field(name, kind), "nullableVersions": "0+", "default": "null", **more}


def api(key: int, name: str, *fields: dict[str, Any], versions: str = "0-1") -> dict[str, Any]:
    return {
        "apiKey": key,
        "name": name,
        "type": name[-7:].lower(),
        "validVersions": versions,
        "flexibleVersions": "0+",
        "fields": list(fields),
    }
