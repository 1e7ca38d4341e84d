"""Errors of the core, each with the Kafka error code that the client gets.

The core knows Kafka's numbers and nothing else of the protocol: a handler turns an error into an
answer by its `error_code` alone, and shows `str(error)` where the answer has room for a message.
"""

from __future__ import annotations

from typing import ClassVar


class KumquatError(Exception):
    """Base of all errors that may be answered to a client."""

    error_code: ClassVar[int] = -1  # UNKNOWN_SERVER_ERROR


class OffsetOutOfRange(KumquatError):
    error_code = 1


class CorruptMessage(KumquatError):
    """Bytes that do not match their checksum: in a produced batch, or on disk."""

    error_code = 2


class MessageTooLarge(KumquatError):
    error_code = 10


class InvalidTimestamp(KumquatError):
    error_code = 32


class InvalidRequest(KumquatError):
    error_code = 42


class OutOfOrderSequence(KumquatError):
    error_code = 45


class InvalidProducerEpoch(KumquatError):
    error_code = 47


class InvalidTransactionState(KumquatError):
    error_code = 48


class StorageError(KumquatError):
    """The disk is full, failing, or the log is fenced after a failed sync."""

    error_code = 56


class UnsupportedCompression(KumquatError):
    error_code = 76


class GroupMaxSizeReached(KumquatError):
    error_code = 81


class InvalidRecord(KumquatError):
    error_code = 87


class InvalidRecordState(KumquatError):
    """A message that the member of a share group does not hold."""

    error_code = 121


class StartError(Exception):
    """The data folder cannot be served: locked, of another format, unreadable."""


class WouldBlock(Exception):
    """A `…_nowait` call would have to wait for the disk."""
