"""Messages for later, and those of share groups, whose events are missing or about the wrong ones."""

from __future__ import annotations

from time import thread_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kumquat.core.logs.messages.format import CANCEL, PARKED
from kumquat.core.logs.messages.observer import WrittenFrame
from kumquat.core.logs.messages.parked import (
    MOVED,
    NO_ORIGIN,
    CancelItem,
    pack_cancels,
    pack_origin,
    pack_parked,
)
from kumquat.gateway.admin.tests.dead import Sent, send
from kumquat.gateway.history.buffer import Buffer
from kumquat.gateway.history.recorder import Recorder
from kumquat.gateway.history.tests.told import brief, told
from kumquat.gateway.shares.tests.consumers import (
    ACCEPT,
    REJECT,
    RELEASE,
    consumer,
    fetched,
    prepare,
)
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.tests.sharing.test_sharing import fill

if TYPE_CHECKING:
    from pathlib import Path


def test_delayed_messages_are_told_from_their_parking_to_their_delivery(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", history="all")
        delay = served.broker.delay
        await send(
            served,
            "t",
            [
                Sent(b"a", headers=[("qmq-delay-ms", b"50")]),
                Sent(b"b", headers=[("qmq-delay-ms", b"3600000"), ("qmq-delay-id", b"x")]),
                Sent(b"c", headers=[("qmq-delay-ms", b"3600000"), ("qmq-delay-id", b"y")]),
                Sent(b"d"),
            ],
        )
        subject = served.broker.log.subjects.by_name["t"]
        moved = await delay.move(subject, delay_id="x", due=served.broker.log.log.now_ms() + 50)
        await delay.cancel(subject, delay_id="y")
        while subject.readable_end < 6:
            served.clock.jump(0.1)
            await served.settled()
        events = await told(served, "t")
        by_kind = {
            kind: [e for e in events if e["event"] == kind] for kind in {e["event"] for e in events}
        }
        first, x, y, again = by_kind["scheduled"]
        assert [e["delay_id"] for e in (first, x, y, again)] == [None, "x", "y", "x"]
        assert brief(by_kind["produced"], "producer") == [("produced", [[0, 4]], "tests")]
        assert brief(by_kind["moved"], "schedule_id", "to", "delay_id", "due") == [
            ("moved", None, x["schedule_id"], again["schedule_id"], "x", moved.due)
        ]
        assert brief(by_kind["cancelled"], "schedule_id", "delay_id") == [
            ("cancelled", None, y["schedule_id"], "y")
        ]
        schedule_ids = [
            (schedule_id, sequence)
            for e in by_kind["delivered"]
            for schedule_id, sequence in zip(
                e["schedule_id"],
                [n for start, count in e["ranges"] for n in range(start, start + count)],
                strict=True,
            )
        ]
        assert sorted(schedule_ids) == sorted(
            [(first["schedule_id"], 4), (again["schedule_id"], 5)]
        )
        assert all(e["late_ms"] >= 0 for e in by_kind["delivered"])

    serve(check, tmp_path)


def test_a_batch_that_moves_very_many_stops_the_loop() -> None:
    """All to the same time: which was parked as which is found without comparing all with all."""
    subject: Any = SimpleNamespace(name="t", config=SimpleNamespace(history=1))
    buffer, nothing = Buffer(lambda: 1, 1 << 20), cast("Any", None)
    names = [b"%d" % n for n in range(5_000)]
    parked = b"".join(pack_parked(7_000, 1, name, b"x") for name in names)
    moves = [CancelItem(MOVED, n, 5_000, 7_000, name) for n, name in enumerate(names)]
    frames = [
        WrittenFrame(PARKED, subject, 0, 0, 0, pack_origin(NO_ORIGIN) + parked),
        WrittenFrame(CANCEL, subject, 0, 0, 0, pack_cancels(NO_ORIGIN, moves)),
    ]
    began = thread_time()
    Recorder(nothing, nothing, lambda: 1, buffer).written(frames)
    assert thread_time() - began < 1.5
    events = buffer.take()
    scheduled = {e[4]["delay_id"]: e[4]["schedule_id"] for e in events if e[1] == "scheduled"}
    moved = {e[4]["delay_id"]: e[4]["to"] for e in events if e[1] == "moved"}
    assert len(moved) == 5_000
    assert moved == scheduled


def test_share_members_are_told_message_by_message(tmp_path: Path) -> None:
    """Accepted, released, rejected one by one; a lock that ends; a connection that is lost."""

    async def check(served: Served) -> None:
        await prepare(served)
        subject = served.broker.log.subjects.by_name["t"]
        await served.broker.subjects.alter(subject, {"history": "all"})
        async with consumer(served, "ann") as ann:
            await fill(served, "t", 6)
            assert len(await fetched(ann, 6)) == 6
            acks = (0, 2, [ACCEPT, RELEASE, REJECT])
            assert await ann.acked(acks) == 0
            await served.settled()
            events = [
                e for e in await told(served, "t") if e["event"] not in ("produced", "pulled")
            ]
            assert brief(events, "member", "attempt", "reason") == [
                ("acked", [[0, 1]], "ann", None, None),
                ("retried", [[1, 1]], "ann", 2, "returned"),
                ("died", [[2, 1]], "ann", None, "rejected"),
                ("buried", [[2, 1]], None, None, None),
            ]
            pulled = await told(served, "t", "pulled")
            assert sum(count for e in pulled for _, count in e["ranges"]) == 6
            served.clock.jump(31)
            await served.settled()
            (_, ended) = await told(served, "t", "retried")
            assert brief([ended], "reason", "attempt") == [("retried", [[3, 3]], "lock", 2)]

    serve(check, tmp_path)
