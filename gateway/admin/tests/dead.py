"""Dead letters for tests, made as they come about: a group gets messages, and does not handle them.

await die(served, "t", "g", [Sent(b"value", key=b"k", headers=[("tenant", b"a")])])
# they lie in t.g.dlq, with the reason `rejected`, or with reason=ATTEMPTS for `attempts`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka.record.memory_records import MemoryRecordsBuilder

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import ATTEMPTS, REJECTED
from kumquat.gateway.tests.harness import produce
from kumquat.gateway.tests.members import SESSION_MS, sharing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.gateway.tests.harness import Served

__all__ = ["ATTEMPTS", "REJECTED", "Sent", "die", "letters_in", "send"]

TIME = 1_700_000_000_000


class Sent(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


async def send(served: Served, topic: str, messages: Sequence[Sent]) -> int:
    """Produce messages in one batch, as kafka-python writes it; gives the first offset."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
    for value, key, headers in messages:
        builder.append(timestamp=TIME, key=key, value=value, headers=list(headers))
    builder.close()
    records = bytes(builder.buffer())
    async with served.client() as client:
        answer = await client.call(produce(topic, records=records), 9)
    done = answer.responses[0].partition_responses[0]
    assert done.error_code == 0
    return int(done.base_offset)


async def die(
    served: Served,
    topic: str,
    group: str,
    messages: Sequence[Sent],
    reason: str = REJECTED,
    text: str = "",
) -> None:
    """Messages that were not handled, until their letters are durable."""
    first = await send(served, topic, messages)
    known = len(letters_in(served, f"{topic}.{group}.dlq"))
    async with sharing(served, group, topic, 1, delivery_count_limit="1") as (member,):
        got = await member.drain()
        assert len(got) >= len(messages)
        if reason == REJECTED:
            state = served.broker.coordinator.groups.by_name[group]
            subject_id = served.broker.log.subjects.by_name[topic].id
            slot = state.members[member.id].holds[subject_id]
            ranges = [[first, len(messages), 1]]
            dead = actions.Doom(state.id, subject_id, slot, ranges, reason, text)
            await served.broker.coordinator.change([dead])
            await member.commit()
            await member.leave()
        else:
            served.clock.jump(SESSION_MS / 1000 + 1)
        await served.settled()
    assert len(letters_in(served, f"{topic}.{group}.dlq")) == known + len(messages)


def letters_in(served: Served, name: str) -> range:
    subject = served.broker.log.subjects.by_name.get(name)
    return range(0) if subject is None else range(subject.readable_end)
