"""Letters that are sent back twice, not at all, or other ones than those that were meant."""

from pathlib import Path

import pytest
import trio

from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.actions import ATTEMPTS, REJECTED
from kumquat.core.delivery.dead_letters.letters import REDRIVEN, origin_of
from kumquat.core.delivery.dead_letters.open_letters import Filter
from kumquat.core.delivery.dead_letters.redrive import Busy, NoLetters
from kumquat.core.delivery.dead_letters.tests.rig import Rig, open_logs, read_all, rig
from kumquat.core.delivery.dead_letters.tests.test_letters import DLQ, run
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.records.tests.test_batch import built, resummed

ALL = Filter()


async def dead(it: Rig, count: int = 6) -> None:
    """Messages v0… of subject s; those of group g are dead, every other one rejected."""
    values = [b"v%d" % number for number in range(count)]
    base = await it.produce("s", data=built(*values, codec=4, headers=(("h", b"1"),)))
    for number in range(count):
        reason = REJECTED if number % 2 else ATTEMPTS
        it.doom("g", "s", [[base + number, 1, 3]], reason, f"text {number}")
    await it.written("g", "s")


async def values(it: Rig, wanted: Filter = ALL, limit: int = 100) -> list[bytes | None]:
    """The open letters, through all pages."""
    found: list[bytes | None] = []
    after: int | None = -1
    while after is not None:
        page = await it.dead.redrives.page(DLQ, wanted, after, limit)
        found += [letter.record.value for letter in page.letters]
        assert len(page.letters) <= limit
        after = page.after
    return found


