"""The files in a run's folder: whole, and of this version, or refused with a line that says so.

A run's folder belongs to one run. Its files carry the run's mark (copies/journal.py), so that a file from
another folder, or from a backup, is recognised and refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.common.durable import read_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Content = TypeVar("Content")
Range = tuple[int, int]
"""Offsets, half open."""
NEW_RUN = "begin a new run, with a folder of its own"


def read_memory(path: Path, version: int, parse: Callable[[dict[str, Any]], Content]) -> Content:
    content = read_json(path, version)
    if content["version"] < version:
        raise ConnectorError(
            f"{path} was written by an older version (format {content['version']}, known here: "
            f"{version}): finish with that one, or {NEW_RUN}"
        )
    try:
        return parse(content)
    except (KeyError, TypeError, ValueError) as error:
        raise ConnectorError(f"{path} is damaged ({error!r}): restore it from a backup") from None


def check_mark(path: Path, found: str, run: str) -> None:
    """`found` is the mark in that file, `run` the one of the folder."""
    if found != run:
        raise ConnectorError(
            f"{path} is of run {found}, but its folder is of {run}: restore the folder as a whole, "
            f"or {NEW_RUN}"
        )
