"""What the codecs promise beyond agreement: paths in errors, nothing lost in silence, no copies."""

from __future__ import annotations

import struct

import construct  # type: ignore[import-untyped]
import pytest

from kumquat.gateway.wire import (
    ConsumerGroupHeartbeatResponse,
    CreatableTopic,
    CreateTopicsRequest,
    DescribeClusterResponse,
    Encoded,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    InitProducerIdRequest,
    ListedGroup,
    ListGroupsResponse,
    ListOffsetsRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
    OffsetFetchRequest,
    PartitionData,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    WireError,
)
from kumquat.gateway.wire.decoder import MAX_REQUEST_ELEMENTS
from kumquat.gateway.wire.varint import uvarint


def produce(records: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def fetch_response(*partitions: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=list(partitions))])


def test_subscript_is_not_a_construct() -> None:
    assert isinstance(FetchRequest[12], construct.Struct)
    assert FetchRequest[12] is FetchRequest[12]
    parsed = FetchRequest[12].parse(FetchRequest[12].build({"max_wait_ms": 500, "topics": []}))
    assert (parsed.max_wait_ms, parsed.max_bytes, parsed.cluster_id) == (500, 0x7FFFFFFF, None)


@pytest.mark.parametrize("version", [3, 18])
def test_version_that_is_not_served(version: int) -> None:
    with pytest.raises(WireError, match=f"version {version} is not served"):
        FetchRequest.decode(b"", version)


def test_two_messages_share_a_default() -> None:
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchTopic())
    assert other.topics == []
    decoded, _ = FetchRequest.decode(b"".join(FetchRequest.encode(other, 4)), 4)
    decoded.forgotten_topics_data.append(one.forgotten_topics_data)  # type: ignore[arg-type]
    assert other.forgotten_topics_data == []


def test_messages_of_other_values_or_classes_are_equal() -> None:
    assert FetchTopic(topic="a") == FetchTopic(topic="a")
    assert FetchTopic(topic="a") != FetchTopic(topic="b")
    assert EpochEndOffset() != FetchEpochEndOffset()
    assert repr(FetchEpochEndOffset(epoch=3)) == "FetchEpochEndOffset(epoch=3, end_offset=-1)"


def test_unknown_field_name_is_accepted() -> None:
    with pytest.raises(TypeError, match="topik"):
        FetchTopic(topik="a")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        FetchTopic().topik = "a"  # type: ignore[attr-defined]


# -- records: views in, buffers out ------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_copied_on_decoding(version: int) -> None:
    frame = bytearray(b"".join(ProduceRequest.encode(produce(b"batch"), version)))
    request, _ = ProduceRequest.decode(memoryview(frame), version)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:] = b"BATCH"
    assert b"BATCH" in frame


@pytest.mark.parametrize("version", [4, 12])
def test_records_are_copied_on_encoding(version: int) -> None:
    first, second, third = b"first" * 50, memoryview(b"second" * 50), b"third"
    response = fetch_response(
        PartitionData(records=[first, second]),
        PartitionData(records=None),
        PartitionData(records=b""),
        PartitionData(records=third),
    )
    buffers = FetchResponse.encode(response, version)
    assert [buffer for buffer in buffers if buffer is first or buffer is second] == [first, second]
    assert any(buffer is third for buffer in buffers)
    decoded, _ = FetchResponse.decode(b"".join(buffers), version)
    found = [partition.records for partition in decoded.responses[0].partitions]
    assert found == [first + bytes(second), None, b"", third]


# -- elements encoded before -------------------------------------------------------------------


@pytest.mark.parametrize("version", range(14))
def test_elements_encoded_before_differ(version: int) -> None:
    topics = [
        MetadataResponseTopic(name=f"t{i}", partitions=[MetadataResponsePartition(leader_id=1)])
        for i in range(200)
    ]
    elements = [MetadataResponseTopic.encode_element(topic, version) for topic in topics]
    payloads = [b"".join(elements[:150]), b"".join(elements[150:])]
    (whole,) = MetadataResponse.encode(MetadataResponse(topics=topics), version)
    ready = MetadataResponse(topics=Encoded(len(topics), *payloads))
    buffers = MetadataResponse.encode(ready, version)
    assert b"".join(buffers) == whole
    assert all(any(buffer is payload for buffer in buffers) for payload in payloads), "not copied"


# -- fields that a version lacks ---------------------------------------------------------------


def test_value_is_lost_in_silence() -> None:
    request = InitProducerIdRequest(producer_id=7)
    with pytest.raises(WireError, match="producer_id: this version has no such field"):
        InitProducerIdRequest.encode(request, 2)
    with pytest.raises(construct.CheckError):
        InitProducerIdRequest[2].build(request)
    InitProducerIdRequest.encode(request, 3)


