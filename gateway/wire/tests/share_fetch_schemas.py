"""ShareFetch and ShareAcknowledge as Apache Kafka 4.3.1 defines them.

Left out is what version 0 alone has: `PartitionMaxBytes`, and records that may be null.
"""

from __future__ import annotations

from kumquat.gateway.wire.tests.kafka_notation import api, field, nullable

BATCHES = field(
    "AcknowledgementBatches",
    "[]AcknowledgementBatch",
    fields=[
        field("FirstOffset", "int64"),
        field("LastOffset", "int64"),
        field("AcknowledgeTypes", "[]int8"),
    ],
)
ACKNOWLEDGED = [field("PartitionIndex", "int32"), BATCHES]
RENEWS = field("IsRenewAck", "bool", versions="2+", default="false")
LEADER = field(
    "CurrentLeader",
    "LeaderIdAndEpoch",
    fields=[field("LeaderId", "int32"), field("LeaderEpoch", "int32")],
)
NODES = field(
    "NodeEndpoints",
    "[]NodeEndpoint",
    fields=[
        field("NodeId", "int32"),
        field("Host", "string"),
        field("Port", "int32"),
        nullable("Rack", "string"),
    ],
)
ACQUIRED = [
    field("FirstOffset", "int64"),
    field("LastOffset", "int64"),
    field("DeliveryCount", "int16"),
]
FETCHED = [
    field("PartitionIndex", "int32"),
    field("ErrorCode", "int16"),
    nullable("ErrorMessage", "string"),
    field("AcknowledgeErrorCode", "int16"),
    nullable("AcknowledgeErrorMessage", "string"),
    LEADER,
    field("Records", "records"),
    field("AcquiredRecords", "[]AcquiredRecords", fields=ACQUIRED),
]
RESULT = [
    field("PartitionIndex", "int32"),
    field("ErrorCode", "int16"),
    nullable("ErrorMessage", "string"),
    LEADER,
]

SHARE_FETCH = [
    api(
        78,
        "ShareFetchRequest",
        nullable("GroupId", "string"),
        field("MemberId", "string", nullableVersions="0+"),
        field("ShareSessionEpoch", "int32"),
        field("MaxWaitMs", "int32"),
        field("MinBytes", "int32"),
        field("MaxBytes", "int32", default="0x7fffffff"),
        field("MaxRecords", "int32", versions="1+"),
        field("BatchSize", "int32", versions="1+"),
        field("ShareAcquireMode", "int8", versions="2+", default="0", ignorable=True),
        RENEWS,
        field(
            "Topics",
            "[]FetchTopic",
            fields=[
                field("TopicId", "uuid"),
                field("Partitions", "[]FetchPartition", fields=ACKNOWLEDGED),
            ],
        ),
        field(
            "ForgottenTopicsData",
            "[]ForgottenTopic",
            fields=[field("TopicId", "uuid"), field("Partitions", "[]int32")],
        ),
        versions="1-2",
    ),
    api(
        78,
        "ShareFetchResponse",
        field("ThrottleTimeMs", "int32"),
        field("ErrorCode", "int16"),
        nullable("ErrorMessage", "string"),
        field("AcquisitionLockTimeoutMs", "int32", versions="1+"),
        field(
            "Responses",
            "[]ShareFetchableTopicResponse",
            fields=[
                field("TopicId", "uuid"),
                field("Partitions", "[]PartitionData", fields=FETCHED),
            ],
        ),
        NODES,
        versions="1-2",
    ),
    api(
        79,
        "ShareAcknowledgeRequest",
        nullable("GroupId", "string"),
        field("MemberId", "string", nullableVersions="0+"),
        field("ShareSessionEpoch", "int32"),
        RENEWS,
        field(
            "Topics",
            "[]AcknowledgeTopic",
            fields=[
                field("TopicId", "uuid"),
                field("Partitions", "[]AcknowledgePartition", fields=ACKNOWLEDGED),
            ],
        ),
        versions="1-2",
    ),
    api(
        79,
        "ShareAcknowledgeResponse",
        field("ThrottleTimeMs", "int32"),
        field("ErrorCode", "int16"),
        nullable("ErrorMessage", "string"),
        field("AcquisitionLockTimeoutMs", "int32", versions="2+", ignorable=True),
        field(
            "Responses",
            "[]ShareAcknowledgeTopicResponse",
            fields=[
                field("TopicId", "uuid"),
                field("Partitions", "[]PartitionData", fields=RESULT),
            ],
        ),
        NODES,
        versions="1-2",
    ),
]
