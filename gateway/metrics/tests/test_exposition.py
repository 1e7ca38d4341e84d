"""Numbers that /metrics leaves out, has twice, or pays too much for."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from kumquat.core.delivery import actions
from kumquat.core.pools import THREADS
from kumquat.gateway.metrics.exposition import CONTENT_TYPE, render
from kumquat.gateway.metrics.families import POOLS
from kumquat.gateway.metrics.tests.expressions import alerts, dashboard_expressions, names
from kumquat.gateway.tests.harness import IO_ERROR, Served, produce, serve
from kumquat.gateway.wire import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from pathlib import Path

Labels = frozenset[tuple[str, str]]
Scraped = dict[str, dict[Labels, float]]
MANY = 10_000
BUDGET_SECONDS = 0.15
"""1 % of a core at one scrape in 15 seconds."""


async def scrape(served: Served) -> Scraped:
    """Name of a series → labels → value, as a parser for the format reads it."""
    found: Scraped = defaultdict(dict)
    text = (await render(served.broker)).decode()
    families = [family.name for family in text_string_to_metric_families(text)]
    assert len(families) == len(set(families)), "a family is there twice"
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in found[sample.name], "a series is there twice"
            found[sample.name][labels] = sample.value
    return found


def at(**labels: str) -> Labels:
    return frozenset(labels.items())


def of(topic: str, group: str | None = None) -> Labels:
    labels = {"topic": topic, "partition": "0"}
    return at(**labels, **({"consumergroup": group} if group else {}))


def fetch(topic: str) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


def fill_groups(served: Served, groups: int, subjects: list[str]) -> None:
    """Each group has a position in each of these subjects."""
    by_name = served.broker.log.subjects.by_name
    ids = [by_name[name].id for name in subjects]
    for number in range(1, groups + 1):
        made: list[actions.Action] = [actions.Group(number, f"g{number}")]
        made += [actions.Commit(number, subject_id, 0, -1, "") for subject_id in ids]
        served.broker.sharing.append(made)


def test_what_clients_do_is_not_counted(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("orders")
        async with served.client() as client:
            for _ in range(200):  # most of them by a template
                await client.call(produce("orders", b"a", b"b"), 9)
            refused = await client.call(produce("missing", b"a"), 9)
            assert refused.responses[0].partition_responses[0].error_code
            answer = await client.call(fetch("orders"), 12)
            size = sum(map(len, [answer.responses[0].partitions[0].records]))
            await client.call(fetch("missing"), 12)
            found = await scrape(served)
            assert found["kumquat_connections"][at()] == 1
        topics = "kafka_server_brokertopicmetrics"
        assert found[f"{topics}_messagesin_total"] == {at(): 400, at(topic="orders"): 400}
        assert found[f"{topics}_bytesin_total"][at()] == size
        assert found[f"{topics}_bytesout_total"][at()] == size
        assert found[f"{topics}_totalproducerequests_total"][at()] == 201
        assert found[f"{topics}_totalfetchrequests_total"][at()] == 2
        assert found[f"{topics}_failedproducerequests_total"][at()] == 1
        assert found[f"{topics}_failedfetchrequests_total"][at()] == 1
        requests = found["kafka_network_requestmetrics_requests_total"]
        assert requests == {at(request="Produce"): 201, at(request="Fetch"): 2}
        assert found["kafka_topic_partition_current_offset"] == {of("orders"): 400}
        syncs = found["kumquat_log_sync_seconds_count"][at(log="messages")]
        assert syncs == served.broker.log.statistics().syncs > 0
        assert found["kumquat_metrics_cpu_seconds_total"][at()] == 0
        assert (await scrape(served))["kumquat_metrics_cpu_seconds_total"][at()] > 0

    serve(check, tmp_path)


def test_connections_that_were_refused_are_not_counted(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as first, served.client() as second:
            assert await second.closed()
            await first.call(produce("missing", b"a"), 9)
            found = await scrape(served)
            assert found["kumquat_connections"][at()] == 1
            assert found["kumquat_connections_refused_total"][at()] == 1
        await served.settled()
        found = await scrape(served)
        assert found["kumquat_connections"][at()] == 0
        assert found["kumquat_connections_opened_total"][at()] == 1

    serve(check, tmp_path, max_connections=1)


def test_a_client_makes_up_apis_and_each_becomes_a_series(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        for key in (*range(200, 220), -1, -32768, 32767):
            async with served.client() as client:
                await client.stream.send_all(struct.pack(">ihhih", 10, key, 0, 1, -1))
                assert await client.closed()
        requests = (await scrape(served))["kafka_network_requestmetrics_requests_total"]
        assert requests == {at(request="Produce"): 0, at(request="unknown"): 23}

    serve(check, tmp_path)


def test_batches_that_were_not_written_are_counted_as_written(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("orders")
        async with served.client() as client:
            served.files.write_error = IO_ERROR
            await client.call(produce("orders", b"a"), 9)
            served.files.write_error = None
        found = await scrape(served)
        topics = "kafka_server_brokertopicmetrics"
        assert found[f"{topics}_messagesin_total"][at()] == 0
        assert found[f"{topics}_bytesin_total"][at()] == 0
        assert found[f"{topics}_failedproducerequests_total"][at()] == 1

    serve(check, tmp_path)


def test_what_a_group_has_to_do_is_not_told(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        broker = served.broker
        await served.create("orders")
        subject_id = broker.log.subjects.by_name["orders"].id
        async with served.client() as client:
            await client.call(produce("orders", *[b"x"] * 10), 9)
        later = broker.actions.now_ms() + 3_600_000
        broker.sharing.append(
            [
                actions.Group(1, "plain"),
                actions.Commit(1, subject_id, 4, -1, ""),
                actions.Group(2, "shared"),
                actions.Share(2, subject_id, 0),
                actions.Slot(2, subject_id, 1, "member", 1),
                actions.Pull(2, subject_id, 1, 1, [[0, 6, 1]]),
                actions.Retry(2, subject_id, 1, [[1, 2, 2, later]]),
                actions.Retry(2, subject_id, 1, [[3, 1, 2, 0]]),
            ]
        )
        found = await scrape(served)
        both = of("orders", "plain"), of("orders", "shared")
        lags = found["kafka_consumergroup_lag"]
        assert (lags[both[0]], lags[both[1]]) == (6, 10)
        positions = found["kafka_consumergroup_current_offset"]
        assert (positions[both[0]], positions[both[1]]) == (4, 0)
        shared = at(topic="orders", consumergroup="shared")
        for name, wanted in (("in_flight", 3), ("retries_waiting", 2), ("retries_ready", 1)):
            assert found[f"kumquat_group_{name}"][shared] == wanted
        assert found["kumquat_leases_in_flight"][at()] == 3
        assert found["kumquat_retries_waiting"][at()] == 2
        assert found["kumquat_retries_ready"][at()] == 1
        assert found["kumquat_groups_lag"][at()] == 16
        assert found["kumquat_groups"][at()] == 2

    serve(check, tmp_path)


def test_a_name_breaks_its_line(tmp_path: Path) -> None:
    group = 'a"b\\c\nd{}'

    async def check(served: Served) -> None:
        await served.create("orders")
        subject_id = served.broker.log.subjects.by_name["orders"].id
        served.broker.sharing.append(
            [actions.Group(1, group), actions.Commit(1, subject_id, 0, -1, "")]
        )
        found = await scrape(served)
        assert list(found["kafka_consumergroup_lag"]) == [of("orders", group)]

    serve(check, tmp_path)


def test_series_grow_with_subjects_and_groups(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        subjects = [f"s{number}" for number in range(12)]
        for name in subjects:
            await served.create(name)
        async with served.client() as client:
            await client.call(produce("s7", b"a", b"b"), 9)
        fill_groups(served, 5, subjects)
        found = await scrape(served)
        assert len(found["kafka_topic_partitions"]) == 4
        assert at(topic="s7") in found["kafka_topic_partitions"]
        assert found["kumquat_subjects"][at()] == 12
        assert found["kumquat_metrics_subjects_left_out"][at()] == 8
        assert found["kafka_server_brokertopicmetrics_messagesin_total"][at()] == 2
        assert {labels for labels, lag in found["kafka_consumergroup_lag"].items() if lag} == {
            of("s7", f"g{number}") for number in range(1, 6)
        }
        assert len(found["kafka_consumergroup_lag"]) == 6
        assert found["kumquat_metrics_groups_left_out"][at()] == 5 * 12 - 6
        assert found["kumquat_groups_lag"][at()] == 10
        series = {name: set(values) for name, values in found.items()}
        again = {name: set(values) for name, values in (await scrape(served)).items()}
        assert series == again, "other series in each scrape"

    serve(check, tmp_path, metrics_max_subjects=4, metrics_max_groups=6)


def test_a_dashboard_or_an_alert_names_a_series_that_does_not_exist(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.settled()  # the disk was looked at
        there = {"up"}
        for line in (await render(served.broker)).decode().splitlines():
            if line.startswith("# TYPE"):
                name, kind = line.split()[2:]
                suffixes = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
                there.update(name + suffix for suffix in suffixes)
        expressions = [*dashboard_expressions(), *(rule["expr"] for rule in alerts().values())]
        for expression in expressions:
            assert names(expression) <= there, expression

    serve(check, tmp_path)


def test_a_kind_of_thread_has_a_sentence_for_a_label() -> None:
    assert POOLS.keys() == THREADS.keys()


def test_prometheus_cannot_tell_what_it_gets() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


def test_two_scrapes_at_once_mix(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.settled()  # the disk was looked at
        texts: list[bytes] = []

        async def one() -> None:
            texts.append(await render(served.broker))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
        first, second = ({line.split(b" ")[0] for line in text.splitlines()} for text in texts)
        assert first == second

    serve(check, tmp_path)


async def stage_many(served: Served, subjects: int) -> None:
    log = served.broker.log
    for number in range(subjects):
        log.create_subject_nowait(f"s{number:06}")
        if number % 1000 == 0:
            await log.wait_synced()
    await log.wait_synced()
    everybody = list(log.subjects)
    for number in range(1, subjects // 10 + 1):
        made: list[Any] = [actions.Group(number, f"g{number:06}")]
        ten = everybody[(number - 1) * 10 : number * 10]
        made += [actions.Commit(number, subject.id, 0, -1, "") for subject in ten]
        served.broker.sharing.append(made)
        if number % 100 == 0:
            await served.broker.coordinator.change([])


@pytest.mark.long
def test_a_scrape_of_10_000_subjects_costs_more_than_one_percent_of_a_core(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await stage_many(served, MANY)
        metrics = served.broker.metrics
        costs = []
        for _ in range(5):
            before = metrics.cpu_seconds
            await render(served.broker)
            costs.append(metrics.cpu_seconds - before)
            served.clock.jump(15)
        assert min(costs) < BUDGET_SECONDS, costs

    serve(check, tmp_path)


@pytest.mark.long
def test_others_have_no_turn_while_many_subjects_are_looked_at(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await stage_many(served, MANY)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await render(served.broker)
            nursery.cancel_scope.cancel()
        assert turns >= 10

    serve(check, tmp_path)