def test_what_was_never_written_to_has_no_letters(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await it.produce("s", b"a")
        for name in ("s", "nowhere"):
            with pytest.raises(NoLetters, match=name):
                await it.dead.redrives.page(name, ALL)
        assert it.dead.redrives.subjects() == []
        await dead(it)
        (found,) = it.dead.redrives.subjects()
        assert (found.name, found.open, found.earliest, found.end) == (DLQ, 6, 0, 6)

    run(tmp_path, test)


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_pages_hold_each_letter_once(tmp_path: Path, limit: int) -> None:
    async def test(it: Rig) -> None:
        await dead(it)
        await it.produce(DLQ, b"no letter: somebody else has put it there")
        await dead(it)
        assert await values(it, limit=limit) == [b"v%d" % n for n in range(6)] * 2

    run(tmp_path, test)


def test_letters_are_found_by_all_that_is_known_of_them(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it)
        odd = [b"v1", b"v3", b"v5"]
        assert await values(it, Filter(reason=REJECTED)) == odd
        assert await values(it, Filter(reason=REJECTED, key=b"k3")) == [b"v3"]
        assert await values(it, Filter(group="other")) == []
        assert len(await values(it, Filter(group="g", origin="s"))) == 6
        assert len(await values(it, Filter(header=("h", b"1")))) == 6
        assert await values(it, Filter(header=("h", b"2"))) == []
        assert await values(it, Filter(header=("qmq-dead-sequence", b"4"))) == [b"v4"]
        now = it.actions.now_ms()
        assert len(await values(it, Filter(since=now - 60_000, until=now + 60_000))) == 6
        assert await values(it, Filter(since=now + 60_000)) == []
        assert await values(it, Filter(until=now - 60_000)) == []

    run(tmp_path, test)


def test_a_letter_is_shown_with_its_headers_open_or_not(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it)
        await it.dead.redrives.purge(DLQ, ALL)
        letter = await it.dead.redrives.show(DLQ, 3)
        assert letter is not None
        assert (letter.record.value, letter.origin.text) == (b"v3", "text 3")
        assert await it.dead.redrives.show(DLQ, 6) is None

    run(tmp_path, test)


def test_a_letter_goes_back_once_with_its_history(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it)
        outcome = await it.dead.redrives.redrive(DLQ, Filter(reason=REJECTED))
        assert (outcome.done, dict(outcome.to), outcome.after) == (3, {"s": 3}, None)
        sent = it.letters("s")[6:]
        assert [(each.key, each.value) for each in sent] == [
            (b"k%d" % n, b"v%d" % n) for n in (1, 3, 5)
        ]
        assert [each.timestamp for each in sent] == [1_001, 1_003, 1_005]
        assert sent[0].headers[0] == ("h", b"1")
        assert sent[0].headers[-1][0] == REDRIVEN
        assert origin_of(sent[0]).text == "text 1"
        assert await values(it) == [b"v0", b"v2", b"v4"]
        again = await it.dead.redrives.redrive(DLQ, Filter(reason=REJECTED))
        assert again.done == 0
        assert len(it.letters("s")) == 9

    run(tmp_path, test)


def test_a_redriven_message_that_dies_again_tells_of_its_last_death(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it, 1)
        await it.dead.redrives.redrive(DLQ, ALL)
        it.doom("g", "s", [[1, 1, 7]], REJECTED, "again")
        await it.written("g", "s")
        letter = await it.dead.redrives.show(DLQ, 1)
        assert letter is not None
        assert letter.origin[:4] == ("s", 1, "g", 7)
        assert letter.origin.text == "again"
        names = [name for name, _ in letter.record.headers]
        assert names.count("qmq-dead-subject") == 2
        assert names.count(REDRIVEN) == 1

    run(tmp_path, test)


def test_a_dry_run_counts_and_changes_nothing(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it)
        it.subject("t")
        before = it.log.log.written_end
        outcome = await it.dead.redrives.redrive(DLQ, ALL, to="t", most=4, dry_run=True)
        assert (outcome.done, dict(outcome.to)) == (4, {"t": 4})
        purge = await it.dead.redrives.purge(DLQ, Filter(reason=REJECTED), dry_run=True)
        assert purge.done == 3
        assert it.log.log.written_end == before
        assert len(await values(it)) == 6

    run(tmp_path, test)


def test_some_are_sent_elsewhere_and_the_rest_can_follow(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it)
        it.subject("t")
        outcome = await it.dead.redrives.redrive(DLQ, ALL, to="t", most=4)
        assert outcome.done == 4
        assert outcome.after is not None
        assert await values(it) == [b"v4", b"v5"]
        rest = await it.dead.redrives.redrive(DLQ, ALL, to="t", after=outcome.after)
        assert rest.done == 2
        assert [each.value for each in it.letters("t")] == [b"v%d" % n for n in range(6)]

    run(tmp_path, test)


def test_what_cannot_be_sent_stays_open_and_says_why(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it, 2)
        await it.produce("s", bytes(1_000))
        await it.produce("s", b"gone")
        it.log.raise_earliest_nowait(it.subject("s"), 4)
        it.doom("g", "s", [[3, 1, 2]])
        await it.written("g", "s")
        nowhere = await it.dead.redrives.redrive(DLQ, ALL, to="nowhere")
        empty = "the message could not be read: the letter has no value"
        assert dict(nowhere.refused) == {"there is no subject nowhere": 2, empty: 1}
        itself = await it.dead.redrives.redrive(DLQ, ALL, to=DLQ)
        assert itself.refused["it would come back to where it is"] == 2
        small = it.subject("small")
        small.config = type(small.config)(100, -1, -1)
        refused = await it.dead.redrives.redrive(DLQ, ALL, to="small")
        assert refused.refused["larger than max.message.bytes of small"] == 2
        assert refused.done == 0
        assert len(await values(it)) == 3

    run(tmp_path, test)


def test_a_purged_letter_is_neither_listed_nor_sent_also_after_a_start(tmp_path: Path) -> None:
    files = FakeFiles(tmp_path / "data")

    async def test(it: Rig) -> None:
        await dead(it)
        outcome = await it.dead.redrives.purge(DLQ, Filter(reason=REJECTED), most=2)
        assert (outcome.done, outcome.after) == (2, 3)
        assert await values(it) == [b"v0", b"v2", b"v4", b"v5"]

    async def after(it: Rig) -> None:
        assert await values(it) == [b"v0", b"v2", b"v4", b"v5"]
        assert (await it.dead.redrives.redrive(DLQ, ALL)).done == 4

    run(tmp_path, test, files)
    run(tmp_path, after, files)


def test_a_rate_is_kept(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it, 30)
        begun = trio.current_time()
        outcome = await it.dead.redrives.redrive(DLQ, ALL, rate=100)
        assert outcome.done == 30
        assert trio.current_time() - begun >= 0.3

    run(tmp_path, test)


def test_two_redrives_of_a_subject_do_not_send_the_same_letters(tmp_path: Path) -> None:
    async def test(it: Rig) -> None:
        await dead(it, 30)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: it.dead.redrives.redrive(DLQ, ALL, rate=20))
            await it.log.wait_for_data([it.subject("s")], trio.current_time() + 60)
            with pytest.raises(Busy):
                await it.dead.redrives.redrive(DLQ, ALL)
            with pytest.raises(Busy):
                await it.dead.redrives.purge(DLQ, ALL)
            nursery.cancel_scope.cancel()
        await it.dead.redrives.redrive(DLQ, ALL)
        sent = [each.value or b"" for each in it.letters("s")[30:]]
        assert sorted(sent) == sorted(b"v%d" % n for n in range(30))

    run(tmp_path, test)


