"""First net: a slip in a declaration, found by comparing with Kafka's own JSON schemas.

kafka-python ships those (kafka_schemas.py has the few that it lacks). For every version served, the
fields that are there must agree in name, order, type, nullability, tag and default; and, where a
field is missing from a served version, in whether it may be ignored. Struct names must agree except
where two messages share one (RENAMED).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.wire.declare import ZERO_UUID
from kumquat.gateway.wire.message import REQUESTS, RESPONSES
from kumquat.gateway.wire.tests.kafka_schemas import kafka_schema
from kumquat.gateway.wire.tests.samples import CASES, IDS, MESSAGES

if TYPE_CHECKING:
    from kumquat.gateway.wire.declare import Structure, Type
    from kumquat.gateway.wire.message import Message

# Ours, where Kafka uses one name for the structs of two messages.
RENAMED = {
    "ProduceLeader": "LeaderIdAndEpoch",
    "ProduceNodeEndpoint": "NodeEndpoint",
    "FetchEpochEndOffset": "EpochEndOffset",
    "IncrementalAlterConfigsResource": "AlterConfigsResource",
    "IncrementalAlterableConfig": "AlterableConfig",
    "IncrementalAlterConfigsResourceResponse": "AlterConfigsResourceResponse",
    "SubscriptionTopicPartition": "TopicPartition",
    "AssignmentTopicPartition": "TopicPartition",
    "OwnedTopicPartitions": "TopicPartitions",
    "AssignedTopicPartitions": "TopicPartitions",
    "ConsumerGroupAssignment": "Assignment",
    "DescribedConsumerGroup": "DescribedGroup",
    "DescribedConsumerGroupMember": "Member",
    "DescribedAssignment": "Assignment",
    "DescribedTopicPartitions": "TopicPartitions",
    "ShareFetchTopic": "FetchTopic",
    "ShareFetchPartition": "FetchPartition",
    "ShareFetchAcknowledgement": "AcknowledgementBatch",
    "ShareForgottenTopic": "ForgottenTopic",
    "SharePartitionData": "PartitionData",
    "ShareFetchLeader": "LeaderIdAndEpoch",
    "ShareFetchNodeEndpoint": "NodeEndpoint",
    "AcknowledgedPartition": "PartitionData",
    "AcknowledgeLeader": "LeaderIdAndEpoch",
    "AcknowledgeNodeEndpoint": "NodeEndpoint",
    "ShareGroupAssignment": "Assignment",
    "ShareTopicPartitions": "TopicPartitions",
    "DescribedShareGroup": "DescribedGroup",
    "DescribedShareGroupMember": "Member",
    "DescribedShareAssignment": "Assignment",
    "DescribedShareTopicPartitions": "TopicPartitions",
}
FOREVER = 0x7FFF
JSON_DEFAULTS = {"bool": False, "string": "", "bytes": b"", "uuid": ZERO_UUID, "records": None}


def span(text: str | None) -> range:
    if text is None or text == "none":
        return range(0)
    first, dash, last = text.partition("-")
    if text.endswith("+"):
        return range(int(text[:-1]), FOREVER)
    return range(int(first), int(last if dash else first) + 1)


def json_default(field: dict[str, Any], kind: str) -> Any:
    given = field.get("default")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind[0].isupper():
        return None if "tag" in field else "a struct"
    if kind == "records" and "nullableVersions" not in field:
        return b""  # Kafka's classes begin with null, which this field cannot hold
    if given is None:
        return JSON_DEFAULTS.get(kind, 0)
    if kind == "bool":
        return str(given).lower() == "true"
    return given if kind == "string" else int(str(given), 0)


def json_fields(fields: list[dict[str, Any]], version: int) -> list[Any]:
    rows = []
    for field in fields:
        if version not in span(field["versions"]):
            continue
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower()
        tagged = version in span(field.get("taggedVersions"))
        nested = json_fields(field["fields"], version) if "fields" in field else None
        nullable = version in span(field.get("nullableVersions"))
        tag = field["tag"] if tagged else None
        default = json_default(field, field["type"])
        rows.append((name, field["type"], nullable, tag, default, nested))
    return rows


def type_name(type_: Type) -> str:
    if type_.element is not None:
        return "[]" + type_name(type_.element)
    if type_.structure is not None:
        return RENAMED.get(type_.structure.name, type_.structure.name)
    return type_.kind


def our_fields(structure: Structure, version: int) -> list[Any]:
    rows = []
    for field in structure.fields:
        type_ = field.type
        if not type_.present(version):
            continue
        inner = (type_.element or type_).structure
        nested = None if inner is None else our_fields(inner, version)
        default = "a struct" if type_.default_is_fresh and not type_.element else None
        default = default or type_.default_value()
        nullable = type_.null_allowed(version)
        rows.append((field.name, type_name(type_), nullable, type_.tag, default, nested))
    return rows


@pytest.mark.parametrize(("message", "version"), CASES, ids=IDS)
def test_field_differs_from_kafkas_schema(message: type[Message], version: int) -> None:
    schema = kafka_schema(message.__name__)
    assert our_fields(message.structure, version) == json_fields(schema["fields"], version)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_key_or_versions_differ_from_kafkas_schema(message: type[Message]) -> None:
    schema = kafka_schema(message.__name__)
    assert message.api_key == schema.get("apiKey", -1)
    assert set(message.valid_versions) <= set(span(schema["validVersions"]))
    for version in message.valid_versions:
        assert message.is_flexible(version) == (version in span(schema["flexibleVersions"]))


def ignorable_in_json(
    fields: list[dict[str, Any]], served: range, path: str = ""
) -> dict[str, bool]:
    found = {}
    for field in fields:
        here = [version for version in served if version in span(field["versions"])]
        name = path + re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower()
        if here and len(here) < len(served):
            found[name] = bool(field.get("ignorable"))
        if here and "fields" in field:
            inside = range(here[0], here[-1] + 1)
            found |= ignorable_in_json(field["fields"], inside, name + ".")
    return found


def ignorable_in_ours(structure: Structure, served: range, path: str = "") -> dict[str, bool]:
    found = {}
    for field in structure.fields:
        here = [version for version in served if field.type.present(version)]
        inner = (field.type.element or field.type).structure
        if len(here) < len(served):
            found[path + field.name] = field.type.is_ignorable
        if inner is not None:
            inside = range(here[0], here[-1] + 1)
            found |= ignorable_in_ours(inner, inside, f"{path}{field.name}.")
    return found


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_ignorable_differs_from_kafkas_schema(message: type[Message]) -> None:
    schema = kafka_schema(message.__name__)
    served = message.valid_versions
    ours = ignorable_in_ours(message.structure, served)
    assert ours == ignorable_in_json(schema["fields"], served)


def test_request_without_response() -> None:
    assert REQUESTS.keys() == RESPONSES.keys()
    for key, request in REQUESTS.items():
        assert request.valid_versions == RESPONSES[key].valid_versions
        assert request.flexible_from == RESPONSES[key].flexible_from
