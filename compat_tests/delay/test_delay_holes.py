"""The offsets that delayed records leave empty in a mixed batch: every reader steps over them.

At the beginning, in the middle and at the end of a batch, one at a time and hundreds together; read plainly
by offset, by groups that read in order, and by groups that share, whose leases may meet nothing but holes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.delay.stories import READ, SEND, Sent, after, at, now, read_confluent
from compat_tests.delay.test_delay_wire import batch, put
from compat_tests.groups.stories import committed, everything, lag
from compat_tests.members.fixture import CLIENTS, EACH_VARIANT, VARIANTS
from compat_tests.members.remote import wait
from compat_tests.support import eventually
from compat_tests.wire.connection import Wire, fetch, fetched, list_offsets, listed
from compat_tests.wire.test_wire_records import read as offsets_and_values

if TYPE_CHECKING:
    from compat_tests.members.fixture import Members

pytestmark = pytest.mark.differs("Kafka has no messages for later")
FAR = 3_600_000
"""Due when no story runs any more: what is parked so stays a hole."""
PATTERNS = {
    "first": ".-.....",
    "last": "....-.-.-",
    "ends": "---...---",
    "alone": "-----.-----",
    "alternating": "-.-.-.-.",
}
"""A dot is a plain record, a dash one for later."""


def batch_of(pattern: str, label: str, delay: int = FAR) -> list[Sent]:
    return [
        Sent(f"{label}{index}".encode(), after(delay) if mark == "-" else [])
        for index, mark in enumerate(pattern)
    ]


def fill(bootstrap: str, topic: str, *patterns: str, codec: int = 0) -> list[tuple[int, str]]:
    """A batch for each pattern; gives offsets and values of the plain records."""
    plain, base = [], 0
    with Wire(bootstrap) as wire:
        for number, pattern in enumerate(patterns):
            sent = batch_of(pattern, f"{number}-")
            assert put(wire, topic, batch(sent, codec=codec)) == (0, base)
            plain += [
                (base + index, (each.value or b"").decode())
                for index, each in enumerate(sent)
                if not each.headers
            ]
            base += len(pattern)
    return plain


@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize("client", sorted(READ))
def test_a_reader_by_offset_steps_over_holes(
    bootstrap: str, topic: str, client: str, codec: int
) -> None:
    plain = fill(bootstrap, topic, *PATTERNS.values(), ".", codec=codec)
    got = READ[client](bootstrap, topic, len(plain))
    assert [(read.offset, (read.value or b"").decode()) for read in got] == plain


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("variant", CLIENTS)
def test_what_is_left_of_a_compressed_batch_is_read_by_every_client(
    bootstrap: str,
    wire: Wire,
    topic: str,
    members: Members,
    exclusive: str,
    variant: str,
    codec: int,
) -> None:
    """It stays compressed: the broker compresses it again, with the batch's own codec."""
    values = [b"much the same each time " * 40 + b"%d" % number for number in range(300)]
    sent = [Sent(value, after(FAR) if n % 7 == 3 else []) for n, value in enumerate(values)]
    assert put(wire, topic, batch(sent, codec=codec)) == (0, 0)
    answer = fetched(wire.call(fetch(topic, 0), 11))
    assert answer.records[22] & 7 == codec
    assert len(answer.records) < sum(map(len, values)) // 4
    plain = [(n, (each.value or b"").decode()) for n, each in enumerate(sent) if not each.headers]
    got = members(variant, exclusive, topic).take(len(plain))
    assert [(record.offset, record.value) for record in got] == plain


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_a_fetch_at_any_offset_gives_what_follows(
    bootstrap: str, wire: Wire, topic: str, name: str
) -> None:
    pattern = PATTERNS[name]
    plain = fill(bootstrap, topic, pattern, pattern)
    end = 2 * len(pattern)
    for offset in range(end):
        answer = wire.call(fetch(topic, offset), 11)
        assert fetched(answer).error_code == 0
        assert fetched(answer).high_watermark == end
        found = [(at, value.decode()) for at, value in offsets_and_values(answer) if at >= offset]
        assert found == [each for each in plain if each[0] >= offset]
    assert listed(wire.call(list_offsets(topic, -1), 7))[2] == end
    assert listed(wire.call(list_offsets(topic, -2), 7))[2] == 0


@pytest.mark.parametrize("variant", CLIENTS)
def test_a_group_that_reads_in_order_steps_over_holes(
    bootstrap: str, members: Members, topic: str, exclusive: str, variant: str
) -> None:
    patterns = [*PATTERNS.values(), ".-----"]
    plain = fill(bootstrap, topic, *patterns)
    member = members(variant, exclusive, topic)
    got = member.take(len(plain))
    assert [(record.offset, record.value) for record in got] == plain
    member.do("commit")
    position = committed(bootstrap, exclusive, topic)
    assert position is not None
    assert plain[-1][0] < position <= sum(map(len, patterns))
    (offset,) = SEND["confluent"](bootstrap, topic, [Sent(b"after the holes")])
    assert [(r.offset, r.value) for r in member.take(1)] == [(offset, "after the holes")]


@pytest.mark.parametrize("variant", EACH_VARIANT)
def test_members_that_share_get_every_plain_record_once(
    bootstrap: str, members: Members, topic: str, shared: str, variant: str
) -> None:
    many = ["-.--" * 50, "-" * 700 + ".", "." + "-" * 1500, "..-" * 100, "-" * 30 + "." + "-" * 30]
    codec = VARIANTS.index(variant) % 5
    plain = fill(bootstrap, topic, *PATTERNS.values(), *many, codec=codec)
    crowd = [members(variant, shared, topic) for _ in range(2)]
    for member in crowd:
        member.run()
    wait(lambda: len(everything(crowd)) == len(plain), "all plain records")
    SEND["confluent"](bootstrap, topic, [Sent(b"after the holes")])
    wait(lambda: len(everything(crowd)) == len(plain) + 1, "what came behind the holes")
    given = everything(crowd)
    assert given.keys() == {value for _, value in plain} | {"after the holes"}
    assert max(given.values()) == 1
    eventually(lambda: lag(bootstrap, shared, topic) == 0, "all is committed, the holes too")


def test_a_member_that_shares_waits_at_a_hole_and_gets_what_is_delivered(
    bootstrap: str, members: Members, topic: str, shared: str
) -> None:
    """The end of the subject is a hole when the member comes to it; then delayed messages fall due."""
    when = now() + 1500
    sent = [Sent(b"plain"), *(Sent(b"later %d" % number, at(when)) for number in range(600))]
    SEND["confluent"](bootstrap, topic, sent)
    crowd = [members(variant, shared, topic) for variant in ("java-consumer", "confluent-range")]
    for member in crowd:
        member.run()
    wait(lambda: len(everything(crowd)) == 601, "all that was scheduled")
    assert max(everything(crowd).values()) == 1
    eventually(lambda: lag(bootstrap, shared, topic) == 0, "all is committed")


def test_what_is_delivered_stands_behind_the_holes_it_left(bootstrap: str, topic: str) -> None:
    for pattern in PATTERNS.values():
        SEND["aiokafka"](bootstrap, topic, batch_of(pattern, pattern, delay=200))
    everything_sent = {
        each.value for pattern in PATTERNS.values() for each in batch_of(pattern, pattern)
    }
    got = read_confluent(bootstrap, topic, len(everything_sent))
    assert {read.value for read in got} == everything_sent
    assert len({read.offset for read in got}) == len(got)
