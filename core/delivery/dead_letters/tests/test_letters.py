"""Dead letters that say something else than what happened, or are not written when they could be."""

import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio

from kumquat.core.clock import wall_clock_ms
from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.actions import ATTEMPTS, EXPIRED, REJECTED, UNREADABLE
from kumquat.core.delivery.dead_letters.letters import MOST_TEXT, origin_of
from kumquat.core.delivery.dead_letters.names import MAX_NAME, letters_name
from kumquat.core.delivery.dead_letters.open_letters import Filter
from kumquat.core.delivery.dead_letters.reader import Loaded
from kumquat.core.delivery.dead_letters.tests.rig import Rig, rig
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.tests.power import FakeFiles, Fault
from kumquat.core.records import read_head
from kumquat.core.records.batch import HEAD_SIZE
from kumquat.core.records.tests.test_batch import built, resummed
from kumquat.core.records.tests.test_rewrite import holed, written

DLQ = "s.g.dlq"
Test = Callable[[Rig], Coroutine[Any, Any, None]]


def run(folder: Path, test: Test, files: FakeFiles | None = None, **options: int) -> None:
    async def main() -> None:
        async with rig(files or FakeFiles(folder / "data"), **options) as it:
            await test(it)

    trio.run(main)


@pytest.mark.parametrize(
    ("subject", "group", "configured", "name"),
    [
        ("s", "g", "", "s.g.dlq"),
        ("s", "g", "dead", "dead"),
        ("s", "{subject}", "{group}-{subject}", "_subject_-s-"),
        ("s", "a group", "", "s.a_group.dlq-"),
        ("s", "g" * 300, "", "s." + "g" * 238 + "-"),
    ],
)
def test_names(subject: str, group: str, configured: str, name: str) -> None:
    found = letters_name(subject, group, configured)
    assert found.startswith(name)
    assert len(found) in (len(name), len(name) + 8)
    assert len(found) <= MAX_NAME


def test_two_groups_whose_names_look_alike_do_not_share_a_subject() -> None:
    assert letters_name("s", "a b") != letters_name("s", "a_b") != letters_name("s", "a?b")
    assert letters_name("s", "g" * 300) != letters_name("s", "g" * 301)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_letter_is_the_record_as_it_was_with_what_happened_behind_its_headers(
    tmp_path: Path, codec: int
) -> None:
    async def test(it: Rig) -> None:
        data = built(b"a", b"b", b"c", codec=codec, headers=(("h", b"1"),))
        await it.produce("s", data=data)
        it.doom("g", "s", [[1, 1, 5]], REJECTED, "no such customer: Zoë")
        await it.written("g", "s")
        (letter,) = it.letters(DLQ)
        assert (letter.timestamp, letter.key, letter.value) == (1_001, b"k1", b"b")
        assert letter.headers[0] == ("h", b"1")
        names = [name for name, _ in letter.headers[1:]]
        assert names == [
            "qmq-dead-subject",
            "qmq-dead-sequence",
            "qmq-dead-group",
            "qmq-dead-attempts",
            "qmq-dead-first-ms",
            "qmq-dead-last-ms",
            "qmq-dead-reason",
            "qmq-dead-text",
        ]
        origin = origin_of(letter)
        assert origin[:4] == ("s", 1, "g", 5)
        assert origin.reason == REJECTED
        assert origin.text == "no such customer: Zoë"
        now = it.actions.now_ms()
        assert now - 60_000 < origin.first_ms <= origin.last_ms <= now

    run(tmp_path, test)


