"""Headers: the three special rules, and headers that are cut, unknown or hostile."""

from __future__ import annotations

import struct
from io import BytesIO

import pytest
from kafka import errors
from kafka.protocol.api_header import RequestHeader, ResponseHeader

from kumquat.gateway.wire import REQUESTS, ApiVersionsRequest, ErrorCode, WireError
from kumquat.gateway.wire.decoder import MAX_HEADER_TAGS
from kumquat.gateway.wire.frame import read_request_header, response_header
from kumquat.gateway.wire.varint import uvarint


def header(key: int, version: int, client_id: str | None, tail: bytes = b"") -> memoryview:
    raw = None if client_id is None else client_id.encode()
    size = -1 if raw is None else len(raw)
    return memoryview(struct.pack(">hhih", key, version, 77, size) + (raw or b"") + tail)


def kafka_header(key: int, version: int, client_id: str | None) -> bytes:
    flexible = REQUESTS[key].is_flexible(version)
    made = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=5, client_id=client_id
    )
    encoded: bytes = made.encode(flexible=flexible)
    return encoded


@pytest.mark.parametrize("key", sorted(REQUESTS))
def test_request_header_differs_from_kafka_python(key: int) -> None:
    for version in REQUESTS[key].valid_versions:
        for client_id in ("rdkafka", "", None, "клиент"):
            raw = kafka_header(key, version, client_id)
            found = read_request_header(memoryview(b"__" + raw + b"body"), 2)
            assert found == (key, version, 5, client_id, 2 + len(raw))


@pytest.mark.parametrize("key", sorted(REQUESTS))
def test_response_header_differs_from_kafka_python(key: int) -> None:
    for version in REQUESTS[key].valid_versions:
        flexible = REQUESTS[key].is_flexible(version) and key != ApiVersionsRequest.api_key
        expected = ResponseHeader(correlation_id=9).encode(flexible=flexible)
        assert response_header(key, version, 9) == expected
        assert ResponseHeader.decode(BytesIO(expected), flexible=flexible).correlation_id == 9


def test_api_versions_answer_has_a_flexible_header() -> None:
    for version in (0, 3, 4, 99):
        assert response_header(18, version, 1) == b"\x00\x00\x00\x01"


def test_future_version_of_a_known_api() -> None:
    raw = header(18, 99, "java", b"\x01\x05\x02hi" + b"body")
    assert read_request_header(raw) == (18, 99, 77, "java", len(raw) - 4)


@pytest.mark.parametrize(("key", "version"), [(9999, 3), (-7, 0), (1, -3), (71, 0)])
def test_unknown_api_hides_key_version_and_correlation_id(key: int, version: int) -> None:
    assert read_request_header(header(key, version, "me", b"rest"))[:4] == (key, version, 77, "me")


def test_unknown_api_without_client_id() -> None:
    raw = memoryview(struct.pack(">hhi", 7777, 0, 3))
    assert read_request_header(raw) == (7777, 0, 3, None, 8)


@pytest.mark.parametrize("version", [0, 3])
def test_request_header_truncated_at_every_byte(version: int) -> None:
    raw = header(18, version, "someone", b"\x01\x09\x03abc" if version == 3 else b"")
    for size in range(len(raw)):
        with pytest.raises(WireError, match="request header"):
            read_request_header(raw[:size])
    assert read_request_header(raw)[4] == len(raw)


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">hhih", 18, 0, 1, -2),
        struct.pack(">hhih", 18, 0, 1, 0x7FFF) + b"short",
        struct.pack(">hhih", 18, 0, 1, 2) + b"\xff\xfe",
        struct.pack(">hhih", 18, 3, 1, 0) + b"\x01\x00\xff\xff\xff\xff\x07",
        struct.pack(">hhih", 18, 3, 1, 0) + b"\xff\xff\xff\xff\xff\xff",
    ],
    ids=["negative size", "size past the end", "not utf-8", "huge tag", "endless varint"],
)
def test_hostile_request_header(raw: bytes) -> None:
    with pytest.raises(WireError, match="request header"):
        read_request_header(memoryview(raw))


def test_error_code_has_another_number_in_kafka() -> None:
    known = errors.BrokerResponseError
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    numbers = {getattr(kind, "errno", None) for kind in kinds if issubclass(kind, known)} - {None}
    assert numbers <= set(map(int, ErrorCode))
    for name in ("CorruptRecordError", "InvalidRecordError", "UnknownTopicIdError"):
        kind = getattr(errors, name)
        assert ErrorCode(kind.errno).name == kind.message
    assert [code.name for code in ErrorCode if code in (-1, 0, 56, 133)] == [
        "UNKNOWN_SERVER_ERROR",
        "NONE",
        "KAFKA_STORAGE_ERROR",
        "SHARE_SESSION_LIMIT_REACHED",
    ]


def test_a_million_tagged_fields_in_a_header() -> None:
    count = MAX_HEADER_TAGS + 1
    few = header(1, 17, "java", uvarint(MAX_HEADER_TAGS) + b"\x63\x00" * MAX_HEADER_TAGS)
    assert read_request_header(few)[-1] == len(few)
    with pytest.raises(WireError, match="tagged fields"):
        read_request_header(header(1, 17, "java", uvarint(count) + b"\x63\x00" * count))
