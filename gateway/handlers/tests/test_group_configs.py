"""Group configs that are lost, misnamed, or changed for the wrong group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.handlers.common.resources import Resource
from kumquat.gateway.tests.harness import Client, Served, serve
from kumquat.gateway.wire import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

SET, DELETE, APPEND = 0, 1, 2
SOURCE_GROUP, SOURCE_DEFAULT = 8, 5


async def alter(client: Client, group: str, **configs: str | None) -> tuple[int, str | None]:
    """With _ for each dot; None takes a config back to its default."""
    wanted = [
        IncrementalAlterableConfig(
            name=name.replace("_", "."),
            config_operation=DELETE if value is None else SET,
            value=value,
        )
        for name, value in configs.items()
    ]
    resource = IncrementalAlterConfigsResource(Resource.GROUP, group, wanted)
    answer = await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    (outcome,) = answer.responses
    assert (outcome.resource_type, outcome.resource_name) == (Resource.GROUP, group)
    return outcome.error_code, outcome.error_message


async def described(
    client: Client, group: str, keys: list[str] | None = None
) -> dict[str, tuple[str | None, int]]:
    resource = DescribeConfigsResource(Resource.GROUP, group, keys)
    answer = await client.call(DescribeConfigsRequest(resources=[resource]), 4)
    (result,) = answer.results
    assert result.error_code == 0, result.error_message
    return {config.name: (config.value, config.config_source) for config in result.configs}


def test_what_was_set_for_one_group_is_shown_for_it_alone_and_after_a_restart(
    tmp_path: Path,
) -> None:
    async def change(served: Served) -> None:
        async with served.client() as client:
            assert await alter(client, "g", consume_mode="shared", lease_max_records="7") == (
                0,
                None,
            )
            assert await alter(client, "g", lease_max_records=None) == (0, None)
            await check(served)

    async def check(served: Served) -> None:
        async with served.client() as client:
            shown = await described(client, "g")
            assert shown["consume.mode"] == ("shared", SOURCE_GROUP)
            assert shown["lease.max.records"] == ("2000", SOURCE_DEFAULT)
            assert shown["lease.steal.after.ms"] == ("1000", SOURCE_DEFAULT)
            assert shown["auto.exclusive.after.ms"] == ("60000", SOURCE_DEFAULT)
            assert shown["consume.auto.offset.reset"] == ("earliest", SOURCE_DEFAULT)
            assert await described(client, "other", ["consume.mode", "no.such"]) == {
                "consume.mode": ("auto", SOURCE_DEFAULT)
            }
        assert served.broker.registry.group_config("g").consume_mode == "shared"

    serve(change, tmp_path)
    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("config", "value", "code"),
    [
        ("consume_mode", "broadcast", ErrorCode.INVALID_CONFIG),
        ("lease_max_records", "0", ErrorCode.INVALID_CONFIG),
        ("retry_backoff_multiplier", "0.5", ErrorCode.INVALID_CONFIG),
        ("share_record_lock_duration_ms", "14999", ErrorCode.INVALID_CONFIG),
        ("errors_deadletterqueue_topic_name", "a b", ErrorCode.INVALID_CONFIG),
        ("retention_ms", "1", ErrorCode.INVALID_CONFIG),
        ("no_such", None, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_config_that_a_group_cannot_have_is_refused_and_nothing_changes(
    tmp_path: Path, config: str, value: str | None, code: int
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            refused, message = await alter(client, "g", lease_steal_after_ms="5", **{config: value})
            assert refused == code
            assert config.replace("_", ".") in (message or "")
            assert served.broker.registry.group_configs("g") == {}

    serve(check, tmp_path)


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_group_without_a_proper_name_has_no_configs(tmp_path: Path, name: str) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            code, _ = await alter(client, name, consume_mode="shared")
            assert code == ErrorCode.INVALID_REQUEST
            resource = DescribeConfigsResource(Resource.GROUP, name, None)
            answer = await client.call(DescribeConfigsRequest(resources=[resource]), 4)
            assert answer.results[0].error_code == ErrorCode.INVALID_REQUEST

    serve(check, tmp_path)


def test_the_older_request_replaces_all_configs_of_a_group(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            await alter(client, "g", consume_mode="shared", lease_max_records="7")
            given = AlterConfigsResource(
                Resource.GROUP, "g", [AlterableConfig("lease.max.records", "9")]
            )
            answer = await client.call(AlterConfigsRequest(resources=[given]), 2)
            assert answer.responses[0].error_code == 0
            assert served.broker.registry.group_configs("g") == {"lease.max.records": "9"}

    serve(check, tmp_path)


def test_only_validating_changes_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            config = IncrementalAlterableConfig("consume.mode", SET, "shared")
            resource = IncrementalAlterConfigsResource(Resource.GROUP, "g", [config])
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
            assert (await client.call(request, 1)).responses[0].error_code == 0
            config.config_operation = APPEND
            assert (await client.call(request, 1)).responses[0].error_code == 40
            assert served.broker.registry.group_configs("g") == {}

    serve(check, tmp_path)
