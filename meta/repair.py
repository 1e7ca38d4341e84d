"""What applies where a stored config is damaged: it deletes no message, and no group loses its order.

A row that does not fit its checksum may be wrong in any part: the value, the name, or whose it is.
The value that was meant is unknown, so:

| damaged | then |
|---|---|
| `retention.ms` or `retention.bytes` | -1: no limit, so that the disk is not freed either |
| it is unknown which config, or all are lost and the subject has messages | both are -1 |
| any other config of a subject | not set: the default applies |
| `consume.mode` of a group, or it is unknown which config | `consume.mode=exclusive`: in order |
| any other config of a group, any of the broker | not set: the default applies |

What is decided here is stored, with a checksum, so it holds after the next start too and
DescribeConfigs shows it. The lines say what was found, so that an operator can set the configs again. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.meta.catalogue import DEFINITIONS
from kumquat.meta.changes import BROKER, AlterGroup
from kumquat.meta.group_configs import GROUP_DEFINITIONS, MODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.meta.rows import Damaged, Stored

NO_LIMITS = {"retention.ms": "-1", "retention.bytes": "-1"}


def safe_configs(configs: Mapping[str, str], damaged: Damaged, subject_id: int) -> dict[str, str]:
    """Of a subject with damage: its good configs, and no limit where one may have been meant."""
    names = damaged.configs.get(subject_id, {})
    unsure = subject_id in damaged.subjects or any(name not in DEFINITIONS for name in names)
    limits = {name: value for name, value in NO_LIMITS.items() if unsure or name in names}
    return {**limits, **configs}


def group_repairs(stored: Stored) -> tuple[list[AlterGroup], list[str]]:
    """What to change, and a line for each."""
    changes, lines = [], []
    for group, found in stored.damaged.group_configs.items():
        good = stored.group_configs.get(group, {})
        unsure = MODE in found or any(name not in GROUP_DEFINITIONS for name in found)
        safe = {MODE: "exclusive"} if unsure and MODE not in good and group != BROKER else {}
        changes.append(AlterGroup(group, {**dict.fromkeys(found), **safe}))
        rows = ", ".join(f"{name}={value!r}" for name, value in found.items())
        now = ", ".join(f"{name}={value}" for name, value in {**good, **safe}.items()) or "none"
        whose, entity = (f"group {group}", "groups") if group != BROKER else ("broker", "brokers")
        lines.append(
            f"{whose}: the stored configs {rows} did not fit their checksum and are not used. They "
            f"may have been another's, whose name is damaged. Its configs are now: {now}. Set again "
            f"what is missing (kafka-configs --entity-type {entity} --alter)"
        )
    return changes, lines


def subject_lines(
    damaged: Damaged, names: Mapping[int, str], now: Mapping[int, Mapping[str, str]]
) -> list[str]:
    lines = []
    for id_ in sorted(damaged.subjects | damaged.configs.keys()):
        rows = [f"{name}={value!r}" for name, value in damaged.configs.get(id_, {}).items()]
        found = f"the stored configs {', '.join(rows)}" if rows else "the stored row"
        kept = ", ".join(f"{name}={value}" for name, value in now.get(id_, {}).items()) or "none"
        lines.append(
            f"subject {names.get(id_, f'with id {id_}, which is not in the log')}: {found} did not "
            f"fit its checksum and is not used. Its configs are now: {kept}. Set again what is "
            "missing (kafka-configs --alter)"
        )
    return lines + [
        f"a damaged row of the meta store is not used: {row}" for row in damaged.unreadable
    ]
