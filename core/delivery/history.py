"""What an action is about to do to messages, as events: for their history. Pure; nothing is changed.

Actions say little: "all below that pull sequence is acked", "that pull log ends". Which sequences that are
is in the groups as they are just before the action is applied (ActionLog calls its observer there).

    action    event      ranges
    Pull      pulled     one event for each attempt number
    Ack       acked      what lies below that pull sequence in the pull log
    Accept    acked      what the member holds of it
    Commit    acked      from the old position to the new one. The first commit of a group counts from the
                         earliest message (`first` is set): where the group began is not known
              rewound    the position went back: these come again
    Release   released   what is unacked in the pull log
    Retry     retried    one event for each attempt and due time. A share member's that keep their attempt
                         and come at once were never handled: released
    Doom      died       one event for each number of attempts

Not told: what becomes of messages that were read at plain offsets before they are committed (such a
Fetch names no group, so there is no `pulled`), what a group forgets when it, or the subject, is reset or
deleted, and what retention takes before it was handled. Dead letters that are durable, and redrives, are in
both logs: see dead_letters/settling.py.

`reason` of what comes again: `left` (the member left), `session` (its session ended), `rebalance` (its pull
log was taken away), `lock` (a share member held it for too long), `asked` (a command named the message),
`returned` (a share member, or the end of its connection, gave it back).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.pull_log import PullLog, ShareLog
from kumquat.core.delivery.state import Groups

PULLED, ACKED, REWOUND = "pulled", "acked", "rewound"
RELEASED, RETRIED, DIED = "released", "retried", "died"
LEFT, SESSION, REBALANCE, LOCK = "left", "session", "rebalance", "lock"
ASKED, RETURNED = "asked", "returned"

Ranges = list[list[int]]
"""First sequence and count of each."""

TELLING = frozenset(
    {
        actions.Pull,
        actions.Ack,
        actions.Accept,
        actions.Commit,
        actions.Release,
        actions.Retry,
        actions.Doom,
    }
)
"""The actions of which there is something to tell. All begin with a group and a subject."""


class Told(NamedTuple):
    event: str
    ranges: Ranges
    member_id: str
    """Empty where the action does not say it."""
    fields: dict[str, Any]


class Circumstances(NamedTuple):
    """What the reason is found by."""

    left: Collection[tuple[int, str]] = ()
    """Group and member of those that leave in the same write."""
    served: bool = False
    """Whether a client's request does it; else it is a matter of time."""
    earliest: int = 0
    """Of the subject."""


def events_of(groups: Groups, action: Action, around: Circumstances) -> list[Told]:
    """Of an action in TELLING that is about to be applied. Raises LookupError where `apply` would raise."""
    match action:
        case actions.Pull():
            return _pulled(_log_of(groups, action), action)
        case actions.Ack():
            log = _log_of(groups, action)
            return _told(ACKED, below(log, action.pull), log.member_id)
        case actions.Accept():
            log = _log_of(groups, action)
            return _told(ACKED, _held(log, action.ranges), log.member_id)
        case actions.Commit():
            return _committed(groups, action, around.earliest)
        case actions.Release():
            log = _log_of(groups, action)
            leases = merged((lease.first, lease.size) for lease in log.leases)
            return _told(
                RELEASED, leases, log.member_id, reason=_release_reason(action, log, around)
            )
        case actions.Retry():
            return _retried(groups, action, around)
        case actions.Doom():
            return _died(groups, action)
    return []


def merged(parts: Iterable[tuple[int, int]]) -> Ranges:
    """Ranges in their order; neighbours become one."""
    found: Ranges = []
    for first, size in parts:
        if found and sum(found[-1]) == first:
            found[-1][1] += size
        else:
            found.append([first, size])
    return found


def below(log: PullLog, pull: int) -> Ranges:
    """What is unacked in a pull log below a pull sequence: as PullLog.ack takes it."""
    parts = []
    for lease in log.leases:
        if lease.pull >= pull:
            break
        parts.append((lease.first, min(lease.size, pull - lease.pull)))
    return merged(parts)


