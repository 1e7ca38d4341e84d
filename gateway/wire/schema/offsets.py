"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a log begins and ends."""

from kumquat.gateway.wire.declare import array, int8, int16, int32, int64, string
from kumquat.gateway.wire.message import message

ListOffsetsRequest = message("ListOffsetsRequest", key=2, versions=(1, 10), flexible=6)(
    "replica_id" / int32,
    "isolation_level" / int8.since(2),
    "topics"
    / array(
        "ListOffsetsTopic",
        "name" / string,
        "partitions"
        / array(
            "ListOffsetsPartition",
            "partition_index" / int32,
            "current_leader_epoch" / int32.since(4).default(-1).ignorable(),
            "timestamp" / int64,
        ),
    ),
    "timeout_ms" / int32.since(10).ignorable(),
)
ListOffsetsTopic, ListOffsetsPartition = ListOffsetsRequest.structs

ListOffsetsResponse = message("ListOffsetsResponse", key=2, versions=(1, 10), flexible=6)(
    "throttle_time_ms" / int32.since(2).ignorable(),
    "topics"
    / array(
        "ListOffsetsTopicResponse",
        "name" / string,
        "partitions"
        / array(
            "ListOffsetsPartitionResponse",
            "partition_index" / int32,
            "error_code" / int16,
            "timestamp" / int64.default(-1),
            "offset" / int64.default(-1),
            "leader_epoch" / int32.since(4).default(-1),
        ),
    ),
)
ListOffsetsTopicResponse, ListOffsetsPartitionResponse = ListOffsetsResponse.structs

OffsetForLeaderEpochRequest = message(
    "OffsetForLeaderEpochRequest", key=23, versions=(2, 4), flexible=4
)(
    "replica_id" / int32.since(3).default(-2).ignorable(),
    "topics"
    / array(
        "OffsetForLeaderTopic",
        "topic" / string,
        "partitions"
        / array(
            "OffsetForLeaderPartition",
            "partition" / int32,
            "current_leader_epoch" / int32.default(-1),
            "leader_epoch" / int32,
        ),
    ),
)
OffsetForLeaderTopic, OffsetForLeaderPartition = OffsetForLeaderEpochRequest.structs

OffsetForLeaderEpochResponse = message(
    "OffsetForLeaderEpochResponse", key=23, versions=(2, 4), flexible=4
)(
    "throttle_time_ms" / int32,
    "topics"
    / array(
        "OffsetForLeaderTopicResult",
        "topic" / string,
        "partitions"
        / array(
            "EpochEndOffset",
            "error_code" / int16,
            "partition" / int32,
            "leader_epoch" / int32.default(-1),
            "end_offset" / int64.default(-1),
        ),
    ),
)
OffsetForLeaderTopicResult, EpochEndOffset = OffsetForLeaderEpochResponse.structs

DeleteRecordsRequest = message("DeleteRecordsRequest", key=21, versions=(0, 2), flexible=2)(
    "topics"
    / array(
        "DeleteRecordsTopic",
        "name" / string,
        "partitions"
        / array(
            "DeleteRecordsPartition",
            "partition_index" / int32,
            "offset" / int64,
        ),
    ),
    "timeout_ms" / int32,
)
DeleteRecordsTopic, DeleteRecordsPartition = DeleteRecordsRequest.structs

DeleteRecordsResponse = message("DeleteRecordsResponse", key=21, versions=(0, 2), flexible=2)(
    "throttle_time_ms" / int32,
    "topics"
    / array(
        "DeleteRecordsTopicResult",
        "name" / string,
        "partitions"
        / array(
            "DeleteRecordsPartitionResult",
            "partition_index" / int32,
            "low_watermark" / int64,
            "error_code" / int16,
        ),
    ),
)
DeleteRecordsTopicResult, DeleteRecordsPartitionResult = DeleteRecordsResponse.structs
