"""Produce and InitProducerId: writing, plain and idempotent.

Produce is served from version 3, the first with record batches of magic 2.
"""

from kumquat.gateway.wire.declare import array, int16, int32, int64, records, string, struct, uuid
from kumquat.gateway.wire.message import message

ProduceRequest = message("ProduceRequest", key=0, versions=(3, 13), flexible=9)(
    "transactional_id" / string.nullable().default(None),
    "acks" / int16,
    "timeout_ms" / int32,
    "topic_data"
    / array(
        "TopicProduceData",
        "name" / string.until(12).ignorable(),
        "topic_id" / uuid.since(13).ignorable(),
        "partition_data"
        / array(
            "PartitionProduceData",
            "index" / int32,
            "records" / records.nullable(),
        ),
    ),
)
TopicProduceData, PartitionProduceData = ProduceRequest.structs

ProduceResponse = message("ProduceResponse", key=0, versions=(3, 13), flexible=9)(
    "responses"
    / array(
        "TopicProduceResponse",
        "name" / string.until(12).ignorable(),
        "topic_id" / uuid.since(13).ignorable(),
        "partition_responses"
        / array(
            "PartitionProduceResponse",
            "index" / int32,
            "error_code" / int16,
            "base_offset" / int64,
            "log_append_time_ms" / int64.default(-1),
            "log_start_offset" / int64.since(5).default(-1).ignorable(),
            "record_errors"
            / array(
                "BatchIndexAndErrorMessage",
                "batch_index" / int32,
                "batch_index_error_message" / string.nullable().default(None),
            )
            .since(8)
            .ignorable(),
            "error_message" / string.since(8).nullable().default(None).ignorable(),
            "current_leader"
            / struct(
                "ProduceLeader",
                "leader_id" / int32.default(-1),
                "leader_epoch" / int32.default(-1),
            ).tagged(0, since=10),
        ),
    ),
    "throttle_time_ms" / int32,
    "node_endpoints"
    / array(
        "ProduceNodeEndpoint",
        "node_id" / int32,
        "host" / string,
        "port" / int32,
        "rack" / string.nullable().default(None),
    ).tagged(0, since=10),
)
(
    TopicProduceResponse,
    PartitionProduceResponse,
    BatchIndexAndErrorMessage,
    ProduceLeader,
    ProduceNodeEndpoint,
) = ProduceResponse.structs

InitProducerIdRequest = message("InitProducerIdRequest", key=22, versions=(0, 5), flexible=2)(
    "transactional_id" / string.nullable(),
    "transaction_timeout_ms" / int32,
    "producer_id" / int64.since(3).default(-1),
    "producer_epoch" / int16.since(3).default(-1),
)

InitProducerIdResponse = message("InitProducerIdResponse", key=22, versions=(0, 5), flexible=2)(
    "throttle_time_ms" / int32,
    "error_code" / int16,
    "producer_id" / int64.default(-1),
    "producer_epoch" / int16,
)
