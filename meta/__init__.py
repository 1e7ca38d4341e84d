"""What the broker knows beside its messages: subjects' configs and the registry, kept in SQL.

- definitions: which configs exist, which values are allowed, which value is in force
- group_configs: the same for consumer groups
- registry: answers from memory, changes through SQL (not re-exported: it imports SQLAlchemy)
- store: opening the database, transactions; rows: its tables; changes: the SQL of each change
- values: types and bounds of config values
"""

from kumquat.meta.definitions import (
    DEFINITIONS,
    ConfigRow,
    ConfigSource,
    EffectiveConfig,
    SubjectDefaults,
    describe,
    effective,
    validate,
)
from kumquat.meta.errors import InvalidConfig, MetaError, StoreError

__all__ = [
    "DEFINITIONS",
    "ConfigRow",
    "ConfigSource",
    "EffectiveConfig",
    "InvalidConfig",
    "MetaError",
    "StoreError",
    "SubjectDefaults",
    "describe",
    "effective",
    "validate",
]
