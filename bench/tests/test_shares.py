"""Share consumers of a benchmark must not report work that was not done, nor lose what was released."""

from __future__ import annotations

import pytest

from bench.brokers.kumquat import Kumquat
from bench.load.shares import ShareProcess
from bench.scenarios.shares import make

COUNT = 300


@pytest.mark.long
def test_share_consumers_handle_every_message_and_bounce_each_once() -> None:
    with Kumquat() as running, ShareProcess(running.bootstrap) as process:
        writer = make(running, "accept")
        process.join("accept", "accept", members=2, count=COUNT)
        writer.write(COUNT)
        process.wait(60)
        handled, twice = process.leave()
        assert (sum(handled), twice) == (COUNT, 0)

        writer = make(running, "bounce", **{"retry.backoff.ms": "0"})
        process.join("bounce", "bounce", count=COUNT, deed="bounce")
        writer.write(COUNT)
        bounced = [int(process.expect("bounced")[0]) for _ in range(COUNT)]
        assert sorted(bounced) == list(range(COUNT))

        with pytest.raises(RuntimeError, match="ended with 1 and not"):
            process.ask("no such command")
