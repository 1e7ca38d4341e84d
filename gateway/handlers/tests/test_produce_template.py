"""Template against the handler: the same frames, sent to two brokers, one of which makes no templates."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.handlers.common.produce_opening import ZSTD_SINCE
from kumquat.gateway.handlers.common.produce_template import Template
from kumquat.gateway.tests.harness import NO_SPACE, Client, Served, produce, serve
from kumquat.gateway.wire import ApiVersionsRequest, ProduceRequest

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = range(ZSTD_SINCE, 14)
TOPIC_ID = b"0123456789abcdef"


def request_of(topic: str, records: bytes, acks: int = 1) -> ProduceRequest:
    request = produce(topic, records=records, acks=acks)
    request.topic_data[0].topic_id = TOPIC_ID
    return request


def framed(rest: bytes) -> bytes:
    return struct.pack(">i", len(rest)) + rest


async def answers(served: Served, bursts: list[bytes], count: int) -> list[bytes]:
    """All answers to these bursts, each of which is sent in one go."""
    log = served.broker.log
    await served.create("t")
    await served.create("long.topic.names.are.alike.1")
    await served.create("long.topic.names.are.alike.2")
    subject = log.subjects.by_name["t"]
    del log.subjects.by_topic_id[subject.topic_id]
    subject.topic_id = TOPIC_ID
    log.subjects.by_topic_id[TOPIC_ID] = subject
    async with served.client() as client:
        for data in bursts:
            await client.stream.send_all(data)
            await served.settled()
        return [await client.receive_frame() for _ in range(count)]


def compare(
    folder: Path, monkeypatch: pytest.MonkeyPatch, bursts: list[bytes], count: int
) -> list[bytes]:
    """The answers, which must not depend on whether templates are made; counts the uses of templates."""
    found: list[list[bytes]] = []
    used = 0
    stage = Template.stage

    def counted(self: Template, frame: memoryview) -> Any:
        nonlocal used
        slot = stage(self, frame)
        used += slot is not None
        return slot

    def never(self: Template, frame: memoryview) -> None:
        return None

    async def check(served: Served) -> None:
        found.append(await answers(served, bursts, count))

    with monkeypatch.context() as patched:
        patched.setattr(Template, "stage", counted)
        serve(check, folder / "with")
        patched.setattr(Template, "stage", never)
        serve(check, folder / "without")
    assert found[0] == found[1]
    found[0].append(b"%d" % used)
    return found[0]


def plain(version: int, acks: int, sizes: list[int]) -> list[bytes]:
    client = Client(None, "tests")  # type: ignore[arg-type]
    return [
        client.frame(request_of("t", bytes(batch(bytes(size))), acks), version) for size in sizes
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_is_answered_to_the_byte_as_by_the_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, acks: int
) -> None:
    sizes = [10, 10, 10, 200, 20_000, 10, 40, 60, 61, 62, 126]
    frames = plain(version, acks, sizes)
    *_, used = compare(tmp_path, monkeypatch, [b"".join(frames)], len(frames))
    assert int(used) >= 5


def odd_frames(version: int) -> dict[str, bytes]:
    """Frames that look like the plain one at their beginning, and are something else."""
    client = Client(None, "tests")  # type: ignore[arg-type]
    data = batch(bytes(10))
    whole = client.frame(request_of("t", bytes(data)), version)
    flexible = version >= ProduceRequest.flexible_from
    bad_crc = bytearray(data)
    bad_crc[-1] ^= 1
    tagged = whole[4:-1] + b"\x01\x63\x02hi" if flexible else whole[4:] + b"behind"
    return {
        "wrong CRC": client.frame(request_of("t", bytes(bad_crc)), version),
        "two batches": client.frame(request_of("t", bytes(data) * 2), version),
        "no records": client.frame(request_of("t", b""), version),
        "tags or bytes behind": framed(tagged),
        "another topic": client.frame(request_of("u", bytes(data)), version),
        "another acks": client.frame(request_of("t", bytes(data), acks=-1), version),
        "another request": client.frame(ApiVersionsRequest("name", "1"), 3),
        "too large": client.frame(request_of("t", bytes(batch(bytes(1_100_000)))), version),
        "a byte more behind": framed(whole[4:] + b"\0"),
    }


@pytest.mark.parametrize("version", [8, 9, 12])
def test_a_frame_that_does_not_fit_is_left_to_the_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    before, after = plain(version, 1, [10] * 4), plain(version, 1, [10] * 2)
    for number, (name, odd) in enumerate(odd_frames(version).items()):
        frames = [*before, odd, *after]
        folder = tmp_path / str(number)
        folder.mkdir()
        *_, used = compare(folder, monkeypatch, [b"".join(frames)], len(frames))
        assert int(used) >= 3, name


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_mixture_of_topics_sizes_and_versions(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    client = Client(None, "tests")  # type: ignore[arg-type]
    names = ["t", "long.topic.names.are.alike.1", "long.topic.names.are.alike.2", "none"]
    kinds = st.tuples(
        st.sampled_from(names), st.integers(0, 200), st.sampled_from([1, -1]), st.integers(1, 6)
    )
    frames: list[bytes] = []
    for name, size, acks, times in data.draw(st.lists(kinds, max_size=12)):
        version = data.draw(st.sampled_from([7, 9, 12]))
        request = request_of(name, bytes(batch(bytes(size))), acks)
        frames += [client.frame(request, version) for _ in range(times)]
    burst = data.draw(st.integers(1, 10))
    bursts = [b"".join(frames[i : i + burst]) for i in range(0, len(frames), burst)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        compare(tmp_path_factory.mktemp("mixture"), monkeypatch, bursts, len(frames))


async def templated(served: Served, client: Client) -> None:
    """Have a template made for topic "t"."""
    for _ in range(3):
        await client.call(produce("t", b"a", acks=-1), 9)
    (connection,) = served.acceptor.connections
    assert connection._burst._repeats.template is not None


def test_a_topic_that_is_deleted_and_recreated_is_written_to_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await templated(served, client)
            await served.broker.subjects.delete(served.broker.log.subjects.by_name["t"])
            answer = await client.call(produce("t", b"a"), 9)
            assert answer.responses[0].partition_responses[0].error_code == 3
            await served.create("t")
            answer = await client.call(produce("t", b"a"), 9)
            assert answer.responses[0].partition_responses[0].base_offset == 0

    serve(check, tmp_path)


def test_a_failed_write_or_sync_is_answered_as_by_the_handler(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await templated(served, client)
            served.files.write_error = NO_SPACE
            await client.send(*[(produce("t", b"a", acks=-1), 9)] * 3)
            for _ in range(3):
                (partition,) = (await client.receive()).responses[0].partition_responses
                assert (partition.error_code, partition.base_offset) == (56, -1)
            served.files.write_error = None
            served.files.sync_error = 5
            (partition,) = (
                (await client.call(produce("t", b"a"), 9)).responses[0].partition_responses
            )
            assert (partition.error_code, partition.base_offset) == (56, -1)

    serve(check, tmp_path)


def test_a_connection_that_changes_between_topics_makes_few_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    init = Template.__init__

    def counted(self: Template, *args: Any) -> None:
        nonlocal made
        made += 1
        init(self, *args)

    monkeypatch.setattr(Template, "__init__", counted)

    async def check(served: Served) -> None:
        names = ["long.topic.names.are.alike.1", "long.topic.names.are.alike.2"]
        for name in names:
            await served.create(name)
        async with served.client() as client:
            frames = [client.frame(produce(name, b"a"), 9) for name in names * 100]
            await client.stream.send_all(b"".join(frames))
            for _ in frames:
                await client.receive()
        assert made <= 4

    serve(check, tmp_path)