def _told(event: str, ranges: Ranges, member_id: str = "", **fields: Any) -> list[Told]:
    return [Told(event, ranges, member_id, fields)] if ranges else []


def _log_of(
    groups: Groups, action: actions.Pull | actions.Ack | actions.Accept | actions.Release
) -> PullLog:
    return groups.by_id[action.gid].progress[action.subject_id].pull_logs[action.slot]


def _pulled(log: PullLog, pull: actions.Pull) -> list[Told]:
    by_attempt: dict[int, list[tuple[int, int]]] = {}
    for first, size, attempt in pull.ranges:
        by_attempt.setdefault(attempt, []).append((first, size))
    return [
        Told(PULLED, merged(parts), log.member_id, {"attempt": attempt})
        for attempt, parts in by_attempt.items()
    ]


def _held(log: PullLog, ranges: Ranges) -> Ranges:
    assert isinstance(log, ShareLog)
    return merged(
        (lease.first, lease.size)
        for first, size in ranges
        for lease in log.held(first, first + size)
    )


def _committed(groups: Groups, commit: actions.Commit, earliest: int) -> list[Told]:
    progress = groups.by_id[commit.gid].progress.get(commit.subject_id)
    if progress is not None and progress.shared:
        return []
    before = progress.position if progress is not None and progress.committed else None
    if commit.sequence < 0:
        return []
    if before is None:
        return _told(ACKED, _between(earliest, commit.sequence), first=True)
    if commit.sequence < before:
        return _told(REWOUND, _between(commit.sequence, before))
    return _told(ACKED, _between(max(before, earliest), commit.sequence))


def _between(first: int, end: int) -> Ranges:
    return [[first, end - first]] if first < end else []


def _release_reason(action: actions.Release, log: PullLog, around: Circumstances) -> str:
    if (action.gid, log.member_id) in around.left:
        return LEFT if around.served else SESSION
    return REBALANCE


def _retried(groups: Groups, retry: actions.Retry, around: Circumstances) -> list[Told]:
    progress = groups.by_id[retry.gid].progress.get(retry.subject_id)
    log = None if progress is None else progress.pull_logs.get(retry.slot)
    member_id = "" if log is None else log.member_id
    if (retry.gid, member_id) in around.left:
        reason = LEFT if around.served else SESSION
    elif isinstance(log, ShareLog):
        reason = RETURNED if around.served else LOCK
    else:
        reason = ASKED
    by_fate: dict[tuple[int, int], list[tuple[int, int]]] = {}
    unhandled: list[tuple[int, int]] = []
    for first, size, attempt, due in retry.ranges:
        if not due and _keeps_attempt(log, first, attempt):
            unhandled.append((first, size))
        else:
            by_fate.setdefault((attempt, due), []).append((first, size))
    told = _told(RELEASED, merged(unhandled), member_id, reason=RETURNED)
    for (attempt, due), parts in by_fate.items():
        fields = {"attempt": attempt, "due": due or groups.now_ms, "reason": reason}
        told.append(Told(RETRIED, merged(parts), member_id, fields))
    return told


def _keeps_attempt(log: PullLog | None, first: int, attempt: int) -> bool:
    if not isinstance(log, ShareLog):
        return False
    return any(lease.attempt == attempt for lease in log.find(first, first + 1))


def _died(groups: Groups, doom: actions.Doom) -> list[Told]:
    progress = groups.by_id[doom.gid].progress.get(doom.subject_id)
    log = None if progress is None else progress.pull_logs.get(doom.slot)
    by_attempts: dict[int, list[tuple[int, int]]] = {}
    for first, size, attempts in doom.ranges:
        by_attempts.setdefault(attempts, []).append((first, size))
    return [
        Told(
            DIED,
            merged(parts),
            "" if log is None else log.member_id,
            {"reason": doom.reason, "text": doom.text, "attempts": attempts},
        )
        for attempts, parts in by_attempts.items()
    ]
