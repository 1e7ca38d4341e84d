"""Histories with retries, of which some frames are lost or come twice: each message is in one place.

None is lost that was not settled, with one exception that nobody can help: a failure was told, its frame is
lost, and a commit that passes over the message is not.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.give_back import give_back
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.pull_log import ShareLog
from kumquat.core.delivery.state import Groups
from kumquat.core.delivery.tests.rig import SID, Config, Frame, Rig, rig, stored


def places(progress: Progress) -> set[int]:
    found = [(r.first, r.size) for r in progress.redelivery]
    found += [(w.first, w.size) for w in progress.waiting]
    found += [(each.first, each.size) for each in progress.doomed.values()]
    for log in progress.pull_logs.values():
        assert log.unacked == sum(lease.size for lease in log.leases)
        found += [(lease.first, lease.size) for lease in log.leases]
    messages = [first + i for first, size in found for i in range(size)]
    assert len(messages) == len(set(messages)), "a message is in two places"
    assert progress.unacked == len(messages)
    return set(messages)


def live(it: Rig, rng: Random) -> None:
    """Two groups whose members ack, fail and die."""
    for gid, share in ((1, False), (2, True)):
        it.make_group(gid, share=share)
    it.subject.produce(300)
    for _ in range(120):
        gid = rng.choice((1, 2))
        group, progress = it.groups.by_id[gid], it.progress(gid)
        log = rng.choice([*progress.pull_logs.values(), None])
        it.pass_time(rng.choice((1, 100, 2000)))
        if log is None or len(progress.pull_logs) < 2:
            it.join(gid)
        elif not log.leases or rng.random() < 0.4:
            it.give(gid, log, rng.randint(1, 9))
        else:
            lease = rng.choice(list(log.leases))
            part = lease.part(0, rng.randint(1, lease.size))
            policy = it.sharing.retry_policy(group)
            kind = rng.randrange(5)
            if kind == 0:
                it.append(*give_back(gid, SID, log.slot, [part], policy, it.now()))
            elif kind == 1:
                reject = [[part.first, part.size, part.attempt]]
                it.append(actions.Doom(gid, SID, log.slot, reject, "rejected", ""))
            elif kind == 2 and progress.doomed:
                each = next(iter(progress.doomed.values()))
                it.append(actions.Settle(gid, SID, [[each.first, each.size]]))
            elif kind == 3:
                failed = give_back(gid, SID, log.slot, log.leases, policy, it.now())
                left = (actions.Release(gid, SID, log.slot), actions.Left(gid, log.member_id))
                it.append(*failed, *left)
            elif isinstance(log, ShareLog):
                it.append(actions.Accept(gid, SID, log.slot, [[part.first, part.size]]))
            else:
                it.append(actions.Ack(gid, SID, log.slot, part.end))


def damaged(frames: list[Frame]) -> Groups:
    groups = Groups()
    for frame in frames:
        groups.now_ms = frame.at
        for action in stored(frame.actions):
            with contextlib.suppress(
                KeyError, ValueError
            ):  # as a replay passes over what does not fit
                groups.apply(action)
    return groups


@pytest.mark.parametrize("seed", range(5))
def test_lost_frames_lose_no_message_that_was_not_settled(seed: int) -> None:
    rng = Random(seed)
    with rig(Config(delivery_count_limit=3, share_delivery_count_limit=3)) as it:
        live(it, rng)
        frames = it.actions.frames
        for _ in range(8):
            lost = set(rng.sample(range(2, len(frames)), rng.randint(1, 6)))
            groups = damaged([frame for i, frame in enumerate(frames) if i not in lost])
            for gid in (1, 2):
                known = groups.by_id[gid].progress[SID]
                missing = places(it.progress(gid)) - places(known)
                told = (a for i in lost for a in frames[i].actions)
                if gid == 1 and any(isinstance(a, (actions.Retry, actions.Doom)) for a in told):
                    continue
                assert all(s >= known.cursor for s in missing), f"{missing} lost without {lost}"


@pytest.mark.parametrize("seed", range(3))
def test_frames_in_any_order_leave_each_message_in_one_place(seed: int) -> None:
    rng = Random(seed)
    with rig() as it:
        live(it, rng)
        frames = [*it.actions.frames, *rng.choices(it.actions.frames, k=20)]
        for _ in range(6):
            rng.shuffle(frames)
            for group in damaged(frames).by_id.values():
                for progress in group.progress.values():
                    places(progress)
