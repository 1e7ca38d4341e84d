"""Fetch: reading by offset, with long poll. Names up to version 12, topic ids from 13."""

from kumquat.gateway.wire.declare import (
    array,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)
from kumquat.gateway.wire.message import message

FetchRequest = message("FetchRequest", key=1, versions=(4, 17), flexible=12)(
    "cluster_id" / string.nullable().default(None).ignorable().tagged(0, since=12),
    "replica_id" / int32.until(14).default(-1),
    "replica_state"
    / struct(
        "ReplicaState",
        "replica_id" / int32.default(-1),
        "replica_epoch" / int64.default(-1),
    ).tagged(1, since=15),
    "max_wait_ms" / int32,
    "min_bytes" / int32,
    "max_bytes" / int32.default(2147483647),
    "isolation_level" / int8,
    "session_id" / int32.since(7).ignorable(),
    "session_epoch" / int32.since(7).default(-1).ignorable(),
    "topics"
    / array(
        "FetchTopic",
        "topic" / string.until(12).ignorable(),
        "topic_id" / uuid.since(13).ignorable(),
        "partitions"
        / array(
            "FetchPartition",
            "partition" / int32,
            "current_leader_epoch" / int32.since(9).default(-1).ignorable(),
            "fetch_offset" / int64,
            "last_fetched_epoch" / int32.since(12).default(-1),
            "log_start_offset" / int64.since(5).default(-1).ignorable(),
            "partition_max_bytes" / int32,
            "replica_directory_id" / uuid.ignorable().tagged(0, since=17),
        ),
    ),
    "forgotten_topics_data"
    / array(
        "ForgottenTopic",
        "topic" / string.until(12).ignorable(),
        "topic_id" / uuid.since(13).ignorable(),
        "partitions" / array(int32),
    ).since(7),
    "rack_id" / string.since(11).ignorable(),
)
ReplicaState, FetchTopic, FetchPartition, ForgottenTopic = FetchRequest.structs

FetchResponse = message("FetchResponse", key=1, versions=(4, 17), flexible=12)(
    "throttle_time_ms" / int32,
    "error_code" / int16.since(7).ignorable(),
    "session_id" / int32.since(7),
    "responses"
    / array(
        "FetchableTopicResponse",
        "topic" / string.until(12).ignorable(),
        "topic_id" / uuid.since(13).ignorable(),
        "partitions"
        / array(
            "PartitionData",
            "partition_index" / int32,
            "error_code" / int16,
            "high_watermark" / int64,
            "last_stable_offset" / int64.default(-1),
            "log_start_offset" / int64.since(5).default(-1).ignorable(),
            "diverging_epoch"
            / struct(
                "FetchEpochEndOffset",
                "epoch" / int32.default(-1),
                "end_offset" / int64.default(-1),
            ).tagged(0, since=12),
            "current_leader"
            / struct(
                "LeaderIdAndEpoch",
                "leader_id" / int32.default(-1),
                "leader_epoch" / int32.default(-1),
            ).tagged(1, since=12),
            "snapshot_id"
            / struct(
                "SnapshotId",
                "end_offset" / int64.default(-1),
                "epoch" / int32.default(-1),
            ).tagged(2, since=12),
            "aborted_transactions"
            / array(
                "AbortedTransaction",
                "producer_id" / int64,
                "first_offset" / int64,
            ).nullable(),
            "preferred_read_replica" / int32.since(11).default(-1),
            "records" / records.nullable(),
        ),
    ),
    "node_endpoints"
    / array(
        "NodeEndpoint",
        "node_id" / int32,
        "host" / string,
        "port" / int32,
        "rack" / string.nullable().default(None),
    ).tagged(0, since=16),
)
(
    FetchableTopicResponse,
    PartitionData,
    FetchEpochEndOffset,
    LeaderIdAndEpoch,
    SnapshotId,
    AbortedTransaction,
    NodeEndpoint,
) = FetchResponse.structs
