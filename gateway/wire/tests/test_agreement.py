"""Second net: three codecs that must agree byte for byte, in both directions.

The generated one, the reference (construct), and kafka-python's, for every message and version
served, on empty, full and mixed messages. kafka-python takes its schema from Kafka's JSON, and
shares neither declarations nor code with the other two.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.schemas import StructField

from kumquat.gateway.wire.tests.kafka_schemas import kafka_schema
from kumquat.gateway.wire.tests.samples import CASES, IDS, from_plain, samples, to_kafka, uuids

if TYPE_CHECKING:
    from kumquat.gateway.wire.message import Message

every_version = pytest.mark.parametrize(("message", "version"), CASES, ids=IDS)


def kafka_codec(message: type[Message], version: int) -> tuple[Any, dict[str, Any]]:
    flexible = message.is_flexible(version)
    codec = StructField(kafka_schema(message.__name__))
    return codec, {"version": version, "compact": flexible, "tagged": flexible}


@every_version
def test_generated_and_reference_drift(message: type[Message], version: int) -> None:
    reference = message[version]
    for sample in samples(message, version, mixed=6):
        encoded = b"".join(message.encode(sample, version))
        assert reference.build(sample) == encoded
        assert reference.build(reference.parse(encoded)) == encoded
        decoded, end = message.decode(encoded, version)
        assert end == len(encoded)
        assert decoded == sample
        assert from_plain(message.structure, reference.parse(encoded)) == sample


@every_version
def test_bytes_differ_from_kafka_python(message: type[Message], version: int) -> None:
    codec, how = kafka_codec(message, version)
    for sample in samples(message, version, mixed=6):
        encoded = b"".join(message.encode(sample, version))
        plain = uuids(message.structure, to_kafka(sample, version))
        assert codec.encode(plain, **how) == encoded
        assert from_plain(message.structure, codec.decode(BytesIO(encoded), **how)) == sample


@every_version
def test_decoding_in_the_middle_of_a_buffer(message: type[Message], version: int) -> None:
    for sample in samples(message, version, mixed=1):
        encoded = b"".join(message.encode(sample, version))
        view = memoryview(bytearray(b"before" + encoded + b"after"))
        decoded, end = message.decode(view, version, 6)
        assert (decoded, end) == (sample, 6 + len(encoded))
