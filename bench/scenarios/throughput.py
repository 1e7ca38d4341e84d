"""Megabytes per second: producing, with and without compression, and reading it back.

MB and GB are powers of ten, of the records' values as the application has them (uncompressed). CPU
is the broker's, user and system.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from bench.load import client, topics
from bench.scenario import Floor, Numbers, Run, Scenario, ratio

if TYPE_CHECKING:
    from pathlib import Path

    from bench.brokers.process import BrokerProcess
    from bench.scenario import Columns

KIB = 1024
_BATCHES = (16_000, 100_000, 900_000)


def _produce(
    run: Run,
    broker: BrokerProcess,
    *,
    acks: str,
    size: int = KIB,
    codec: str = "none",
    batch_bytes: int = client.BATCH_BYTES,
) -> client.Done:
    topic = f"{codec}-{acks}-{size}-{batch_bytes}"
    topics.make(broker.port, [topic])
    os.sync()  # what earlier work has left to write must not be written during the measurement
    # A client spends nearly as much on a small record or batch: fewer megabytes of them take as long.
    usual = size == KIB and batch_bytes == client.BATCH_BYTES
    megabytes = run.scale.megabytes if usual else run.scale.megabytes // 4
    records = megabytes * 1_000_000 // size
    run.say(f"producing {records:,} of {size} B, acks={acks}, {codec}")
    return client.run(
        client.Produce(
            broker.bootstrap,
            broker.pid,
            topic,
            records,
            size,
            acks,
            codec,
            records // 2,
            batch_bytes,
        )
    )


def _produce_1k(run: Run) -> Numbers:
    numbers: Numbers = {}
    with run.column.broker() as broker:
        for acks in ("1", "all"):
            done = _produce(run, broker, acks=acks)
            numbers[f"acks={acks}, MB/s"] = done.megabytes_per_second
            numbers[f"acks={acks}, CPU s per GB"] = done.cpu_per_gigabyte
    return numbers


def _produce_100(run: Run) -> Numbers:
    with run.column.broker() as broker:
        done = _produce(run, broker, acks="1", size=100)
    return {"records/s": done.records_per_second, "CPU s per GB": done.cpu_per_gigabyte}


def _produce_compressed(run: Run) -> Numbers:
    numbers: Numbers = {}
    with run.column.broker() as broker:
        for codec in ("zstd", "lz4"):
            done = _produce(run, broker, acks="1", codec=codec)
            numbers[f"{codec}, MB/s"] = done.megabytes_per_second
            numbers[f"{codec}, CPU s per GB"] = done.cpu_per_gigabyte
    return numbers


def _produce_codecs(run: Run) -> Numbers:
    """What the broker spends on a compressed batch depends on the codec and on where it is inflated."""
    numbers: Numbers = {}
    with run.column.broker() as broker:
        for codec in ("none", "lz4", "snappy", "zstd", "gzip"):
            for batch_bytes in _BATCHES:
                done = _produce(run, broker, acks="1", codec=codec, batch_bytes=batch_bytes)
                label = f"{codec}, batches of {batch_bytes // 1000} kB, CPU s per GB"
                numbers[label] = done.cpu_per_gigabyte
    return numbers


def _consume_1k(run: Run) -> Numbers:
    with run.column.broker() as broker:
        records = run.scale.megabytes * 1_000_000 // KIB // 1000 * 1000
        written = client.Produce(broker.bootstrap, broker.pid, "consumed", records, KIB, "all")
        run.say(f"writing {records:,} records to read")
        client.run(written)
        read = client.Consume(broker.bootstrap, broker.pid, "consumed", records, KIB, records)
        run.say("reading from page cache")
        warm = client.run(read)
        run.say("reading from cold disk")
        _evict(broker.folder)
        _read_all(broker.folder)
        _evict(broker.folder)
        disk = _read_all(broker.folder)
        _evict(broker.folder)
        read = client.Consume(broker.bootstrap, broker.pid, "consumed", records, KIB)
        cold = client.run(read)
    return {
        "page cache, MB/s": warm.megabytes_per_second,
        "page cache, CPU s per GB": warm.cpu_per_gigabyte,
        "cold disk, MB/s": cold.megabytes_per_second,
        "the disk itself, MB/s": disk,
    }


def _evict(folder: Path) -> None:
    """Asks the kernel to forget the files: pages that are written out can go."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_all(folder: Path) -> float:
    """Reads the files one after the other; MB/s."""
    buffer = bytearray(1 << 20)
    total = 0
    began = time.perf_counter()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    total += count
    return total / (time.perf_counter() - began) / 1e6


def _cold_share(columns: Columns) -> float:
    numbers = columns["kumquat"]
    fastest = min(numbers["the disk itself, MB/s"], numbers["page cache, MB/s"])
    return numbers["cold disk, MB/s"] / fastest


THROUGHPUT = [
    Scenario(
        "produce-1k",
        "Produce 1 KiB records",
        _produce_1k,
        [
            ratio("acks=1, MB/s", "kafka", at_least=1.5),
            ratio("acks=1, CPU s per GB", "kafka", at_most=0.6),
            ratio("acks=all, MB/s", "kafka", at_least=1.0),
            ratio("acks=all, MB/s", "kafka-synced", at_least=1.5),
        ],
    ),
    Scenario(
        "produce-100",
        "Produce 100 B records, acks=1",
        _produce_100,
        [
            ratio("records/s", "kafka", at_least=1.0),
            ratio("CPU s per GB", "kafka", at_most=0.6),
        ],
    ),
    Scenario(
        "consume-1k",
        "Consume 1 KiB records",
        _consume_1k,
        [
            ratio("page cache, MB/s", "kafka", at_least=1.0),
            ratio("page cache, CPU s per GB", "kafka", at_most=1.5),
            Floor("cold disk, MB/s ÷ the slower of disk and page cache", 0.9, True, _cold_share),
        ],
        columns=("kumquat", "kafka"),
    ),
    Scenario(
        "produce-compressed",
        "Produce batches of 1 KiB records, compressed by the client, acks=1",
        _produce_compressed,
        [
            ratio("zstd, MB/s", "kafka", at_least=1.0),
            ratio("lz4, MB/s", "kafka", at_least=1.0),
        ],
        columns=("kumquat", "kafka"),
    ),
    Scenario(
        "produce-codecs",
        "Broker CPU for compressed batches of several sizes, acks=1",
        _produce_codecs,
        [],
        columns=("kumquat", "kafka"),
    ),
]
