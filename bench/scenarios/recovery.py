"""A long message log: what a restart after kill -9 reads of it."""

from __future__ import annotations

from bench.brokers import proc
from bench.load import client, topics
from bench.scenario import Columns, Floor, Numbers, Run, Scenario

_SIZE = 1024


def _restart(run: Run) -> Numbers:
    settings = {"log.segment.bytes": str(run.scale.segment_bytes)}
    broker = run.column.broker(settings)
    try:
        broker.start()
        topics.make(broker.port, ["long"])
        records = run.scale.log_bytes // _SIZE
        run.say(f"writing {run.scale.log_bytes / 1e9:.1f} GB")
        client.run(client.Produce(broker.bootstrap, broker.pid, "long", records, _SIZE, "1"))
        run.say("restart after kill -9")
        broker.kill()
        on_disk = sum(path.stat().st_size for path in (broker.folder / "data").rglob("*"))
        seconds = broker.start(300)
        read = proc.io(broker.pid).read_calls_bytes
    finally:
        broker.__exit__()
    return {
        "log, MB": on_disk / 1e6,
        "segment, MB": run.scale.segment_bytes / 1e6,
        "restart after kill -9, s": seconds,
        "read at restart, MB": read / 1e6,
    }


def _segments_read(columns: Columns) -> float:
    numbers = columns["kumquat"]
    return numbers["read at restart, MB"] / numbers["segment, MB"]


RECOVERY = [
    Scenario(
        "long-log",
        "Message log of 10 GB",
        _restart,
        [Floor("read at restart, in segments", 2.0, False, _segments_read)],
        columns=("kumquat",),
    )
]
