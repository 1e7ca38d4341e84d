"""OffsetCommit, OffsetFetch and OffsetDelete: how far a group has come."""

from kumquat.gateway.wire.declare import array, bool_, int16, int32, int64, string
from kumquat.gateway.wire.message import message

OffsetCommitRequest = message("OffsetCommitRequest", key=8, versions=(2, 9), flexible=8)(
    "group_id" / string,
    "generation_id_or_member_epoch" / int32.default(-1),
    "member_id" / string,
    "group_instance_id" / string.since(7).nullable().default(None),
    "retention_time_ms" / int64.until(4).default(-1).ignorable(),
    "topics"
    / array(
        "OffsetCommitRequestTopic",
        "name" / string,
        "partitions"
        / array(
            "OffsetCommitRequestPartition",
            "partition_index" / int32,
            "committed_offset" / int64,
            "committed_leader_epoch" / int32.since(6).default(-1).ignorable(),
            "committed_metadata" / string.nullable(),
        ),
    ),
)
OffsetCommitRequestTopic, OffsetCommitRequestPartition = OffsetCommitRequest.structs

OffsetCommitResponse = message("OffsetCommitResponse", key=8, versions=(2, 9), flexible=8)(
    "throttle_time_ms" / int32.since(3).ignorable(),
    "topics"
    / array(
        "OffsetCommitResponseTopic",
        "name" / string,
        "partitions"
        / array(
            "OffsetCommitResponsePartition",
            "partition_index" / int32,
            "error_code" / int16,
        ),
    ),
)
OffsetCommitResponseTopic, OffsetCommitResponsePartition = OffsetCommitResponse.structs

OffsetFetchRequest = message("OffsetFetchRequest", key=9, versions=(1, 9), flexible=6)(
    "group_id" / string.until(7),
    "topics"
    / array(
        "OffsetFetchRequestTopic",
        "name" / string,
        "partition_indexes" / array(int32),
    )
    .until(7)
    .nullable(2),
    "groups"
    / array(
        "OffsetFetchRequestGroup",
        "group_id" / string,
        "member_id" / string.since(9).nullable().default(None).ignorable(),
        "member_epoch" / int32.since(9).default(-1).ignorable(),
        "topics"
        / array(
            "OffsetFetchRequestTopics",
            "name" / string,
            "partition_indexes" / array(int32),
        ).nullable(),
    ).since(8),
    "require_stable" / bool_.since(7),
)
OffsetFetchRequestTopic, OffsetFetchRequestGroup, OffsetFetchRequestTopics = (
    OffsetFetchRequest.structs
)

OffsetFetchResponse = message("OffsetFetchResponse", key=9, versions=(1, 9), flexible=6)(
    "throttle_time_ms" / int32.since(3).ignorable(),
    "topics"
    / array(
        "OffsetFetchResponseTopic",
        "name" / string,
        "partitions"
        / array(
            "OffsetFetchResponsePartition",
            "partition_index" / int32,
            "committed_offset" / int64,
            "committed_leader_epoch" / int32.since(5).default(-1).ignorable(),
            "metadata" / string.nullable(),
            "error_code" / int16,
        ),
    ).until(7),
    "error_code" / int16.since(2).until(7).ignorable(),
    "groups"
    / array(
        "OffsetFetchResponseGroup",
        "group_id" / string,
        "topics"
        / array(
            "OffsetFetchResponseTopics",
            "name" / string,
            "partitions"
            / array(
                "OffsetFetchResponsePartitions",
                "partition_index" / int32,
                "committed_offset" / int64,
                "committed_leader_epoch" / int32.default(-1),
                "metadata" / string.nullable(),
                "error_code" / int16,
            ),
        ),
        "error_code" / int16,
    ).since(8),
)
(
    OffsetFetchResponseTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
    OffsetFetchResponsePartitions,
) = OffsetFetchResponse.structs

OffsetDeleteRequest = message("OffsetDeleteRequest", key=47, versions=(0, 0), flexible=None)(
    "group_id" / string,
    "topics"
    / array(
        "OffsetDeleteRequestTopic",
        "name" / string,
        "partitions"
        / array(
            "OffsetDeleteRequestPartition",
            "partition_index" / int32,
        ),
    ),
)
OffsetDeleteRequestTopic, OffsetDeleteRequestPartition = OffsetDeleteRequest.structs

OffsetDeleteResponse = message("OffsetDeleteResponse", key=47, versions=(0, 0), flexible=None)(
    "error_code" / int16,
    "throttle_time_ms" / int32,
    "topics"
    / array(
        "OffsetDeleteResponseTopic",
        "name" / string,
        "partitions"
        / array(
            "OffsetDeleteResponsePartition",
            "partition_index" / int32,
            "error_code" / int16,
        ),
    ),
)
OffsetDeleteResponseTopic, OffsetDeleteResponsePartition = OffsetDeleteResponse.structs
