"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose assignment the broker makes.

Kafka calls different structs of these messages by the same names, and by those of DescribeGroups;
here each has a name of its own.
"""

from kumquat.gateway.wire.declare import array, bool_, int8, int16, int32, string, struct, uuid
from kumquat.gateway.wire.message import message

ConsumerGroupHeartbeatRequest = message(
    "ConsumerGroupHeartbeatRequest", key=68, versions=(0, 1), flexible=0
)(
    "group_id" / string,
    "member_id" / string,
    "member_epoch" / int32,
    "instance_id" / string.nullable().default(None),
    "rack_id" / string.nullable().default(None),
    "rebalance_timeout_ms" / int32.default(-1),
    "subscribed_topic_names" / array(string).nullable().default(None),
    "subscribed_topic_regex" / string.since(1).nullable().default(None),
    "server_assignor" / string.nullable().default(None),
    "topic_partitions"
    / array(
        "OwnedTopicPartitions",
        "topic_id" / uuid,
        "partitions" / array(int32),
    )
    .nullable()
    .default(None),
)
(OwnedTopicPartitions,) = ConsumerGroupHeartbeatRequest.structs

ConsumerGroupHeartbeatResponse = message(
    "ConsumerGroupHeartbeatResponse", key=68, versions=(0, 1), flexible=0
)(
    "throttle_time_ms" / int32,
    "error_code" / int16,
    "error_message" / string.nullable().default(None),
    "member_id" / string.nullable().default(None),
    "member_epoch" / int32,
    "heartbeat_interval_ms" / int32,
    "assignment"
    / struct(
        "ConsumerGroupAssignment",
        "topic_partitions"
        / array(
            "AssignedTopicPartitions",
            "topic_id" / uuid,
            "partitions" / array(int32),
        ),
    )
    .nullable()
    .default(None),
)
ConsumerGroupAssignment, AssignedTopicPartitions = ConsumerGroupHeartbeatResponse.structs

ConsumerGroupDescribeRequest = message(
    "ConsumerGroupDescribeRequest", key=69, versions=(0, 1), flexible=0
)(
    "group_ids" / array(string),
    "include_authorized_operations" / bool_,
)

described_assignment = struct(
    "DescribedAssignment",
    "topic_partitions"
    / array(
        "DescribedTopicPartitions",
        "topic_id" / uuid,
        "topic_name" / string,
        "partitions" / array(int32),
    ),
)

ConsumerGroupDescribeResponse = message(
    "ConsumerGroupDescribeResponse", key=69, versions=(0, 1), flexible=0
)(
    "throttle_time_ms" / int32,
    "groups"
    / array(
        "DescribedConsumerGroup",
        "error_code" / int16,
        "error_message" / string.nullable().default(None),
        "group_id" / string,
        "group_state" / string,
        "group_epoch" / int32,
        "assignment_epoch" / int32,
        "assignor_name" / string,
        "members"
        / array(
            "DescribedConsumerGroupMember",
            "member_id" / string,
            "instance_id" / string.nullable().default(None),
            "rack_id" / string.nullable().default(None),
            "member_epoch" / int32,
            "client_id" / string,
            "client_host" / string,
            "subscribed_topic_names" / array(string),
            "subscribed_topic_regex" / string.nullable().default(None),
            "assignment" / described_assignment,
            "target_assignment" / described_assignment,
            "member_type" / int8.since(1).default(-1).ignorable(),
        ),
        "authorized_operations" / int32.default(-2147483648),
    ),
)
(
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedAssignment,
    DescribedTopicPartitions,
) = ConsumerGroupDescribeResponse.structs
