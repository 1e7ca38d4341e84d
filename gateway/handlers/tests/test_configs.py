"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: what is shown, changed and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.config.options import Listener
from kumquat.gateway.tests.harness import Client, Served, produce, serve
from kumquat.gateway.wire import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ErrorCode,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

if TYPE_CHECKING:
    from pathlib import Path

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5


async def describe(
    client: Client, kind: int, name: str, keys: list[str] | None = None, **fields: bool
) -> Any:
    resource = DescribeConfigsResource(kind, name, keys)
    request = DescribeConfigsRequest(resources=[resource], **fields)
    return (await client.call(request, 4)).results[0]


async def alter(client: Client, name: str, *changes: tuple[str, int, str | None]) -> Any:
    return await alter_resource(client, TOPIC, name, *changes)


async def alter_resource(
    client: Client, kind: int, name: str, *changes: tuple[str, int, str | None], **fields: bool
) -> Any:
    configs = [IncrementalAlterableConfig(*change) for change in changes]
    resource = IncrementalAlterConfigsResource(kind, name, configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], **fields)
    return (await client.call(request, 1)).responses[0]


async def replace(client: Client, name: str, **configs: str | None) -> Any:
    given = [AlterableConfig(key.replace("_", "."), value) for key, value in configs.items()]
    request = AlterConfigsRequest(resources=[AlterConfigsResource(TOPIC, name, given)])
    return (await client.call(request, 2)).responses[0]


def configs_of(served: Served, name: str) -> dict[str, str]:
    return dict(served.broker.registry.configs(served.broker.log.subjects.by_name[name].id))


def test_a_topic_shows_every_config_with_its_value_and_where_that_comes_from(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"max.message.bytes": "5000"})
        async with served.client() as client:
            result = await describe(client, TOPIC, "t", include_synonyms=True)
            shown = {config.name: config for config in result.configs}
            assert len(shown) > 20
            own, inherited = shown["max.message.bytes"], shown["retention.ms"]
            assert (own.value, own.config_source) == ("5000", DYNAMIC_TOPIC)
            assert (inherited.value, inherited.config_source) == ("3600000", STATIC_BROKER)
            assert shown["segment.ms"].config_source == DEFAULT
            assert [s.source for s in own.synonyms] == [DYNAMIC_TOPIC, DEFAULT]
            assert own.documentation is None
            result = await describe(client, TOPIC, "t", ["retention.ms", "bogus"])
            assert [config.name for config in result.configs] == ["retention.ms"]
            assert result.configs[0].synonyms == []
            result = await describe(client, TOPIC, "t", [], include_documentation=True)
            assert result.configs == []
            result = await describe(client, TOPIC, "t", None, include_documentation=True)
            assert all(config.documentation for config in result.configs)

    serve(check, tmp_path, log_retention_ms=3_600_000)


@pytest.mark.parametrize("given", [None, "PLAINTEXT://broker.example:9092"])
def test_the_broker_shows_where_clients_find_it(tmp_path: Path, given: str | None) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            result = await describe(client, BROKER, "1", ["advertised.listeners"])
        (shown,) = result.configs
        own = f"PLAINTEXT://127.0.0.1:{served.port}"
        assert (shown.value, shown.config_source) == (
            (own, DEFAULT) if given is None else (given, STATIC_BROKER)
        )

    listeners = None if given is None else (Listener("broker.example", 9092),)
    serve(check, tmp_path, advertised_listeners=listeners)


