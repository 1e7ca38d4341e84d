"""Kafka's schemas for the tests: kafka-python's, and those of the two APIs that it does not ship.

ConsumerGroupHeartbeat and ConsumerGroupDescribe are written out here as Apache Kafka 4.3.1 defines
them (in its clients jar, under common/message), in its notation and with its names.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.schemas import load_json


def field(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "versions": "0+", **more}


def nullable(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {**field(name, kind), "nullableVersions": "0+", "default": "null", **more}


def api(key: int, name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiKey": key,
        "name": name,
        "type": name[-7:].lower(),
        "validVersions": "0-1",
        "flexibleVersions": "0+",
        "fields": list(fields),
    }


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


def kafka_schema(name: str) -> dict[str, Any]:
    for schema in OWN:
        if schema["name"] == name:
            return schema
    schema = load_json(name)
    assert isinstance(schema, dict)
    return schema
