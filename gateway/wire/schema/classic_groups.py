"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: membership in classic groups."""

from kumquat.gateway.wire.declare import array, bool_, bytes_, int16, int32, string
from kumquat.gateway.wire.message import message

JoinGroupRequest = message("JoinGroupRequest", key=11, versions=(0, 9), flexible=6)(
    "group_id" / string,
    "session_timeout_ms" / int32,
    "rebalance_timeout_ms" / int32.since(1).default(-1).ignorable(),
    "member_id" / string,
    "group_instance_id" / string.since(5).nullable().default(None),
    "protocol_type" / string,
    "protocols"
    / array(
        "JoinGroupRequestProtocol",
        "name" / string,
        "metadata" / bytes_,
    ),
    "reason" / string.since(8).nullable().default(None).ignorable(),
)
(JoinGroupRequestProtocol,) = JoinGroupRequest.structs

JoinGroupResponse = message("JoinGroupResponse", key=11, versions=(0, 9), flexible=6)(
    "throttle_time_ms" / int32.since(2).ignorable(),
    "error_code" / int16,
    "generation_id" / int32.default(-1),
    "protocol_type" / string.since(7).nullable().default(None).ignorable(),
    "protocol_name" / string.nullable(7),
    "leader" / string,
    "skip_assignment" / bool_.since(9),
    "member_id" / string,
    "members"
    / array(
        "JoinGroupResponseMember",
        "member_id" / string,
        "group_instance_id" / string.since(5).nullable().default(None).ignorable(),
        "metadata" / bytes_,
    ),
)
(JoinGroupResponseMember,) = JoinGroupResponse.structs

SyncGroupRequest = message("SyncGroupRequest", key=14, versions=(0, 5), flexible=4)(
    "group_id" / string,
    "generation_id" / int32,
    "member_id" / string,
    "group_instance_id" / string.since(3).nullable().default(None),
    "protocol_type" / string.since(5).nullable().default(None).ignorable(),
    "protocol_name" / string.since(5).nullable().default(None).ignorable(),
    "assignments"
    / array(
        "SyncGroupRequestAssignment",
        "member_id" / string,
        "assignment" / bytes_,
    ),
)
(SyncGroupRequestAssignment,) = SyncGroupRequest.structs

SyncGroupResponse = message("SyncGroupResponse", key=14, versions=(0, 5), flexible=4)(
    "throttle_time_ms" / int32.since(1).ignorable(),
    "error_code" / int16,
    "protocol_type" / string.since(5).nullable().default(None).ignorable(),
    "protocol_name" / string.since(5).nullable().default(None).ignorable(),
    "assignment" / bytes_,
)

HeartbeatRequest = message("HeartbeatRequest", key=12, versions=(0, 4), flexible=4)(
    "group_id" / string,
    "generation_id" / int32,
    "member_id" / string,
    "group_instance_id" / string.since(3).nullable().default(None),
)

HeartbeatResponse = message("HeartbeatResponse", key=12, versions=(0, 4), flexible=4)(
    "throttle_time_ms" / int32.since(1).ignorable(),
    "error_code" / int16,
)

LeaveGroupRequest = message("LeaveGroupRequest", key=13, versions=(0, 5), flexible=4)(
    "group_id" / string,
    "member_id" / string.until(2),
    "members"
    / array(
        "MemberIdentity",
        "member_id" / string,
        "group_instance_id" / string.nullable().default(None),
        "reason" / string.since(5).nullable().default(None).ignorable(),
    ).since(3),
)
(MemberIdentity,) = LeaveGroupRequest.structs

LeaveGroupResponse = message("LeaveGroupResponse", key=13, versions=(0, 5), flexible=4)(
    "throttle_time_ms" / int32.since(1).ignorable(),
    "error_code" / int16,
    "members"
    / array(
        "MemberResponse",
        "member_id" / string,
        "group_instance_id" / string.nullable(),
        "error_code" / int16,
    ).since(3),
)
(MemberResponse,) = LeaveGroupResponse.structs
