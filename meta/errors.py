"""Errors of the meta store, each with the Kafka error code of its answer.

`InvalidConfig` is the client's fault (a config that is unknown, badly written, or that promises
what this broker does not do); `StoreError` is ours (the SQL database cannot be read or written).
Neither ever concerns a message: messages live in the log, and are served without SQL.
"""

from typing import ClassVar


class MetaError(Exception):
    """Base of all errors of this package; `error_code` is the code of the answer."""

    error_code: ClassVar[int] = -1  # UNKNOWN_SERVER_ERROR


class InvalidConfig(MetaError):
    """A subject config was refused. The message names the config, the value and what is allowed."""

    error_code = 40  # INVALID_CONFIG


class StoreError(MetaError):
    """The SQL store failed; nothing was changed, in SQL or in memory."""

    error_code = 56  # KAFKA_STORAGE_ERROR
