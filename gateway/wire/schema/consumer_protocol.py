"""What classic consumers put inside JoinGroup and SyncGroup: subscription and assignment.

Not messages of their own: each travels as bytes, with an int16 version in front, in the fields
`metadata` and `assignment`. They have no API key (-1 here) and are never flexible.
"""

from kumquat.gateway.wire.declare import array, bytes_, int32, string
from kumquat.gateway.wire.message import message

ConsumerProtocolSubscription = message(
    "ConsumerProtocolSubscription", key=-1, versions=(0, 3), flexible=None
)(
    "topics" / array(string),
    "user_data" / bytes_.nullable().default(None),
    "owned_partitions"
    / array(
        "SubscriptionTopicPartition",
        "topic" / string,
        "partitions" / array(int32),
    )
    .since(1)
    .ignorable(),
    "generation_id" / int32.since(2).default(-1).ignorable(),
    "rack_id" / string.since(3).nullable().default(None).ignorable(),
)
(SubscriptionTopicPartition,) = ConsumerProtocolSubscription.structs

ConsumerProtocolAssignment = message(
    "ConsumerProtocolAssignment", key=-1, versions=(0, 3), flexible=None
)(
    "assigned_partitions"
    / array(
        "AssignmentTopicPartition",
        "topic" / string,
        "partitions" / array(int32),
    ),
    "user_data" / bytes_.nullable().default(None),
)
(AssignmentTopicPartition,) = ConsumerProtocolAssignment.structs
