"""Rounds beside the loop, while the log is closed."""

import trio
import trio.testing

from kumquat.core.errors import KumquatError
from kumquat.core.logs.flushing.rounds import Rounds
from kumquat.core.logs.messages.recovery.opening import open_log
from kumquat.core.logs.tests.batches import batch
from kumquat.core.logs.tests.driver import DATA, OPTIONS
from kumquat.core.logs.tests.power import FakeFiles, HeldSync


def test_what_is_written_while_the_last_round_is_awaited_is_durable_before_the_log_is_closed() -> (
    None
):
    files = FakeFiles(DATA)
    log = open_log(files, OPTIONS, lambda: 1_700_000_000_000)
    held = HeldSync()
    answers: list[KumquatError | None] = []

    async def story() -> None:
        rounds = Rounds(log)
        subject = log.create_subject_nowait("s")
        files.during_sync = held
        rounds.begin_nowait()
        await trio.to_thread.run_sync(held.started.wait)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rounds.close)
            await trio.testing.wait_all_tasks_blocked()
            end = log.append_nowait(subject, memoryview(batch(b"late"))).end
            log.write_nowait()
            log.call_when_synced(end, answers.append)
            held.release()
        rounds.begin_nowait()
        log.close()

    trio.run(story)
    assert answers == [None]
    assert log.synced_end == log.written_end
