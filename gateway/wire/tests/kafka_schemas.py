"""Kafka's schemas for the tests: kafka-python's, and those of the APIs that it does not ship.

Those of consumer groups and share groups are written out here as Apache Kafka 4.3.1 defines them (in its
clients jar, under common/message), in its notation and with its names; ShareFetch and ShareAcknowledge
are in share_fetch_schemas.py.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.schemas import load_json

from kumquat.gateway.wire.tests.kafka_notation import api, field, nullable
from kumquat.gateway.wire.tests.share_fetch_schemas import SHARE_FETCH

PARTITIONS_BY_ID = [field("TopicId", "uuid"), field("Partitions", "[]int32")]
NAMED_PARTITIONS = [
    field("TopicId", "uuid"),
    field("TopicName", "string"),
    field("Partitions", "[]int32"),
]
ASSIGNMENT = [field("TopicPartitions", "[]TopicPartitions", fields=NAMED_PARTITIONS)]
MEMBER = [
    field("MemberId", "string"),
    nullable("InstanceId", "string"),
    nullable("RackId", "string"),
    field("MemberEpoch", "int32"),
    field("ClientId", "string"),
    field("ClientHost", "string"),
    field("SubscribedTopicNames", "[]string"),
    nullable("SubscribedTopicRegex", "string"),
    field("Assignment", "Assignment", fields=ASSIGNMENT),
    field("TargetAssignment", "Assignment", fields=ASSIGNMENT),
    field("MemberType", "int8", default="-1", ignorable=True) | {"versions": "1+"},
]
GROUP = [
    field("ErrorCode", "int16"),
    nullable("ErrorMessage", "string"),
    field("GroupId", "string"),
    field("GroupState", "string"),
    field("GroupEpoch", "int32"),
    field("AssignmentEpoch", "int32"),
    field("AssignorName", "string"),
    field("Members", "[]Member", fields=MEMBER),
    field("AuthorizedOperations", "int32", default="-2147483648"),
]

OWN = [
    api(
        68,
        "ConsumerGroupHeartbeatRequest",
        field("GroupId", "string"),
        field("MemberId", "string"),
        field("MemberEpoch", "int32"),
        nullable("InstanceId", "string"),
        nullable("RackId", "string"),
        field("RebalanceTimeoutMs", "int32", default="-1"),
        nullable("SubscribedTopicNames", "[]string"),
        nullable("SubscribedTopicRegex", "string", versions="1+", nullableVersions="1+"),
        nullable("ServerAssignor", "string"),
        nullable("TopicPartitions", "[]TopicPartitions", fields=PARTITIONS_BY_ID),
    ),
    api(
        68,
        "ConsumerGroupHeartbeatResponse",
        field("ThrottleTimeMs", "int32"),
        field("ErrorCode", "int16"),
        nullable("ErrorMessage", "string"),
        nullable("MemberId", "string"),
        field("MemberEpoch", "int32"),
        field("HeartbeatIntervalMs", "int32"),
        nullable(
            "Assignment",
            "Assignment",
            fields=[field("TopicPartitions", "[]TopicPartitions", fields=PARTITIONS_BY_ID)],
        ),
    ),
    api(
        69,
        "ConsumerGroupDescribeRequest",
        field("GroupIds", "[]string"),
        field("IncludeAuthorizedOperations", "bool"),
    ),
    api(
        69,
        "ConsumerGroupDescribeResponse",
        field("ThrottleTimeMs", "int32"),
        field("Groups", "[]DescribedGroup", fields=GROUP),
    ),
]

ERROR = [field("ErrorCode", "int16"), nullable("ErrorMessage", "string")]
SHARE_MEMBER = [
    field("MemberId", "string"),
    nullable("RackId", "string"),
    field("MemberEpoch", "int32"),
    field("ClientId", "string"),
    field("ClientHost", "string"),
    field("SubscribedTopicNames", "[]string"),
    field("Assignment", "Assignment", fields=ASSIGNMENT),
]
SHARE_OFFSET = [
    field("PartitionIndex", "int32"),
    field("StartOffset", "int64"),
    field("LeaderEpoch", "int32"),
    field("Lag", "int64", default=-1, ignorable=True) | {"versions": "1+"},
    *ERROR,
]


def asked(parts: str, *fields: dict[str, Any]) -> list[dict[str, Any]]:
    """A topic in a request about the offsets of a share group."""
    return [field("TopicName", "string"), field("Partitions", parts, fields=list(fields))]


def found(parts: str, *fields: dict[str, Any]) -> list[dict[str, Any]]:
    """A topic in the answer."""
    name, partitions = asked(parts, *fields)
    return [name, field("TopicId", "uuid"), partitions]


SHARE_GROUPS = [
    api(
        76,
        "ShareGroupHeartbeatRequest",
        field("GroupId", "string"),
        field("MemberId", "string"),
        field("MemberEpoch", "int32"),
        nullable("RackId", "string"),
        nullable("SubscribedTopicNames", "[]string"),
        versions="1",
    ),
    api(
        76,
        "ShareGroupHeartbeatResponse",
        field("ThrottleTimeMs", "int32"),
        *ERROR,
        nullable("MemberId", "string"),
        field("MemberEpoch", "int32"),
        field("HeartbeatIntervalMs", "int32"),
        nullable(
            "Assignment",
            "Assignment",
            fields=[field("TopicPartitions", "[]TopicPartitions", fields=PARTITIONS_BY_ID)],
        ),
        versions="1",
    ),
    api(
        77,
        "ShareGroupDescribeRequest",
        field("GroupIds", "[]string"),
        field("IncludeAuthorizedOperations", "bool"),
        versions="1",
    ),
    api(
        77,
        "ShareGroupDescribeResponse",
        field("ThrottleTimeMs", "int32"),
        field(
            "Groups",
            "[]DescribedGroup",
            fields=[
                *ERROR,
                field("GroupId", "string"),
                field("GroupState", "string"),
                field("GroupEpoch", "int32"),
                field("AssignmentEpoch", "int32"),
                field("AssignorName", "string"),
                field("Members", "[]Member", fields=SHARE_MEMBER),
                field("AuthorizedOperations", "int32", default="-2147483648"),
            ],
        ),
        versions="1",
    ),
    api(
        90,
        "DescribeShareGroupOffsetsRequest",
        field(
            "Groups",
            "[]DescribeShareGroupOffsetsRequestGroup",
            fields=[
                field("GroupId", "string"),
                field(
                    "Topics",
                    "[]DescribeShareGroupOffsetsRequestTopic",
                    nullableVersions="0+",
                    fields=[field("TopicName", "string"), field("Partitions", "[]int32")],
                ),
            ],
        ),
    ),
    api(
        90,
        "DescribeShareGroupOffsetsResponse",
        field("ThrottleTimeMs", "int32"),
        field(
            "Groups",
            "[]DescribeShareGroupOffsetsResponseGroup",
            fields=[
                field("GroupId", "string"),
                field(
                    "Topics",
                    "[]DescribeShareGroupOffsetsResponseTopic",
                    fields=found("[]DescribeShareGroupOffsetsResponsePartition", *SHARE_OFFSET),
                ),
                *ERROR,
            ],
        ),
    ),
    api(
        91,
        "AlterShareGroupOffsetsRequest",
        field("GroupId", "string"),
        field(
            "Topics",
            "[]AlterShareGroupOffsetsRequestTopic",
            fields=asked(
                "[]AlterShareGroupOffsetsRequestPartition",
                field("PartitionIndex", "int32"),
                field("StartOffset", "int64"),
            ),
        ),
        versions="0",
    ),
    api(
        91,
        "AlterShareGroupOffsetsResponse",
        field("ThrottleTimeMs", "int32"),
        *ERROR,
        field(
            "Responses",
            "[]AlterShareGroupOffsetsResponseTopic",
            fields=found(
                "[]AlterShareGroupOffsetsResponsePartition",
                field("PartitionIndex", "int32"),
                *ERROR,
            ),
        ),
        versions="0",
    ),
    api(
        92,
        "DeleteShareGroupOffsetsRequest",
        field("GroupId", "string"),
        field(
            "Topics",
            "[]DeleteShareGroupOffsetsRequestTopic",
            fields=[field("TopicName", "string")],
        ),
        versions="0",
    ),
    api(
        92,
        "DeleteShareGroupOffsetsResponse",
        field("ThrottleTimeMs", "int32"),
        *ERROR,
        field(
            "Responses",
            "[]DeleteShareGroupOffsetsResponseTopic",
            fields=[field("TopicName", "string"), field("TopicId", "uuid"), *ERROR],
        ),
        versions="0",
    ),
]


def kafka_schema(name: str) -> dict[str, Any]:
    for schema in (*OWN, *SHARE_GROUPS, *SHARE_FETCH):
        if schema["name"] == name:
            return schema
    schema = load_json(name)
    assert isinstance(schema, dict)
    return schema