def test_a_letter_is_sent_once_wherever_the_broker_was_killed(tmp_path: Path) -> None:
    """At each step of the disk: it is open, or it was sent back."""
    files = FakeFiles(tmp_path / "data")
    left: list[FakeFiles] = []

    async def main() -> None:
        async with rig(files) as it:
            await dead(it, 8)
            await it.actions.wait_synced()
            files.before_step = lambda: left.append(files.after_kill())
            for _ in range(4):
                await it.dead.redrives.redrive(DLQ, ALL, most=2)
            files.before_step = None
            left.append(files.after_kill())

    async def look(disk: FakeFiles) -> tuple[int, int]:
        async with rig(disk) as it:
            sent = [each.value for each in it.letters("s")[8:]]
            still = await values(it)
            assert sorted([*sent, *still], key=str) == [b"v%d" % n for n in range(8)]
            return len(sent), len(still)

    trio.run(main)
    stages = {trio.run(look, disk) for disk in left}
    assert len(stages) >= 4
    assert (8, 0) in stages


def test_the_internal_group_does_not_outlive_its_subject(tmp_path: Path) -> None:
    files = FakeFiles(tmp_path / "data")

    async def test(it: Rig) -> None:
        await dead(it)
        await it.dead.redrives.redrive(DLQ, ALL, most=3)
        subject = it.subject(DLQ)
        it.log.delete_subject_nowait(subject)
        it.append([kinds.Gone(subject.id)])
        await it.log.wait_synced()
        await it.actions.wait_synced()
        assert it.dead.redrives.subjects() == []

    run(tmp_path, test, files)
    log, actions, _ = open_logs(files)
    assert len(read_all(log, "s")) == 9
    actions.log.close()
    log.abandon()


def test_a_letter_with_a_header_name_that_is_no_text_is_listed_and_sent_back_as_it_is(
    tmp_path: Path,
) -> None:
    """Some clients write any bytes."""

    async def test(it: Rig) -> None:
        data = built(b"value", headers=(("name", b"1"),))
        at = data.index(b"name")
        data[at : at + 4] = b"n\xffm\xe9"
        await it.produce("s", data=resummed(data))
        it.doom("g", "s", [[0, 1, 3]])
        await it.written("g", "s")
        assert await values(it) == [b"value"]
        assert (await it.dead.redrives.redrive(DLQ, ALL)).done == 1
        (sent,) = await it.log.read(it.subject("s"), 1, 1 << 20, True)
        assert bytes(sent).count(b"n\xffm\xe9") == 1
        assert await values(it) == []

    run(tmp_path, test)
