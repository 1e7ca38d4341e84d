"""ShareGroupHeartbeat and ShareGroupDescribe: groups whose members share their subjects (KIP-932).

Kafka calls different structs of these messages by the same names, and by those of the consumer groups;
here each has a name of its own. Version 0 was of Kafka's early access and is gone.
"""

from kumquat.gateway.wire.declare import array, bool_, int16, int32, string, struct, uuid
from kumquat.gateway.wire.message import message

ShareGroupHeartbeatRequest = message(
    "ShareGroupHeartbeatRequest", key=76, versions=(1, 1), flexible=0
)(
    "group_id" / string,
    "member_id" / string,
    "member_epoch" / int32,
    "rack_id" / string.nullable().default(None),
    "subscribed_topic_names" / array(string).nullable().default(None),
)

ShareGroupHeartbeatResponse = message(
    "ShareGroupHeartbeatResponse", key=76, versions=(1, 1), flexible=0
)(
    "throttle_time_ms" / int32,
    "error_code" / int16,
    "error_message" / string.nullable().default(None),
    "member_id" / string.nullable().default(None),
    "member_epoch" / int32,
    "heartbeat_interval_ms" / int32,
    "assignment"
    / struct(
        "ShareGroupAssignment",
        "topic_partitions"
        / array(
            "ShareTopicPartitions",
            "topic_id" / uuid,
            "partitions" / array(int32),
        ),
    )
    .nullable()
    .default(None),
)
ShareGroupAssignment, ShareTopicPartitions = ShareGroupHeartbeatResponse.structs

ShareGroupDescribeRequest = message(
    "ShareGroupDescribeRequest", key=77, versions=(1, 1), flexible=0
)(
    "group_ids" / array(string),
    "include_authorized_operations" / bool_,
)

ShareGroupDescribeResponse = message(
    "ShareGroupDescribeResponse", key=77, versions=(1, 1), flexible=0
)(
    "throttle_time_ms" / int32,
    "groups"
    / array(
        "DescribedShareGroup",
        "error_code" / int16,
        "error_message" / string.nullable().default(None),
        "group_id" / string,
        "group_state" / string,
        "group_epoch" / int32,
        "assignment_epoch" / int32,
        "assignor_name" / string,
        "members"
        / array(
            "DescribedShareGroupMember",
            "member_id" / string,
            "rack_id" / string.nullable().default(None),
            "member_epoch" / int32,
            "client_id" / string,
            "client_host" / string,
            "subscribed_topic_names" / array(string),
            "assignment"
            / struct(
                "DescribedShareAssignment",
                "topic_partitions"
                / array(
                    "DescribedShareTopicPartitions",
                    "topic_id" / uuid,
                    "topic_name" / string,
                    "partitions" / array(int32),
                ),
            ),
        ),
        "authorized_operations" / int32.default(-2147483648),
    ),
)
(
    DescribedShareGroup,
    DescribedShareGroupMember,
    DescribedShareAssignment,
    DescribedShareTopicPartitions,
) = ShareGroupDescribeResponse.structs