def test_array_is_lost_in_silence() -> None:
    request = FetchRequest(forgotten_topics_data=[FetchTopic()])  # type: ignore[list-item]
    with pytest.raises(WireError, match="forgotten_topics_data: this version has no such field"):
        FetchRequest.encode(request, 4)


def test_nested_value_is_lost_in_silence() -> None:
    partition = FetchPartition(last_fetched_epoch=1)
    request = FetchRequest(topics=[FetchTopic(partitions=[partition])])
    with pytest.raises(WireError) as refused:
        FetchRequest.encode(request, 11)
    assert refused.value.path == "topics[].partitions[].last_fetched_epoch"


def test_ignorable_value_is_refused() -> None:
    partition = FetchPartition(log_start_offset=5, current_leader_epoch=3)
    request = FetchRequest(rack_id="r", topics=[FetchTopic(partitions=[partition])])
    encoded = b"".join(FetchRequest.encode(request, 4))
    assert FetchRequest.decode(encoded, 4)[0].rack_id == ""
    assert FetchRequest[4].build(request) == encoded


def test_null_passes_for_an_empty_default() -> None:
    """Asking for all topics must not turn into asking for none where the field is missing."""
    with pytest.raises(WireError, match="topics: this version has no such field"):
        OffsetFetchRequest.encode(OffsetFetchRequest(topics=None), 8)


# -- what a message may not hold ---------------------------------------------------------------


def test_null_in_a_field_that_is_not_nullable() -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=None)])  # type: ignore[arg-type]
    for version in (2, 7):
        with pytest.raises(WireError) as refused:
            CreateTopicsRequest.encode(request, version)
        assert refused.value.path == "topics[].name"


@pytest.mark.parametrize(("version", "raw"), [(1, b"\xff\xff"), (6, b"\x00")])
def test_null_read_into_a_field_that_is_not_nullable(version: int, raw: bytes) -> None:
    start = b"\xff\xff\xff\xff" + (b"\x00" if version > 1 else b"")
    count = b"\x02" if version > 1 else b"\x00\x00\x00\x01"
    with pytest.raises(WireError, match="null, but not nullable") as refused:
        ListOffsetsRequest.decode(start + count + raw + bytes(8), version)
    assert refused.value.path == "topics[].name"
    assert refused.value.message == f"ListOffsetsRequest v{version}"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("x" * 0x8000, "string of 32768 bytes|argument out of range|format requires"),
        ("\udc80", "surrogates not allowed"),
        (7, "no attribute 'encode'"),
    ],
)
def test_text_that_cannot_be_sent(topic: str, reason: str) -> None:
    request = FetchRequest(topics=[FetchTopic(topic=topic)])
    for version in (4, 12):
        with pytest.raises(WireError, match=reason) as refused:
            FetchRequest.encode(request, version)
        assert refused.value.path == "topics[].topic"


def test_longest_text_is_refused() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="x" * 0x7FFF)])
    for version in (4, 12):
        encoded = b"".join(FetchRequest.encode(request, version))
        assert FetchRequest.decode(encoded, version)[0] == request


def test_text_too_long_is_read() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="x" * 0x7FFF)])
    encoded = b"".join(FetchRequest.encode(request, 12))
    longer = encoded.replace(b"\x80\x80\x02xx", b"\x81\x80\x02xxx")
    assert len(longer) == len(encoded) + 1
    with pytest.raises(WireError, match="string of 32768 bytes"):
        FetchRequest.decode(longer, 12)


def test_uuid_of_a_wrong_length_is_padded() -> None:
    request = FetchRequest(topics=[FetchTopic(topic_id=b"short")])
    with pytest.raises(WireError, match="sixteen bytes"):
        FetchRequest.encode(request, 13)


@pytest.mark.parametrize("value", [1 << 31, "1", None, 1.5])
def test_number_that_does_not_fit(value: int) -> None:
    with pytest.raises(WireError) as refused:
        FetchRequest.encode(FetchRequest(max_wait_ms=value), 12)
    assert "max_wait_ms" in refused.value.path


def test_wrong_object_in_an_array() -> None:
    with pytest.raises(WireError):
        FetchRequest.encode(FetchRequest(topics=[3]), 12)  # type: ignore[list-item]


