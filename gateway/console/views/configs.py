"""The broker's options with their meaning: those that were set first, then the others by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.config.options import OptionRow


def options(broker: Broker, query: str) -> list[OptionRow]:
    wanted = query.lower()
    rows = [
        row
        for row in broker.config.describe()
        if wanted in row.name.lower() or wanted in row.doc.lower()
    ]
    return sorted(rows, key=lambda row: (row.is_default, row.name))