def test_a_text_that_is_long_is_cut_between_letters_of_the_alphabet(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"a")
        it.doom("g", "s", [[0, 1, 1]], REJECTED, "x" + "ö" * MOST_TEXT)
        await it.written("g", "s")
        (letter,) = it.letters(DLQ)
        assert origin_of(letter).text == "x" + "ö" * (MOST_TEXT // 2 - 1)

    run(tmp_path, test)


def test_many_letters_are_written_in_few_batches_and_syncs(tmp_path: Path) -> None:
    """5,000 messages in ranges of one: not a sync for each."""

    async def test(it: Rig) -> None:
        for _ in range(5):
            await it.produce("s", *[b"v"] * 1_000)
        before = it.log.statistics().syncs
        it.doom("g", "s", [[at, 1, 3] for at in range(5_000)])
        await it.written("g", "s")
        assert sorted(origin_of(each).sequence for each in it.letters(DLQ)) == [*range(5_000)]
        assert it.log.statistics().syncs - before < 60
        assert it.dead.statistics().written == 5_000

    run(tmp_path, test, segment_bytes=1 << 20, index_max_entries=10_000)


def damaged(it: Rig, at: int) -> None:
    """Flip a bit of a message on disk, and forget what is in memory."""
    path = it.log.log.state.active.path
    content = bytearray(it.files.content(path))
    content[at] ^= 1
    it.files.damage(path, bytes(content))


def test_a_message_whose_checksum_is_wrong_becomes_a_letter_without_a_value(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"good")
        await it.produce("s", b"bad" * 100)
        damaged(it, it.log.log.written_end - 10)
        for _ in range(3):  # out of the tail
            await it.produce("s", bytes(1_000))
        it.doom("g", "s", [[0, 2, 16]], ATTEMPTS)
        await it.written("g", "s")
        good, bad = it.letters(DLQ)
        assert (good.value, origin_of(good).reason) == (b"good", ATTEMPTS)
        assert (bad.key, bad.value) == (None, None)
        origin = origin_of(bad)
        assert (origin.reason, origin.sequence, origin.attempts) == (UNREADABLE, 1, 16)
        assert "CRC" in origin.text
        assert origin.text.endswith(ATTEMPTS)
        assert it.dead.statistics().unreadable == 1

    run(tmp_path, test)


@pytest.mark.parametrize("garbled", [0, 2])
def test_a_garbled_record_does_not_cost_its_neighbours_their_values(
    tmp_path: Path, garbled: int
) -> None:
    """The client wrote it so, and the checksum is right: it ends in the middle of its header count."""

    async def test(it: Rig) -> None:
        data = built(b"v0", b"v1", b"v2")
        size = (len(data) - HEAD_SIZE) // 3
        data[HEAD_SIZE + (garbled + 1) * size - 1] = 0x80
        await it.produce("s", data=resummed(data))
        it.doom("g", "s", [[0, 3, 2]])
        await it.written("g", "s")
        letters = it.letters(DLQ)
        assert [origin_of(each).sequence for each in letters] == [0, 1, 2]
        expected = [None if i == garbled else b"v%d" % i for i in range(3)]
        assert [each.value for each in letters] == expected
        reasons = [origin_of(each).reason for each in letters]
        assert reasons == [UNREADABLE if i == garbled else ATTEMPTS for i in range(3)]

    run(tmp_path, test)


def test_a_message_that_retention_took_becomes_a_letter_that_says_so(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        it.refuse = "not yet"
        await it.produce("s", b"a", b"b")
        await it.produce("s", b"c")
        it.doom("g", "s", [[0, 3, 2]], REJECTED, "why")
        await it.until(lambda: bool(it.dead.statistics().failing))
        it.log.raise_earliest_nowait(it.subject("s"), 2)
        it.refuse = ""
        await it.written("g", "s")
        origins = [origin_of(each) for each in it.letters(DLQ)]
        assert [each.sequence for each in origins] == [0, 1, 2]
        assert [each.reason for each in origins] == [EXPIRED, EXPIRED, REJECTED]
        assert origins[0].text == "retention took the message; rejected; why"

    run(tmp_path, test)


def test_the_letter_of_an_old_message_is_not_deleted_as_soon_as_it_is_written(
    tmp_path: Path,
) -> None:
    """It has the timestamp of its message, which is older than retention.ms."""

    async def test(it: Rig) -> None:
        await it.produce("s", data=built(b"of 1970"))
        it.doom("g", "s", [[0, 1, 2]])
        await it.written("g", "s")
        dead = it.subject(DLQ)
        dead.config = type(dead.config)(1 << 20, 60_000, -1)
        await it.log.apply_retention()
        (letter,) = it.letters(DLQ)
        assert letter.timestamp == 1_000
        assert await it.log.max_timestamp(dead) == (1_000, 0)

    run(tmp_path, test)


def test_a_letter_lives_by_the_clock_of_retention_also_when_that_was_set_forward(
    tmp_path: Path,
) -> None:
    """Groups live by a steady clock, which stays behind when the wall clock is set."""

    async def test(it: Rig) -> None:
        it.actions.now_ms = lambda: wall_clock_ms() - 7_200_000
        await it.produce("s", data=built(b"of 1970"))
        it.doom("g", "s", [[0, 1, 2]])
        await it.written("g", "s")
        dead, origin = it.subject(DLQ), it.subject("s")
        dead.config = origin.config = type(dead.config)(1 << 20, 3_600_000, -1)
        await it.log.apply_retention()
        assert [each.value for each in it.letters(DLQ)] == [b"of 1970"]
        assert it.letters("s") == []
        assert (await it.dead.redrives.redrive(DLQ, Filter())).done == 1
        await it.log.apply_retention()
        assert [each.value for each in it.letters("s")] == [b"of 1970"]

    run(tmp_path, test)


def test_an_error_of_the_disk_is_no_verdict_and_the_letter_is_written_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"value")
        for _ in range(3):  # out of the tail
            await it.produce("s", bytes(1_000))
        it.files.fail(Fault("pread", errno.EIO, times=None, name=".log"))
        it.doom("g", "s", [[0, 1, 2]])
        await it.until(lambda: bool(it.dead.statistics().failing))
        assert it.dead.statistics().waiting == 1
        it.files.heal()
        await it.written("g", "s")
        (letter,) = it.letters(DLQ)
        assert letter.value == b"value"
        assert not it.dead.statistics().failing
        said = [r.getMessage() for r in caplog.records if r.name == "kumquat.dead_letters"]
        assert sum("cannot be written" in text for text in said) == 1
        assert sum("written again" in text for text in said) == 1

    run(tmp_path, test)


@pytest.mark.parametrize("name", [".log", "unnamed"])
def test_a_full_disk_loses_no_letter_and_doubles_none(tmp_path: Path, name: str) -> None:
    """The message log, or the action log when the letter is durable already."""

    async def test(it: Rig) -> None:
        await it.produce("s", b"value")
        await it.produce(DLQ, b"made before, as one who has dead letters already")
        it.doom("g", "s", [[0, 1, 2]])
        it.files.fail(Fault("pwritev", errno.ENOSPC, name=name, times=2))
        await it.written("g", "s")
        assert [each.value for each in it.letters(DLQ)[1:]] == [b"value"]

    run(tmp_path, test)


def test_a_message_too_large_for_its_subject_stays_and_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"a", bytes(2_000), b"b")
        dead = it.subject(DLQ)
        config = dead.config
        dead.config = type(config)(1_000, -1, -1)
        it.doom("g", "s", [[0, 3, 2]])
        await it.until(lambda: it.open("g", "s") == {1})
        assert [each.value for each in it.letters(DLQ)] == [b"a", b"b"]
        (reason,) = it.dead.statistics().failing.values()
        assert "message 1" in reason
        assert "max.message.bytes of s.g.dlq is 1000" in reason
        dead.config = config
        await it.written("g", "s")
        assert len(it.letters(DLQ)) == 3
        assert not it.dead.statistics().failing

    run(tmp_path, test)


