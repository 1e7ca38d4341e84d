"""Opening the action log: where replay begins, and what is repaired before the log is used.

Replay (replay.py) begins at the newest segment if its snapshot is complete and whole, else at the one
before.

Before the log is used, what was replayed is made durable, and so is a record of the start itself: every
pull log jumps ahead by a JUMP, unless the log was stopped cleanly and is whole. A start without a jump is
recorded too, so that one clean stop does not count twice. Repairs go with it: a pull log whose member is
not known any more is released, and a member does not hold a pull log that is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from kumquat.core.clock import SteadyClock
from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.actions import Action, to_json
from kumquat.core.delivery.pull_log import JUMP
from kumquat.core.delivery.state import Groups
from kumquat.core.logs.actions.format import SUFFIX
from kumquat.core.logs.actions.log import RESERVE_BYTES, SEGMENT_BYTES, ActionLog
from kumquat.core.logs.actions.replay import Replay
from kumquat.core.logs.actions.segment import ActionSegment
from kumquat.core.logs.disk.files import Files

log = logging.getLogger("kumquat.actions")

FOLDER = "actions"
_MOST_LEAPS = 1000


def open_action_log(
    files: Files,
    directory: Path,
    now_ms: Callable[[], int],
    segment_bytes: int = SEGMENT_BYTES,
    reserve_bytes: int = RESERVE_BYTES,
) -> ActionLog:
    """The action log in the data folder `directory`, made if there is none, ready to be written to."""
    folder = directory / FOLDER
    files.mkdir(folder)
    files.fsync_dir(directory)
    names = [Path(name) for name in files.listdir(folder)]
    bases = [int(n.stem) for n in names if n.suffix == SUFFIX and n.stem.isdigit()]
    segments = [ActionSegment(folder, base) for base in sorted(bases)]
    replay = Replay(files, folder, segments, max(0, len(segments) - 1))
    replay.run()
    if replay.needs_older and len(segments) > 1:
        for line in replay.reports:
            log.error("%s; the segment before tells", line)
        replay = Replay(files, folder, segments, len(segments) - 2)
        replay.run()
    replay.report()
    if isinstance(now_ms, SteadyClock):
        now_ms.not_before(replay.groups.now_ms)
    action_log = ActionLog(replay.groups, files, folder, now_ms, segment_bytes, reserve_bytes)
    action_log.resume(*replay.cut())
    action_log.doubted = replay.doubted
    _begin(action_log, replay)
    return action_log


def _begin(action_log: ActionLog, replay: Replay) -> None:
    """Write down the start: no pull offset that may have been given out is given again."""
    clean = replay.groups.clean and not replay.damages
    distance = 0 if clean else JUMP * (1 + min(replay.damages, _MOST_LEAPS))
    action_log.append([kinds.Jump(distance), *repairs(replay.groups)])
    if not replay.groups.by_id:
        action_log.snapshot_step()
    action_log.sync()


def repairs(groups: Groups) -> list[Action]:
    """What makes members and pull logs agree again, where a crash or damage has parted them."""
    made: list[Action] = []
    for group in groups.by_id.values():
        for subject_id, progress in group.progress.items():
            made += [
                kinds.Release(group.id, subject_id, pull_log.slot)
                for pull_log in progress.pull_logs.values()
                if pull_log.member_id not in group.members
            ]
        for member in group.members.values():
            kept = {
                subject_id: slot
                for subject_id, slot in member.holds.items()
                if not slot or _holds(groups, group.id, subject_id, slot)
            }
            if kept != member.holds:
                made.append(kinds.Member(group.id, {**asdict(member), "holds": kept}))
    for action in made:
        log.warning("put right after an unclean stop: %s", to_json(action)[:4])
    return made


def _holds(groups: Groups, gid: int, subject_id: int, slot: int) -> bool:
    progress = groups.by_id[gid].progress.get(subject_id)
    return progress is not None and slot in progress.pull_logs
