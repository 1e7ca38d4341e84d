"""Letters go home, whatever they carry and however often they died; forged ones do not get far."""

from pathlib import Path

import pytest

from kumquat.core.delivery.actions import ATTEMPTS, EXPIRED, REJECTED
from kumquat.core.delivery.dead_letters.letters import (
    GROUP,
    REASON,
    SEQUENCE,
    SUBJECT,
    TEXT,
    Origin,
    origin_of,
)
from kumquat.core.delivery.dead_letters.names import OWN, is_own
from kumquat.core.delivery.dead_letters.open_letters import Filter
from kumquat.core.delivery.dead_letters.tests.rig import Rig
from kumquat.core.delivery.dead_letters.tests.test_expiry import failed, retention
from kumquat.core.delivery.dead_letters.tests.test_letters import DLQ, run
from kumquat.core.records import Record
from kumquat.core.records.rewrite import NOTHING, Body, build, header

ALL = Filter()
LONG_AGO = 1_000_000
Pairs = tuple[tuple[str, bytes | None], ...]


def bare(*headers: tuple[str, bytes], timestamp: int = LONG_AGO, newest: int = 0) -> bytearray:
    """A batch of one record without key and value."""
    packed = [header(name.encode(), value) for name, value in headers]
    return build([(Body(timestamp, NOTHING, 0, b""), packed)], newest)


def dead_of(subject: str, reason: str = REJECTED) -> list[tuple[str, bytes]]:
    """The headers of a letter that say no time."""
    said = {SUBJECT: subject, SEQUENCE: "0", GROUP: "g", REASON: reason}
    return [(name, value.encode()) for name, value in said.items()]


# --- when it died --------------------------------------------------------------------------------


def test_a_letter_of_a_message_that_retention_took_has_died_just_now(tmp_path: Path) -> None:
    """Not when its message was produced: a purge of old letters would take it."""

    async def test(it: Rig) -> None:
        before = it.actions.now_ms()
        await retention(it, await failed(it, 3))
        letters = (await it.dead.redrives.page(DLQ, ALL)).letters
        assert [letter.origin.reason for letter in letters] == [EXPIRED] * 3
        assert all(before <= letter.origin.last_ms <= it.actions.now_ms() for letter in letters)
        assert (await it.dead.redrives.purge(DLQ, Filter(until=before))).done == 0

    run(tmp_path, test)


def test_a_letter_that_does_not_say_when_it_died_has_died_when_it_was_written(
    tmp_path: Path,
) -> None:
    """So an older broker wrote those that retention took."""

    async def test(it: Rig) -> None:
        await dies(it, "s", "g", bare(("h", b"1")))
        now = it.log.log.now_ms()
        await it.produce(DLQ, data=bare(("h", b"2"), *dead_of("s", EXPIRED), newest=now))
        purged = await it.dead.redrives.purge(DLQ, Filter(until=now - 1, header=("h", b"2")))
        assert purged.done == 0
        purged = await it.dead.redrives.purge(DLQ, Filter(until=now + 1, header=("h", b"2")))
        assert purged.done == 1

    run(tmp_path, test)


# --- where it goes -------------------------------------------------------------------------------


async def dies(it: Rig, subject: str, group: str, data: bytearray | None = None) -> None:
    """A new message, or else the last one of the subject, becomes a letter of the group."""
    if data is not None:
        await it.produce(subject, data=data)
    last = it.subject(subject).readable_end - 1
    it.doom(group, subject, [[last, 1, 1]], REJECTED)
    await it.written(group, subject)


@pytest.mark.parametrize("name", [*sorted(OWN), "__kumquat_future"])
def test_a_forged_letter_is_not_sent_to_a_subject_of_the_broker(tmp_path: Path, name: str) -> None:
    async def test(it: Rig) -> None:
        await dies(it, "s", "g", bare(("h", b"1")))
        it.subject(name)
        await it.produce(DLQ, data=bare(("h", b"2"), *dead_of(name)))
        for to in (None, name):
            forged = Filter(header=("h", b"2"))
            outcome = await it.dead.redrives.redrive(DLQ, forged, to=to)
            (why,) = outcome.refused
            assert (outcome.done, f"{name} is the broker's own subject" in why) == (0, True)
        assert it.letters(name) == []
        assert len((await it.dead.redrives.page(DLQ, ALL)).letters) == 2

    run(tmp_path, test)


