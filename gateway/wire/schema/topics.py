"""CreateTopics, DeleteTopics and CreatePartitions."""

from kumquat.gateway.wire.declare import array, bool_, int8, int16, int32, string, uuid
from kumquat.gateway.wire.message import message

CreateTopicsRequest = message("CreateTopicsRequest", key=19, versions=(2, 7), flexible=5)(
    "topics"
    / array(
        "CreatableTopic",
        "name" / string,
        "num_partitions" / int32,
        "replication_factor" / int16,
        "assignments"
        / array(
            "CreatableReplicaAssignment",
            "partition_index" / int32,
            "broker_ids" / array(int32),
        ),
        "configs"
        / array(
            "CreatableTopicConfig",
            "name" / string,
            "value" / string.nullable(),
        ),
    ),
    "timeout_ms" / int32.default(60000),
    "validate_only" / bool_,
)
CreatableTopic, CreatableReplicaAssignment, CreatableTopicConfig = CreateTopicsRequest.structs

CreateTopicsResponse = message("CreateTopicsResponse", key=19, versions=(2, 7), flexible=5)(
    "throttle_time_ms" / int32,
    "topics"
    / array(
        "CreatableTopicResult",
        "name" / string,
        "topic_id" / uuid.since(7).ignorable(),
        "error_code" / int16,
        "error_message" / string.nullable(),
        "topic_config_error_code" / int16.ignorable().tagged(0, since=5),
        "num_partitions" / int32.since(5).default(-1).ignorable(),
        "replication_factor" / int16.since(5).default(-1).ignorable(),
        "configs"
        / array(
            "CreatableTopicConfigs",
            "name" / string,
            "value" / string.nullable(),
            "read_only" / bool_,
            "config_source" / int8.default(-1),
            "is_sensitive" / bool_,
        )
        .since(5)
        .nullable()
        .ignorable(),
    ),
)
CreatableTopicResult, CreatableTopicConfigs = CreateTopicsResponse.structs

DeleteTopicsRequest = message("DeleteTopicsRequest", key=20, versions=(1, 6), flexible=4)(
    "topics"
    / array(
        "DeleteTopicState",
        "name" / string.nullable().default(None),
        "topic_id" / uuid,
    ).since(6),
    "topic_names" / array(string).until(5).ignorable(),
    "timeout_ms" / int32,
)
(DeleteTopicState,) = DeleteTopicsRequest.structs

DeleteTopicsResponse = message("DeleteTopicsResponse", key=20, versions=(1, 6), flexible=4)(
    "throttle_time_ms" / int32,
    "responses"
    / array(
        "DeletableTopicResult",
        "name" / string.nullable(6),
        "topic_id" / uuid.since(6).ignorable(),
        "error_code" / int16,
        "error_message" / string.since(5).nullable().default(None).ignorable(),
    ),
)
(DeletableTopicResult,) = DeleteTopicsResponse.structs

CreatePartitionsRequest = message("CreatePartitionsRequest", key=37, versions=(0, 3), flexible=2)(
    "topics"
    / array(
        "CreatePartitionsTopic",
        "name" / string,
        "count" / int32,
        "assignments"
        / array(
            "CreatePartitionsAssignment",
            "broker_ids" / array(int32),
        ).nullable(),
    ),
    "timeout_ms" / int32,
    "validate_only" / bool_,
)
CreatePartitionsTopic, CreatePartitionsAssignment = CreatePartitionsRequest.structs

CreatePartitionsResponse = message("CreatePartitionsResponse", key=37, versions=(0, 3), flexible=2)(
    "throttle_time_ms" / int32,
    "results"
    / array(
        "CreatePartitionsTopicResult",
        "name" / string,
        "error_code" / int16,
        "error_message" / string.nullable().default(None),
    ),
)
(CreatePartitionsTopicResult,) = CreatePartitionsResponse.structs
