"""Whether the broker is well: for GET /health/live and /health/ready, and for kumquat_health in /metrics.

Kubernetes asks two questions, and acts on the answers:

- **live**: no → the process is killed and started again. So it is no only where a restart is what helps:
  the event loop does not turn (then nobody answers, which is a no too; the check is for a loop that turns
  again and whose own task has died), or *both* logs are fenced: nothing can be written any more, and only
  a restart ends that. With one log fenced the broker still serves reads, and somebody should look at the
  disk first.
- **ready**: no → clients are sent elsewhere, and a rolling update waits. It is no while the broker starts
  or stops, while a log is fenced, and while the disk is nearly full.

Some troubles concern a few messages, and to send all clients away would make them worse: delayed messages
or dead letters that cannot be written for now, an event loop that was held up for seconds. While writes
fail, producers are refused and try again, and readers go on. Such a check is bad, and the status is
`warning`, but the broker stays ready.

While the log is recovered the broker cannot be asked: process/starting.py answers with `starting`.

A check reads what the parts know already. It waits for nothing, and does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from kumquat.gateway.metrics.disk import STALE_SECONDS, least_free

if TYPE_CHECKING:
    from kumquat.core.logs.disk.commit import Commit
    from kumquat.gateway.broker import Broker

SLOW_LOOP_SECONDS = 2.0
STUCK_LOOP_SECONDS = 30.0
_TURNS = 3
"""Whose time has come is run in one turn of the loop or the next."""
OK, WARNING, BAD = "ok", "warning", "bad"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: str
    """ok; bad: it decides; warning: it is bad, and does not decide."""
    text: str
    """One sentence: what is wrong, and what to do."""

    @property
    def ok(self) -> bool:
        return self.status == OK


@dataclass(frozen=True, slots=True)
class Health:
    checks: list[Check]

    @property
    def ok(self) -> bool:
        return all(check.status != BAD for check in self.checks)

    @property
    def status(self) -> str:
        """The worst of all checks."""
        found = {check.status for check in self.checks}
        return next((status for status in (BAD, WARNING) if status in found), OK)

    def payload(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "status": self.status,
            "checks": [
                {"name": check.name, "ok": check.ok, "status": check.status, "text": check.text}
                for check in self.checks
            ],
        }


def starting(seconds: float) -> Health:
    """Whether a broker is ready that cannot be asked yet: it has been opening its data for so long."""
    text = f"the broker has been recovering its log for {seconds:.0f} s: wait"
    return Health([Check("started", BAD, text)])


def starting_is_live() -> Health:
    return Health([Check("started", OK, "the broker is starting: it recovers its log")])


async def live_by_now(broker: Broker) -> Health:
    """The same, but not by what was before the loop turned again. When it was held up for long, the request
    of a probe may be served before the task that watches the loop: a broker that has just done a large
    piece of work must not be killed for it."""
    found = live(broker)
    for _ in range(_TURNS):
        if found.ok:
            break
        await trio.lowlevel.checkpoint()
        found = live(broker)
    return found


def live(broker: Broker) -> Health:
    return Health([_turning(broker), _writable(broker)])


def ready(broker: Broker) -> Health:
    return Health(
        [
            _started(broker),
            _not_stopping(broker),
            _log("message_log", broker.log.log.commit),
            _log("action_log", broker.actions.log.commit),
            _disk(broker),
            _delays(broker),
            _dead_letters(broker),
            _loop(broker),
        ]
    )


def _turning(broker: Broker) -> Check:
    silent = trio.current_time() - broker.lag.looked
    if STUCK_LOOP_SECONDS < silent < inf:
        text = f"the event loop was last seen to turn {silent:.0f} s ago: restart the broker"
        return Check("event_loop", BAD, text)
    return Check("event_loop", OK, "the event loop turns")


def _writable(broker: Broker) -> Check:
    if broker.log.log.fenced is not None and broker.actions.log.fenced is not None:
        text = f"{broker.log.log.fenced}; so is the other log: check the disk, then restart"
        return Check("logs", BAD, text)
    return Check("logs", OK, "at least one log is written")


def _started(broker: Broker) -> Check:
    if not broker.started:
        return Check("started", BAD, "the broker is starting: wait")
    return Check("started", OK, "all parts run")


def _not_stopping(broker: Broker) -> Check:
    if broker.stopping:
        return Check("stopping", BAD, "the broker is stopping")
    return Check("stopping", OK, "the broker is not stopping")


def _log(name: str, commit: Commit) -> Check:
    if commit.fenced is not None:
        text = (
            f"{commit.fenced}; nothing is written or acked: check the disk, then restart the broker"
        )
        return Check(name, BAD, text)
    if commit.failing is not None:
        text = f"writes to it fail: {commit.failing}; clients are refused until they work: check the disk"
        return Check(name, WARNING, text)
    return Check(name, OK, "it can be written")


def _disk(broker: Broker) -> Check:
    name, state, config = "disk", broker.disk.state, broker.config
    if state is None:
        return Check(name, OK, "the disk was not looked at yet")
    if state.error is not None:
        text = f"nobody knows how much is free in {config.log_dirs}: {state.error}"
        return Check(name, BAD, text)
    age = trio.current_time() - state.at
    if age > STALE_SECONDS:
        text = f"the disk of {config.log_dirs} has not answered for {age:.0f} s: check it"
        return Check(name, BAD, text)
    least = least_free(config.health_disk_min_free_bytes, config.log_segment_bytes, state.size)
    if state.free < least:
        text = (
            f"{state.free:,} bytes are free in {config.log_dirs}, and {least:,} should be: make room, or "
            "keep less (log.retention.ms, log.total.bytes)"
        )
        return Check(name, BAD, text)
    return Check(name, OK, f"{state.free:,} bytes are free")


def _delays(broker: Broker) -> Check:
    reason = broker.delay.failing
    if reason is not None:
        return Check("delays", WARNING, f"messages for later are held up: {reason}")
    return Check("delays", OK, "messages for later are delivered")


def _dead_letters(broker: Broker) -> Check:
    failing = broker.dead_letters.statistics().failing
    if failing:
        (group, subject), reason = next(iter(failing.items()))
        whose = f"of group {group} for {subject}" if group else "of any group"
        more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        text = f"dead letters {whose} cannot be written: {reason}{more}"
        return Check("dead_letters", WARNING, text)
    return Check("dead_letters", OK, "dead letters are written")


def _loop(broker: Broker) -> Check:
    worst = broker.lag.worst
    if worst > SLOW_LOOP_SECONDS:
        text = (
            f"the event loop kept everybody waiting for {worst:.1f} s within the last minute: look at the "
            "load, or set loop.trace.ms to see what it was"
        )
        return Check("event_loop", WARNING, text)
    return Check("event_loop", OK, f"late by {worst * 1e3:.0f} ms at most in the last minute")
