"""Third net: bytes that are not a message give a value or a `WireError`, and nothing else.

Every truncation and many mutations of every message in every version served. No other exception
leaves, no length or count makes the decoder allocate more than a small multiple of the frame, and
on a sample of the mutations the reference codec agrees with the generated one: both refuse, or both
find the same value.
"""

from __future__ import annotations

import random
import tracemalloc
from typing import TYPE_CHECKING

import construct  # type: ignore[import-untyped]
import pytest

from kumquat.gateway.wire import FetchRequest, WireError
from kumquat.gateway.wire.tests.samples import CASES, IDS, from_plain, samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.gateway.wire.message import Message, Struct

every_version = pytest.mark.parametrize(("message", "version"), CASES, ids=IDS)

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xfe", b"\x7f\xff")
# The most that a decoded message may take per byte of its frame: a struct of two empty fields and a
# tag section is three bytes on the wire, and a Python object with a list in memory.
MEMORY_FACTOR = 64
MEMORY_FLOOR = 16 * 1024


def decode(message: type[Message], version: int, raw: bytes) -> Struct | None:
    try:
        decoded, end = message.decode(raw, version)
    except WireError:
        return None
    assert 0 <= end <= len(raw)
    return decoded


def mutations(raw: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        changed = bytearray(raw)
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(changed) + 1)
            kind = rng.randrange(4)
            if kind == 0 and changed:
                changed[at - 1] = rng.randrange(256)
            elif kind == 1 and changed:
                changed[at - 1] ^= 1 << rng.randrange(8)
            elif kind == 2:
                changed[at : at + 4] = rng.choice(HUGE)
            else:
                changed[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        yield bytes(changed)


@every_version
def test_truncated_at_every_byte(message: type[Message], version: int) -> None:
    for sample in samples(message, version, mixed=1):
        raw = b"".join(message.encode(sample, version))
        for size in range(len(raw)):
            assert decode(message, version, raw[:size]) is None, size


@every_version
def test_mutated_at_random(message: type[Message], version: int) -> None:
    rng = random.Random(f"mutations of {message.__name__} {version}")
    for sample in samples(message, version, mixed=1):
        raw = b"".join(message.encode(sample, version))
        for changed in mutations(raw, rng, 100):
            decode(message, version, changed)


@every_version
def test_reference_and_generated_disagree_on_mutated_bytes(
    message: type[Message], version: int
) -> None:
    rng = random.Random(f"agreement of {message.__name__} {version}")
    reference = message[version]
    for sample in samples(message, version, mixed=1):
        raw = b"".join(message.encode(sample, version))
        for changed in mutations(raw, rng, 8):
            decoded = decode(message, version, changed)
            try:
                parsed = from_plain(message.structure, reference.parse(changed))
            except construct.ConstructError:
                parsed = None
            assert parsed == decoded


@every_version
def test_huge_length_or_count_allocates(message: type[Message], version: int) -> None:
    rng = random.Random(f"memory of {message.__name__} {version}")
    sample = list(samples(message, version, mixed=0))[1]
    raw = b"".join(message.encode(sample, version))
    positions = range(len(raw)) if len(raw) < 30 else sorted(rng.sample(range(len(raw)), 30))
    frames = [raw[:at] + huge + raw[at + len(huge) :] for at in positions for huge in HUGE]
    message.decoder(version)
    tracemalloc.start()
    try:
        for frame in frames:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            decode(message, version, frame)
            used = tracemalloc.get_traced_memory()[1] - before
            assert used < MEMORY_FLOOR + MEMORY_FACTOR * len(frame)
    finally:
        tracemalloc.stop()


@every_version
def test_frame_of_the_smallest_elements_takes_too_much(
    message: type[Message], version: int
) -> None:
    """The worst that a frame can ask for when every count in it is true."""
    for field in message.structure.fields:
        element = field.type.element
        if element is None or element.structure is None or not field.type.present(version):
            continue
        sample = message(**{field.name: [element.structure.cls()] * 400})
        frame = b"".join(message.encode(sample, version))
        message.decoder(version)
        tracemalloc.start()
        try:
            message.decode(frame, version)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < MEMORY_FLOOR + MEMORY_FACTOR * len(frame)


def test_count_of_two_billion_with_ten_bytes_left() -> None:
    raw = bytes(25) + b"\x7f\xff\xff\xff" + bytes(10)
    with pytest.raises(WireError, match="2147483647 announced, but only 10 bytes left") as refused:
        FetchRequest.decode(raw, 11)
    assert refused.value.path == "topics"
    assert refused.value.position == 29
