"""Refusals of ShareFetch and ShareAcknowledge, each with Kafka's code."""

from __future__ import annotations

from kumquat.core.errors import KumquatError
from kumquat.gateway.wire.codes import ErrorCode


class ShareError(KumquatError):
    """Base of all that is refused here."""


class InvalidShareRequest(ShareError):
    error_code = ErrorCode.INVALID_REQUEST


class ShareSessionNotFound(ShareError):
    error_code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpoch(ShareError):
    error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitReached(ShareError):
    error_code = ErrorCode.SHARE_SESSION_LIMIT_REACHED
