"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: where share groups are."""

from kumquat.gateway.wire.declare import array, int16, int32, int64, string, uuid
from kumquat.gateway.wire.message import message

DescribeShareGroupOffsetsRequest = message(
    "DescribeShareGroupOffsetsRequest", key=90, versions=(0, 1), flexible=0
)(
    "groups"
    / array(
        "DescribeShareGroupOffsetsRequestGroup",
        "group_id" / string,
        "topics"
        / array(
            "DescribeShareGroupOffsetsRequestTopic",
            "topic_name" / string,
            "partitions" / array(int32),
        ).nullable(),
    ),
)
(
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
) = DescribeShareGroupOffsetsRequest.structs

DescribeShareGroupOffsetsResponse = message(
    "DescribeShareGroupOffsetsResponse", key=90, versions=(0, 1), flexible=0
)(
    "throttle_time_ms" / int32,
    "groups"
    / array(
        "DescribeShareGroupOffsetsResponseGroup",
        "group_id" / string,
        "topics"
        / array(
            "DescribeShareGroupOffsetsResponseTopic",
            "topic_name" / string,
            "topic_id" / uuid,
            "partitions"
            / array(
                "DescribeShareGroupOffsetsResponsePartition",
                "partition_index" / int32,
                "start_offset" / int64,
                "leader_epoch" / int32,
                "lag" / int64.since(1).default(-1).ignorable(),
                "error_code" / int16,
                "error_message" / string.nullable().default(None),
            ),
        ),
        "error_code" / int16,
        "error_message" / string.nullable().default(None),
    ),
)
(
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsResponsePartition,
) = DescribeShareGroupOffsetsResponse.structs

AlterShareGroupOffsetsRequest = message(
    "AlterShareGroupOffsetsRequest", key=91, versions=(0, 0), flexible=0
)(
    "group_id" / string,
    "topics"
    / array(
        "AlterShareGroupOffsetsRequestTopic",
        "topic_name" / string,
        "partitions"
        / array(
            "AlterShareGroupOffsetsRequestPartition",
            "partition_index" / int32,
            "start_offset" / int64,
        ),
    ),
)
(
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsRequestPartition,
) = AlterShareGroupOffsetsRequest.structs

AlterShareGroupOffsetsResponse = message(
    "AlterShareGroupOffsetsResponse", key=91, versions=(0, 0), flexible=0
)(
    "throttle_time_ms" / int32,
    "error_code" / int16,
    "error_message" / string.nullable().default(None),
    "responses"
    / array(
        "AlterShareGroupOffsetsResponseTopic",
        "topic_name" / string,
        "topic_id" / uuid,
        "partitions"
        / array(
            "AlterShareGroupOffsetsResponsePartition",
            "partition_index" / int32,
            "error_code" / int16,
            "error_message" / string.nullable().default(None),
        ),
    ),
)
(
    AlterShareGroupOffsetsResponseTopic,
    AlterShareGroupOffsetsResponsePartition,
) = AlterShareGroupOffsetsResponse.structs

DeleteShareGroupOffsetsRequest = message(
    "DeleteShareGroupOffsetsRequest", key=92, versions=(0, 0), flexible=0
)(
    "group_id" / string,
    "topics"
    / array(
        "DeleteShareGroupOffsetsRequestTopic",
        "topic_name" / string,
    ),
)
(DeleteShareGroupOffsetsRequestTopic,) = DeleteShareGroupOffsetsRequest.structs

DeleteShareGroupOffsetsResponse = message(
    "DeleteShareGroupOffsetsResponse", key=92, versions=(0, 0), flexible=0
)(
    "throttle_time_ms" / int32,
    "error_code" / int16,
    "error_message" / string.nullable().default(None),
    "responses"
    / array(
        "DeleteShareGroupOffsetsResponseTopic",
        "topic_name" / string,
        "topic_id" / uuid,
        "error_code" / int16,
        "error_message" / string.nullable().default(None),
    ),
)
(DeleteShareGroupOffsetsResponseTopic,) = DeleteShareGroupOffsetsResponse.structs