@pytest.mark.parametrize("mark", [b"\x00", b"\x02", b"\xfe"])
def test_mark_of_a_nullable_struct_is_neither_null_nor_present(mark: bytes) -> None:
    null = b"".join(ConsumerGroupHeartbeatResponse.encode(ConsumerGroupHeartbeatResponse(), 0))
    assert null.endswith(b"\xff\x00")
    raw = null[:-2] + mark + bytes(8)
    with pytest.raises(WireError, match="neither null nor present") as refused:
        ConsumerGroupHeartbeatResponse.decode(raw, 0)
    assert refused.value.path == "assignment"
    with pytest.raises(construct.IntegerError):
        ConsumerGroupHeartbeatResponse[0].parse(raw)


# -- tags --------------------------------------------------------------------------------------


def test_unknown_tag_is_refused() -> None:
    encoded = b"".join(FetchRequest.encode(FetchRequest(), 12))
    assert encoded.endswith(b"\x00")
    tagged = encoded[:-1] + b"\x02" + b"\x63\x03abc" + b"\xff\x01\x00"
    decoded, end = FetchRequest.decode(tagged, 12)
    assert (decoded, end) == (FetchRequest(), len(tagged))
    assert FetchRequest[12].parse(tagged).cluster_id is None


def test_known_tag_after_an_unknown_one_is_lost() -> None:
    encoded = b"".join(FetchRequest.encode(FetchRequest(), 12))
    tagged = encoded[:-1] + b"\x02" + b"\x63\x01x" + b"\x00\x03\x03me"
    assert FetchRequest.decode(tagged, 12)[0].cluster_id == "me"
    assert FetchRequest[12].parse(tagged).cluster_id == "me"


@pytest.mark.parametrize("size", [2, 4])
def test_known_tag_of_a_wrong_size(size: int) -> None:
    encoded = b"".join(FetchRequest.encode(FetchRequest(), 12))
    tagged = encoded[:-1] + b"\x01\x00" + bytes((size,)) + b"\x03me" + bytes(4)
    with pytest.raises(WireError, match=r"early|announced"):
        FetchRequest.decode(tagged, 12)
    with pytest.raises(construct.ConstructError):
        FetchRequest[12].parse(tagged)


def test_tagged_struct_is_lost() -> None:
    partition = PartitionData(diverging_epoch=FetchEpochEndOffset(epoch=3, end_offset=9))
    response = fetch_response(partition, PartitionData())
    encoded = b"".join(FetchResponse.encode(response, 12))
    assert FetchResponse.decode(encoded, 12)[0] == response
    assert FetchResponse[12].build(response) == encoded
    with pytest.raises(WireError, match="no such field"):
        FetchResponse.encode(response, 11)


# -- size --------------------------------------------------------------------------------------


def test_more_elements_than_any_client_sends() -> None:
    many = MAX_REQUEST_ELEMENTS + 1
    encoded = bytes(25) + uvarint(many + 1) + b"\x01\x01\x00" * many + bytes(3)
    with pytest.raises(WireError, match=f"more than {MAX_REQUEST_ELEMENTS} elements") as refused:
        FetchRequest.decode(encoded, 12)
    assert refused.value.path == "topics"


def test_more_numbers_in_an_array_than_any_client_sends() -> None:
    many = MAX_REQUEST_ELEMENTS
    topic = struct.pack(">h1si", 1, b"t", many) + bytes(4 * many)
    encoded = struct.pack(">h1si", 1, b"g", 1) + topic
    with pytest.raises(WireError, match="elements") as refused:
        OffsetFetchRequest.decode(encoded, 5)
    assert refused.value.path == "topics[].partition_indexes"


def test_more_tagged_fields_than_any_client_sends() -> None:
    many = MAX_REQUEST_ELEMENTS + 1
    plain = b"".join(FetchRequest.encode(FetchRequest(), 12))
    assert plain[-1] == 0, "it ends with an empty section of tagged fields"
    encoded = plain[:-1] + uvarint(many) + b"\x63\x00" * many
    with pytest.raises(WireError, match="elements") as refused:
        FetchRequest.decode(encoded, 12)
    assert refused.value.path == "tags"


def test_an_answer_may_have_more_elements_than_a_request() -> None:
    names = [ListedGroup(group_id=str(n)) for n in range(MAX_REQUEST_ELEMENTS + 1)]
    encoded = b"".join(ListGroupsResponse.encode(ListGroupsResponse(groups=names), 0))
    assert len(ListGroupsResponse.decode(encoded, 0)[0].groups) == len(names)


def test_varint_that_never_ends() -> None:
    with pytest.raises(WireError, match="more than five bytes"):
        DescribeClusterResponse.decode(bytes(6) + b"\xff" * 40, 0)
    with pytest.raises(WireError, match="over 31 bits"):
        DescribeClusterResponse.decode(bytes(6) + b"\xff\xff\xff\xff\x0f" + bytes(40), 0)