def test_a_group_whose_letters_cannot_be_written_does_not_hold_up_another(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"a", b"b")
        it.refuse = "the name is taken"
        it.subject("s.h.dlq")
        it.doom("g", "s", [[0, 2, 2]])
        it.doom("h", "s", [[0, 2, 2]])
        await it.written("h", "s")
        assert len(it.letters("s.h.dlq")) == 2
        await it.until(lambda: bool(it.dead.statistics().failing))
        assert it.dead.statistics().failing == {("g", "s"): "the name is taken"}
        assert it.dead.statistics().waiting == 2
        it.refuse = ""
        await it.written("g", "s")
        assert len(it.letters(DLQ)) == 2

    run(tmp_path, test)


def test_a_group_that_is_deleted_meanwhile_gets_no_letters(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"a")
        it.refuse = "not yet"
        it.doom("g", "s", [[0, 1, 2]])
        await it.until(lambda: bool(it.dead.statistics().failing))
        it.append([kinds.Forget(it.group("g"))])
        it.refuse = ""
        await it.produce("t", b"a")
        it.doom("h", "t", [[0, 1, 2]])
        await it.written("h", "t")
        assert DLQ not in it.log.subjects.by_name
        assert not it.dead.statistics().failing
        assert it.dead.statistics().waiting == 0

    run(tmp_path, test)


