"""Members of one group that share one subject: how the work spreads, how fast, at what cost.

Members are librdkafka at its default settings, in processes of up to eight. The clock runs from the
moment when all members hold the subject, in a group that has a cursor (`consume.mode=shared`), to the
last message handled. A handler is a pause of 5 ms, so the ideal time is 5 ms for each message, divided by
the members, on any machine. Kafka's share groups do the same work where a column has them; they do not
report their assignment, so messages are written when all members have been there for longer than a
heartbeat.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.load import client, topics
from bench.load.members import Marks, MemberProcess, Result, Work
from bench.load.numbered import Writer
from bench.scenario import Columns, Floor, Numbers, Run, Scenario, own, share

if TYPE_CHECKING:
    from bench.brokers.process import BrokerProcess

HANDLER_MS = 5.0
CROWDS = (2, 8, 32)
IN_A_PROCESS = 8
SHARE_HEARTBEAT_SECONDS = 6
ALONE_SECONDS = 10
LATE = 7
SIZE = 100
IDLE_MEMBERS = 4
KIB = 1024
COST_CROWDS = (4, 64)


def configure(broker: BrokerProcess, group: str, **configs: str) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


class Sharing:
    """A topic of numbered messages, a group, and the processes that read it; ended with the block."""

    def __init__(self, broker: BrokerProcess, name: str, count: int, size: int = SIZE) -> None:
        self.broker, self.name = broker, name
        self.marks = Marks(count)
        self.processes: list[MemberProcess] = []
        topics.make(broker.port, [name])  # one message of no number: skipped by its value
        self.writer = Writer(broker.bootstrap, name, size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.child.poll() is None:
                process.kill()
        self.marks.__exit__()

    def members(
        self, count: int, *, share_group: bool = False, **options: object
    ) -> list[MemberProcess]:
        made = []
        while count > 0:
            some = min(count, IN_A_PROCESS)
            work = Work(
                self.broker.bootstrap,
                self.name,
                self.name,
                self.marks.path,
                members=some,
                share=share_group,
                **options,  # type: ignore[arg-type]
            )
            made.append(MemberProcess(work))
            count -= some
        self.processes += made
        return made

    def stop(self) -> list[Result]:
        return [result for process in self.processes for result in process.stop()]


def _is_kafka(run: Run) -> bool:
    return run.column.key != "kumquat"


def _drain(run: Run, broker: BrokerProcess, count: int, members: int) -> tuple[float, list[Result]]:
    """Seconds to handle so many messages with so many members that all wait."""
    with Sharing(broker, f"handler-{members}", count) as work:
        if _is_kafka(run):
            configure(broker, work.name, **{"share.auto.offset.reset": "earliest"})
            work.members(members, share_group=True, handler_ms=HANDLER_MS)
            time.sleep(2 * SHARE_HEARTBEAT_SECONDS)
        else:
            configure(broker, work.name, **{"consume.mode": "shared"})
            for process in work.members(members, handler_ms=HANDLER_MS):
                process.wait_assigned()
        began = time.monotonic()
        work.writer.write(count)
        work.marks.wait()
        results = work.stop()
        run.say(f"{members} members: {work.marks.twice()} messages were handled twice")
    return max(result.last_at for result in results) - began, results


def _handlers(run: Run) -> Numbers:
    count = run.scale.handled_messages
    numbers: Numbers = {}
    with run.column.broker() as broker:
        for members in CROWDS:
            run.say(f"{count:,} messages of {HANDLER_MS:.0f} ms by {members} members")
            seconds, results = _drain(run, broker, count, members)
            ideal = count * HANDLER_MS / 1000 / members
            shares = sorted(result.handled for result in results)
            numbers[f"{members} members, s"] = seconds
            numbers[f"{members} members, time ÷ ideal"] = seconds / ideal
            numbers[f"{members} members, smallest share"] = shares[0] * members / count
            numbers[f"{members} members, largest share"] = shares[-1] * members / count
    return numbers


def _elastic(run: Run) -> Numbers:
    count = run.scale.handled_messages
    numbers: Numbers = {}
    with run.column.broker() as broker:
        for mode in ("auto", "shared"):
            run.say(f"{mode}: one member for {ALONE_SECONDS} s, then {LATE} more")
            with Sharing(broker, f"elastic-{mode}", count) as work:
                configure(broker, work.name, **{"consume.mode": mode})
                work.writer.write(count)
                (alone,) = work.members(1, handler_ms=HANDLER_MS)
                alone.wait_assigned()
                time.sleep(ALONE_SECONDS)
                late = work.members(LATE, handler_ms=HANDLER_MS)
                for process in late:
                    process.wait_assigned()
                began, left = time.monotonic(), work.marks.left()
                work.marks.wait()
                results = work.stop()
                seconds = max(result.last_at for result in results) - began
                ideal = left * HANDLER_MS / 1000 / (1 + LATE)
                numbers[f"{mode}, left when all are there"] = left
                numbers[f"{mode}, s"] = seconds
                numbers[f"{mode}, time ÷ ideal"] = seconds / ideal
                numbers[f"{mode}, handled twice"] = work.marks.twice()
    return numbers


def _nothing(run: Run) -> Numbers:
    count = run.scale.small_messages
    numbers: Numbers = {}
    with run.column.broker() as broker:
        for mode, members in (("exclusive", 1), ("shared", IDLE_MEMBERS)):
            run.say(f"{count:,} of {SIZE} B, handlers that do nothing, {members} {mode}")
            with Sharing(broker, f"nothing-{mode}", count) as work:
                configure(broker, work.name, **{"consume.mode": mode})
                work.writer.write(count)
                processes = [
                    process for _ in range(members) for process in work.members(1, gated=True)
                ]
                for process in processes:
                    process.wait_assigned()
                began = time.monotonic()
                for process in processes:
                    process.go()
                work.marks.wait()
                results = work.stop()
                numbers[f"{members} {mode}, s"] = max(each.last_at for each in results) - began
                numbers[f"{members} {mode}, handled twice"] = work.marks.twice()
    return numbers


def _cost(run: Run) -> Numbers:
    count = run.scale.megabytes * 1_000_000 // KIB
    gigabytes = count * KIB / 1e9
    numbers: Numbers = {}
    with run.column.broker() as broker, ExitStack() as stack:
        first = stack.enter_context(Sharing(broker, "cost", count, KIB))
        run.say(f"writing {gigabytes:.1f} GB")
        first.writer.write(count)
        read = client.Consume(broker.bootstrap, broker.pid, "cost", count, KIB, count // 2)
        run.say("a plain read")
        numbers["plain read, CPU s per GB"] = client.run(read).cpu_per_gigabyte
        for members in COST_CROWDS:
            run.say(f"shared by {members} members")
            marks = stack.enter_context(Marks(count))
            group = f"cost-{members}"
            configure(broker, group, **{"consume.mode": "shared"})
            processes = [
                MemberProcess(
                    Work(broker.bootstrap, group, "cost", marks.path, members // 4, gated=True)
                )
                for _ in range(4)
            ]
            first.processes += processes
            for process in processes:
                process.wait_assigned()
            cpu, began = broker.cpu_seconds(), time.monotonic()
            for process in processes:
                process.go()
            marks.wait()
            seconds = time.monotonic() - began
            numbers[f"{members} members, CPU s per GB"] = (broker.cpu_seconds() - cpu) / gigabytes
            numbers[f"{members} members, MB/s"] = gigabytes * 1000 / seconds
            for process in processes:
                process.stop()
    return numbers


def _within(members: int) -> Floor:
    metric = f"{members} members, time ÷ ideal"

    def value(columns: Columns) -> float:
        return columns["kumquat"][metric]

    return Floor(metric, 1.25, False, value)


SHARING = [
    Scenario(
        "sharing-handlers",
        "20,000 messages, a handler of 5 ms, members that share",
        _handlers,
        [_within(members) for members in CROWDS],
        columns=("kumquat", "kafka"),
    ),
    Scenario(
        "sharing-elastic",
        "20,000 messages, one member for 10 s, then seven more",
        _elastic,
        [own("auto, time ÷ ideal", at_most=1.5), own("shared, time ÷ ideal", at_most=1.5)],
        columns=("kumquat",),
    ),
    Scenario(
        "sharing-nothing",
        "200,000 of 100 B, handlers that do nothing",
        _nothing,
        [share("4 shared, s", "1 exclusive, s", at_most=2.0)],
        columns=("kumquat",),
    ),
    Scenario(
        "sharing-cost",
        "What handing out costs the broker, 1 KiB messages",
        _cost,
        [
            share(f"{members} members, CPU s per GB", "plain read, CPU s per GB", at_most=1.5)
            for members in COST_CROWDS
        ],
        columns=("kumquat",),
    ),
]
