"""What `kumquat doctor` checks of a running broker: does it answer, is it of this version, is it well.

It asks the broker as any client does (`--bootstrap`) and its admin endpoint (`--admin`): /statistics, and
/health/ready where there is one. A broker that is not there is bad; `--machine` leaves these checks out.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.bootstrap import NOBODY, admin_client
from kumquat.gateway.cli.command import Refused, Unreachable
from kumquat.gateway.cli.endpoint import ask
from kumquat.gateway.cli.kafka.configs import read_configs
from kumquat.gateway.cli.watch.findings import BAD, OK, UNKNOWN, WARN, Finding, graded
from kumquat.version import version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONNECT_MS = 3000
ASK_SECONDS = 5.0
LATE_LOOP_MS = 100
LATE_MS = 1000


def data_folder(bootstrap: str) -> Path | None:
    """The data folder of a broker on this machine."""
    with suppress(Refused, Unreachable, KeyError), admin_client(bootstrap, CONNECT_MS) as client:
        folder = Path(read_configs(client, "broker", "")["log.dirs"]["value"])
        return folder if folder.is_dir() else None
    return None


def running(bootstrap: str, admin: str) -> Iterator[Finding]:
    yield kafka(bootstrap)
    try:
        status, statistics = ask(admin, "GET", "/statistics", {}, ASK_SECONDS)
    except Unreachable as error:
        yield Finding(
            "admin", BAD, str(error), "start it with --admin-listener, or say --admin URL"
        )
        return
    if status != 200:
        message = str(statistics.get("message", status))
        yield Finding("admin", BAD, f"{admin} answers: {message}", "look into the broker's log")
        return
    yield Finding("admin", OK, f"the endpoint answers at {admin}")
    yield same_version(statistics.get("version"))
    yield from well(statistics)
    yield from ready(admin)


def kafka(bootstrap: str) -> Finding:
    try:
        with admin_client(bootstrap, CONNECT_MS) as client:
            cluster = client.describe_cluster()
    except (Refused, Unreachable) as error:
        advice = "something else has that port: ss -ltnp shows what; or say --bootstrap HOST:PORT"
        if str(error).startswith(NOBODY):
            advice = "the port is free: start the broker, or say --bootstrap HOST:PORT"
        return Finding("broker", BAD, str(error), advice)
    nodes = ", ".join(f"{each['host']}:{each['port']}" for each in cluster["brokers"])
    return Finding("broker", OK, f"answers at {bootstrap}; clients are sent to {nodes}")


def same_version(theirs: str | None) -> Finding:
    ours = version()
    if theirs is None:
        return Finding("version", UNKNOWN, f"this command is {ours}; the broker does not say")
    advice = "what one of them has the other may lack: install the same version"
    found = f"this command {ours}, broker {theirs}"
    return graded("version", found, advice, warn=theirs != ours)


def well(statistics: Mapping[str, Any]) -> Iterator[Finding]:
    """Fenced logs, damage, lateness: from /statistics."""
    log, groups, delay = statistics["log"], statistics["groups"], statistics["delay"]
    advice = "a sync has failed and nothing is acked any more: check the disk, then start it again"
    fenced = [name for name, part in (("messages", log), ("actions", groups)) if part["fenced"]]
    found = f"fenced: {', '.join(fenced)}" if fenced else "not fenced"
    yield graded("logs", found, advice, bad=bool(fenced))
    damage = log["corrupt_reads"] + log["failed_reads"]
    advice = "the broker's log says which offsets; kumquat dump FILE shows what is wrong"
    found = f"{log['corrupt_reads']:,} corrupt, {log['failed_reads']:,} failed"
    yield graded("reads", found, advice, warn=damage > 0)
    late = delay["lateness"]["p99"]
    advice = "the disk or the event loop is busy: kumquat top, and loop.trace.ms"
    if delay["failing"]:
        yield Finding("delays", BAD, str(delay["failing"]), "look into the broker's log")
    else:
        found = f"{delay['pending']:,} pending, p99 of lateness {late:,} ms"
        yield graded("delays", found, advice, warn=late > LATE_MS)
    for failing in statistics["dead_letters"]["failing"][:1]:
        found = f"{failing['group']}, {failing['subject']}: {failing['reason']}"
        yield Finding(
            "dead letters", WARN, found, "they wait and are tried again: remove the cause"
        )
    lag = statistics["loop"]["p99"] / 1000
    found = f"p99 of lag {lag:.1f} ms, longest {statistics['loop']['max'] / 1000:.1f} ms"
    advice = "too much load for one core, or a machine that is shared: loop.trace.ms says what"
    yield graded("event loop", found, advice, warn=lag > LATE_LOOP_MS)


def ready(admin: str) -> Iterator[Finding]:
    """What the broker itself thinks, if it has a health endpoint."""
    try:
        status, answer = ask(admin, "GET", "/health/ready", {}, ASK_SECONDS)
    except Unreachable:
        return
    if status == 404:
        return
    found = str(answer.get("status", status))
    yield graded("health", found, f"{admin}/health/ready says more", bad=status >= 300)