def test_a_letters_subject_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"a", b"b")
        it.doom("g", "s", [[0, 1, 2]])
        await it.written("g", "s")
        dead = it.subject(DLQ)
        it.log.delete_subject_nowait(dead)
        it.append([kinds.Gone(dead.id)])
        it.doom("g", "s", [[1, 1, 2]])
        await it.written("g", "s")
        assert [each.value for each in it.letters(DLQ)] == [b"b"]

    run(tmp_path, test)


def test_sequences_that_no_message_has_are_settled_without_a_letter(tmp_path: Path) -> None:
    """As after messages for later: the batch has a hole."""

    async def test(it: Rig) -> None:
        await it.produce("s", b"before")
        data = holed(written([(1, b"a", b"1", []), (2, b"b", b"2", [])], 0))
        it.log.append_nowait(it.subject("s"), memoryview(data), read_head(data))
        await it.log.wait_synced()
        it.doom("g", "s", [[0, 7, 2]])
        await it.written("g", "s")
        assert [origin_of(each).sequence for each in it.letters(DLQ)] == [0, 1, 6]
        it.doom("h", "s", [[2, 2, 2]])
        await it.written("h", "s")
        assert it.letters("s.h.dlq") == []

    run(tmp_path, test)


def test_a_broker_without_dead_letters_does_not_hold_on_to_old_segments(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        for _ in range(6):
            await it.produce("s", bytes(3_000))
        assert len(it.log.log.state.segments) > 2
        assert it.joiner.keep_from() < it.log.log.state.active.base
        it.dead.settling.keep_up()
        await it.actions.wait_synced()
        assert it.joiner.keep_from() >= it.log.log.state.active.base
        assert it.actions.groups.joined == it.joiner.keep_from()

    run(tmp_path, test)


@pytest.mark.parametrize("to", [0, 2])
def test_a_message_that_a_reset_takes_back_while_its_letter_is_made_gets_none(
    tmp_path: Path, to: int
) -> None:
    """It is delivered again instead. One below the new position still gets its letter."""

    async def test(it: Rig) -> None:
        await it.produce("s", b"a", b"b", b"c")
        subject_id, gid, load = it.subject("s").id, it.group("g"), it.dead.reader.load

        async def reset_meanwhile(subject: Subject, first: int, end: int) -> Loaded:
            loaded = await load(subject, first, end)
            it.dead.reader.load = load  # type: ignore[method-assign]
            it.append([kinds.Drop(gid, subject_id, to), kinds.Commit(gid, subject_id, to, -1, "")])
            return loaded

        it.dead.reader.load = reset_meanwhile  # type: ignore[method-assign,assignment]
        it.doom("g", "s", [[1, 1, 1]])
        await it.written("g", "s")
        it.doom("g", "s", [[2, 1, 1]])
        await it.written("g", "s")
        wanted = [b"b", b"c"] if to else [b"c"]
        assert [letter.value for letter in it.letters(DLQ)] == wanted

    run(tmp_path, test)
