"""kill -9 of a real process with a real action log, again and again on one folder.

The child tells of each pull before and each ack after it is durable. Afterwards no acked message is
unacked, and no pull offset, in any life, has named two messages.
"""

import subprocess
import sys
from pathlib import Path

from kumquat.core.clock import wall_clock_ms
from kumquat.core.logs.actions.recovery import open_action_log
from kumquat.core.logs.disk.files import RealFiles

CHILD = """
import sys
from pathlib import Path
import trio
from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.ranges import Range
from kumquat.core.logs.actions.service import ActionService

async def main():
    log = ActionService.open(Path(sys.argv[1]), segment_bytes=5000)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        groups = log.groups
        if 1 not in groups.by_id:
            log.append_nowait([actions.Group(1, "g"), actions.Share(1, 1, 0)])
        group = groups.by_id[1]
        fields = dict(id=sys.argv[2], generation=1, kind="eager", client_id="", host="", session_ms=1,
                      rebalance_ms=1)
        opened = engine.open_pull_log(groups, group, 1, sys.argv[2])
        log.append_nowait([opened, actions.Member(1, fields)])
        while True:
            for slot, (_, pulls) in list(groups.slots[1].items()):
                progress = group.progress[1]
                ranges = list(progress.redelivery.parts(3, 3)) or [Range(progress.cursor, 3, 1)]
                pull = pulls.next
                log.append_nowait([engine.pull_action(1, 1, pulls, ranges)], urgent=False)
                for part in ranges:
                    for sequence in range(part.first, part.end):
                        print("pulled", slot, pull, sequence, flush=True)
                        pull += 1
                if slot % 2:
                    done = [lease.first + i for lease in pulls.leases for i in range(lease.size)]
                    await log.wait_synced(log.append_nowait([engine.ack(1, 1, pulls, pulls.next)]))
                    print("acked", *done, flush=True)

trio.run(main)
"""


def test_killed_again_and_again_nothing_acked_comes_back(tmp_path: Path) -> None:
    named: dict[tuple[str, str], str] = {}
    acked: set[int] = set()
    for life in range(6):
        command = [sys.executable, "-c", CHILD, str(tmp_path), f"m{life}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            lines = [line for _, line in zip(range(150 + 37 * life), child.stdout, strict=False)]
            child.kill()
            lines += [line for line in child.stdout if line.endswith("\n")]
        for line in lines:
            kind, *rest = line.split()
            if kind == "acked":
                acked |= {int(sequence) for sequence in rest}
            else:
                slot, pull, sequence = rest
                assert int(sequence) not in acked, "an acked message was handed out again"
                assert named.setdefault((slot, pull), sequence) == sequence
    log = open_action_log(RealFiles(), tmp_path, wall_clock_ms)
    progress = log.groups.by_id[1].progress[1]
    unacked = {r.first + i for r in progress.redelivery for i in range(r.size)}
    for pulls in progress.pull_logs.values():
        unacked |= {lease.first + i for lease in pulls.leases for i in range(lease.size)}
    assert acked
    assert not acked & unacked
    assert max(acked) < progress.cursor
    log.close()