def test_letters_are_not_written_to_a_subject_of_the_broker(tmp_path: Path) -> None:
    """A group may be called like one, and its letters' subject like the group."""

    async def test(it: Rig) -> None:
        it.config.dead_letter_subject = "{group}"
        it.subject("__kumquat_actions")
        await it.produce("s", b"a")
        it.doom("__kumquat_actions", "s", [[0, 1, 1]])
        await it.until(lambda: bool(it.dead.statistics().failing))
        (why,) = it.dead.statistics().failing.values()
        assert "the broker's own subject" in why
        assert it.letters("__kumquat_actions") == []

    run(tmp_path, test)


@pytest.mark.parametrize("headers", [(), (("h", b"1"),)])
def test_a_message_without_key_and_value_goes_home(
    tmp_path: Path, headers: tuple[tuple[str, bytes], ...]
) -> None:
    async def test(it: Rig) -> None:
        await dies(it, "s", "g", bare(*headers))
        for sent in (2, 3):
            outcome = await it.dead.redrives.redrive(DLQ, ALL)
            assert (outcome.done, dict(outcome.refused)) == (1, {})
            back = it.letters("s")
            assert len(back) == sent
            assert (back[-1].key, back[-1].value) == (None, None)
            assert tuple(back[-1].headers[: len(headers)]) == headers
            await dies(it, "s", "g")

    run(tmp_path, test)


def test_one_with_headers_goes_home_also_when_retention_took_it(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", data=bare(("h", b"1")))
        it.doom("g", "s", [[0, 1, 1]], EXPIRED)
        await it.written("g", "s")
        assert (await it.dead.redrives.redrive(DLQ, ALL)).done == 1

    run(tmp_path, test)


def test_a_letter_of_a_letter_goes_home_through_the_subject_it_died_in(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"a", b"b")
        await dies(it, "s", "g")
        await dies(it, DLQ, "h")
        second = f"{DLQ}.h.dlq"
        (letter,) = (await it.dead.redrives.page(second, ALL)).letters
        assert (letter.origin.subject, letter.origin.group) == (DLQ, "h")
        assert dict((await it.dead.redrives.redrive(second, ALL)).to) == {DLQ: 1}
        first, back = (await it.dead.redrives.page(DLQ, ALL)).letters
        assert back.origin == first.origin
        assert back.origin[:3] == ("s", 1, "g")
        assert dict((await it.dead.redrives.redrive(DLQ, ALL)).to) == {"s": 2}
        assert [record.value for record in it.letters("s")] == [b"a", b"b", b"b", b"b"]
        await dies(it, "s", "g")
        (letter,) = (await it.dead.redrives.page(DLQ, ALL)).letters
        assert letter.origin[:3] == ("s", 3, "g")

    run(tmp_path, test)


def test_a_death_without_a_text_does_not_show_that_of_the_one_before() -> None:
    headers: Pairs = (*dead_of("s"), (TEXT, b"the first"), *dead_of("s", ATTEMPTS))
    said = origin_of(Record(0, 0, None, None, headers), DLQ)
    assert said == Origin("s", 0, "g", -1, -1, -1, ATTEMPTS, "")


def test_what_is_no_letter_comes_from_nowhere() -> None:
    for headers in ([("h", b"1")], dead_of(DLQ)):
        pairs: Pairs = (*headers,)
        assert origin_of(Record(0, 0, None, None, pairs), DLQ).subject == ""


def test_every_subject_that_the_broker_makes_for_itself_is_known() -> None:
    assert all(map(is_own, OWN))
    assert not is_own("kumquat_actions")
    assert not is_own("__kumquat")
