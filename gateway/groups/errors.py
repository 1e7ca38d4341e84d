"""Refusals of the group APIs, each with Kafka's code."""

from __future__ import annotations

from kumquat.core.errors import KumquatError
from kumquat.gateway.wire.codes import ErrorCode


class GroupError(KumquatError):
    """Base of all that a group API refuses."""


class OffsetMetadataTooLarge(GroupError):
    error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class CoordinatorLoadInProgress(GroupError):
    error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(GroupError):
    error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class IllegalGeneration(GroupError):
    error_code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocol(GroupError):
    error_code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupId(GroupError):
    error_code = ErrorCode.INVALID_GROUP_ID


class UnknownMember(GroupError):
    error_code = ErrorCode.UNKNOWN_MEMBER_ID


class InvalidSessionTimeout(GroupError):
    error_code = ErrorCode.INVALID_SESSION_TIMEOUT


class RebalanceInProgress(GroupError):
    error_code = ErrorCode.REBALANCE_IN_PROGRESS


class InvalidRequest(GroupError):
    error_code = ErrorCode.INVALID_REQUEST


class GroupIdNotFound(GroupError):
    error_code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroup(GroupError):
    error_code = ErrorCode.NON_EMPTY_GROUP


class GroupFull(GroupError):
    error_code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstance(GroupError):
    error_code = ErrorCode.FENCED_INSTANCE_ID


class FencedMemberEpoch(GroupError):
    error_code = ErrorCode.FENCED_MEMBER_EPOCH


class UnreleasedInstance(GroupError):
    error_code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignor(GroupError):
    error_code = ErrorCode.UNSUPPORTED_ASSIGNOR


class StaleMemberEpoch(GroupError):
    error_code = ErrorCode.STALE_MEMBER_EPOCH


class InvalidRegularExpression(GroupError):
    error_code = ErrorCode.INVALID_REGULAR_EXPRESSION