def test_the_broker_shows_its_options_read_only(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            result = await describe(client, BROKER, "1", include_synonyms=True)
            shown = {config.name: config for config in result.configs}
            assert shown["max.connections"].value == "77"
            assert shown["max.connections"].config_source == STATIC_BROKER
            assert [s.value for s in shown["max.connections"].synonyms] == ["77", "10000"]
            assert shown["message.max.bytes"].config_source == DEFAULT
            assert all(config.read_only for config in result.configs)
            assert (await describe(client, BROKER, "")).configs == []

    serve(check, tmp_path, max_connections=77)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not allowed", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_without_configs_is_refused_with_the_reason(
    tmp_path: Path, kind: int, name: str, code: ErrorCode
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            shown = await describe(client, kind, name)
            changed = await alter_resource(client, kind, name, ("retention.ms", SET, "1"))
            for result in (shown, changed):
                assert result.error_code == code
                assert len(result.error_message) > 10
                assert (result.resource_type, result.resource_name) == (kind, name)

    serve(check, tmp_path)


def test_the_brokers_own_options_cannot_be_changed(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            result = await alter_resource(client, BROKER, "1", ("max.connections", SET, "5"))
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert "start" in result.error_message

    serve(check, tmp_path)


def test_options_without_effect_are_taken_and_shown(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            for name, value in (("num.io.threads", "4"), ("log.cleaner.threads", "2")):
                assert (
                    await alter_resource(client, BROKER, "1", (name, SET, value))
                ).error_code == 0
            wrong = await alter_resource(client, BROKER, "", ("num.io.threads", SET, "many"))
            assert wrong.error_code == ErrorCode.INVALID_CONFIG
            gone = await alter_resource(client, BROKER, "", ("log.cleaner.threads", DELETE, None))
            assert gone.error_code == 0
        await after(served)

    async def after(served: Served) -> None:
        async with served.client() as client:
            (only,) = (await describe(client, BROKER, "", include_synonyms=True)).configs
            assert (only.name, only.value, only.read_only) == ("num.io.threads", "4", False)
            assert (only.config_source, len(only.synonyms)) == (3, 1)
            result = await describe(client, BROKER, "1", ["num.io.threads", "node.id"])
            assert {config.name for config in result.configs} == {"num.io.threads", "node.id"}

    serve(check, tmp_path)
    serve(after, tmp_path)


def test_single_configs_are_set_and_deleted_and_take_effect_at_once(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"retention.ms": "1000"})
        async with served.client() as client:
            result = await alter(client, "t", ("max.message.bytes", SET, "500"))
            assert result.error_code == 0
            assert configs_of(served, "t") == {"retention.ms": "1000", "max.message.bytes": "500"}
            answer = await client.call(produce("t", bytes(500)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 10
            changes = (("max.message.bytes", DELETE, None), ("retention.ms", DELETE, ""))
            assert (await alter(client, "t", *changes)).error_code == 0
            assert configs_of(served, "t") == {}
            answer = await client.call(produce("t", bytes(500)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

    serve(check, tmp_path)


def test_lists_are_appended_to_and_subtracted_from(tmp_path: Path) -> None:
    name = "leader.replication.throttled.replicas"

    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            for operation, given, becomes in (
                (APPEND, "0:1,0:2", "0:1,0:2"),
                (APPEND, "0:2,0:3", "0:1,0:2,0:3"),
                (SUBTRACT, "0:1", "0:2,0:3"),
            ):
                assert (await alter(client, "t", (name, operation, given))).error_code == 0
                assert configs_of(served, "t") == {name: becomes}
            result = await alter(client, "t", ("retention.ms", APPEND, "1"))
            assert result.error_code == ErrorCode.INVALID_CONFIG
            result = await alter(client, "t", ("cleanup.policy", APPEND, "compact"))
            assert result.error_code == ErrorCode.INVALID_CONFIG

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("cleanup.policy", SET, "compact")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "-5")], ErrorCode.INVALID_CONFIG),
        ([("bogus", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("bogus", DELETE, None)], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_cannot_be_changes_nothing_not_even_what_came_before_it(
    tmp_path: Path, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"segment.bytes": "2000000"})
        async with served.client() as client:
            result = await alter(client, "t", ("max.message.bytes", SET, "500"), *changes)
            assert result.error_code == code
            assert len(result.error_message) > 5
            assert configs_of(served, "t") == {"segment.bytes": "2000000"}

    serve(check, tmp_path)


def test_the_older_alter_replaces_all_configs(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"retention.ms": "1000", "segment.bytes": "2000000"})
        async with served.client() as client:
            assert (await replace(client, "t", retention_ms="2000")).error_code == 0
            assert configs_of(served, "t") == {"retention.ms": "2000"}
            result = await replace(client, "t", retention_ms=None)
            assert result.error_code == ErrorCode.INVALID_CONFIG
            assert (await replace(client, "t")).error_code == 0
            assert configs_of(served, "t") == {}

    serve(check, tmp_path)


def test_validate_only_changes_nothing_and_still_refuses(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            for value, code in (("1000", 0), ("never", ErrorCode.INVALID_CONFIG)):
                change = ("retention.ms", SET, value)
                result = await alter_resource(client, TOPIC, "t", change, validate_only=True)
                assert result.error_code == code
            assert configs_of(served, "t") == {}

    serve(check, tmp_path)


def test_a_resource_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            config = IncrementalAlterableConfig("retention.ms", SET, "1000")
            resource = IncrementalAlterConfigsResource(TOPIC, "t", [config])
            request = IncrementalAlterConfigsRequest(resources=[resource, resource])
            responses = (await client.call(request, 1)).responses
            assert [r.error_code for r in responses] == [ErrorCode.INVALID_REQUEST] * 2

    serve(check, tmp_path)


def test_configs_are_in_effect_again_after_a_restart(tmp_path: Path) -> None:
    async def first(served: Served) -> None:
        await served.create("t", **{"max.message.bytes": "500"})
        await served.create("u")

    async def second(served: Served) -> None:
        by_name = served.broker.log.subjects.by_name
        assert by_name["t"].config.max_message_bytes == 500
        assert by_name["u"].config is served.broker.log.subjects.defaults

    serve(first, tmp_path)
    serve(second, tmp_path)
