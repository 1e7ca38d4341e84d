"""ShareFetch and ShareAcknowledge: reading and acknowledging as a member of a share group (KIP-932).

Topics go by id alone. Version 0, an early access of Kafka 4.0, is served by nobody. Kafka calls
structs of these messages by the names that Fetch has; here each has a name of its own.
"""

from kumquat.gateway.wire.declare import (
    array,
    bool_,
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

ShareFetchRequest = message("ShareFetchRequest", key=78, versions=(1, 2), flexible=0)(
    "group_id" / string.nullable().default(None),
    "member_id" / string.nullable(),
    "share_session_epoch" / int32,
    "max_wait_ms" / int32,
    "min_bytes" / int32,
    "max_bytes" / int32.default(2147483647),
    "max_records" / int32,
    "batch_size" / int32,
    "share_acquire_mode" / int8.since(2).ignorable(),
    "is_renew_ack" / bool_.since(2),
    "topics"
    / array(
        "ShareFetchTopic",
        "topic_id" / uuid,
        "partitions"
        / array(
            "ShareFetchPartition",
            "partition_index" / int32,
            "acknowledgement_batches"
            / array(
                "ShareFetchAcknowledgement",
                "first_offset" / int64,
                "last_offset" / int64,
                "acknowledge_types" / array(int8),
            ),
        ),
    ),
    "forgotten_topics_data"
    / array(
        "ShareForgottenTopic",
        "topic_id" / uuid,
        "partitions" / array(int32),
    ),
)
(
    ShareFetchTopic,
    ShareFetchPartition,
    ShareFetchAcknowledgement,
    ShareForgottenTopic,
) = ShareFetchRequest.structs

ShareFetchResponse = message("ShareFetchResponse", key=78, versions=(1, 2), flexible=0)(
    "throttle_time_ms" / int32,
    "error_code" / int16,
    "error_message" / string.nullable().default(None),
    "acquisition_lock_timeout_ms" / int32,
    "responses"
    / array(
        "ShareFetchableTopicResponse",
        "topic_id" / uuid,
        "partitions"
        / array(
            "SharePartitionData",
            "partition_index" / int32,
            "error_code" / int16,
            "error_message" / string.nullable().default(None),
            "acknowledge_error_code" / int16,
            "acknowledge_error_message" / string.nullable().default(None),
            "current_leader"
            / struct(
                "ShareFetchLeader",
                "leader_id" / int32,
                "leader_epoch" / int32,
            ),
            "records" / records.default(b""),
            "acquired_records"
            / array(
                "AcquiredRecords",
                "first_offset" / int64,
                "last_offset" / int64,
                "delivery_count" / int16,
            ),
        ),
    ),
    "node_endpoints"
    / array(
        "ShareFetchNodeEndpoint",
        "node_id" / int32,
        "host" / string,
        "port" / int32,
        "rack" / string.nullable().default(None),
    ),
)
(
    ShareFetchableTopicResponse,
    SharePartitionData,
    ShareFetchLeader,
    AcquiredRecords,
    ShareFetchNodeEndpoint,
) = ShareFetchResponse.structs

ShareAcknowledgeRequest = message("ShareAcknowledgeRequest", key=79, versions=(1, 2), flexible=0)(
    "group_id" / string.nullable().default(None),
    "member_id" / string.nullable(),
    "share_session_epoch" / int32,
    "is_renew_ack" / bool_.since(2),
    "topics"
    / array(
        "AcknowledgeTopic",
        "topic_id" / uuid,
        "partitions"
        / array(
            "AcknowledgePartition",
            "partition_index" / int32,
            "acknowledgement_batches"
            / array(
                "AcknowledgementBatch",
                "first_offset" / int64,
                "last_offset" / int64,
                "acknowledge_types" / array(int8),
            ),
        ),
    ),
)
AcknowledgeTopic, AcknowledgePartition, AcknowledgementBatch = ShareAcknowledgeRequest.structs

ShareAcknowledgeResponse = message("ShareAcknowledgeResponse", key=79, versions=(1, 2), flexible=0)(
    "throttle_time_ms" / int32,
    "error_code" / int16,
    "error_message" / string.nullable().default(None),
    "acquisition_lock_timeout_ms" / int32.since(2).ignorable(),
    "responses"
    / array(
        "ShareAcknowledgeTopicResponse",
        "topic_id" / uuid,
        "partitions"
        / array(
            "AcknowledgedPartition",
            "partition_index" / int32,
            "error_code" / int16,
            "error_message" / string.nullable().default(None),
            "current_leader"
            / struct(
                "AcknowledgeLeader",
                "leader_id" / int32,
                "leader_epoch" / int32,
            ),
        ),
    ),
    "node_endpoints"
    / array(
        "AcknowledgeNodeEndpoint",
        "node_id" / int32,
        "host" / string,
        "port" / int32,
        "rack" / string.nullable().default(None),
    ),
)
(
    ShareAcknowledgeTopicResponse,
    AcknowledgedPartition,
    AcknowledgeLeader,
    AcknowledgeNodeEndpoint,
) = ShareAcknowledgeResponse.structs
