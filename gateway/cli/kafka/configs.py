"""`kumquat configs …`: configs of topics, of groups and of the broker, through Kafka's protocol.

    kumquat configs get --topic orders                 what was set; with --all everything
    kumquat configs get --group billing consume.mode   single ones
    kumquat configs get --broker --all
    kumquat configs set --topic orders retention.ms=3600000 max.message.bytes=2000000
    kumquat configs unset --group billing consume.mode

A change of several configs is made as a whole or not at all. The broker's options are those that it was
started with: to change them, change its properties file and start it again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.cli.bootstrap import admin_client, bootstrap_option
from kumquat.gateway.cli.command import DONE, Commands, Refused
from kumquat.gateway.cli.endpoint import json_option
from kumquat.gateway.cli.names import complete_groups, complete_topics
from kumquat.gateway.cli.tables import listing, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = "DEFAULT_CONFIG"
COLUMNS = {"CONFIG": "name", "VALUE": "value", "FROM": "source", "TYPE": "type"}

configs = Commands("configs", help="Get, set and unset configs of topics, groups and the broker.")


def _of(command: Any) -> Any:
    """Whose configs."""
    for option in (
        click.option("--broker", is_flag=True, help="of the broker"),
        click.option("--group", metavar="NAME", help="of a group", shell_complete=complete_groups),
        click.option("--topic", metavar="NAME", help="of a topic", shell_complete=complete_topics),
    ):
        command = option(command)
    return bootstrap_option(json_option(command))


def _resource(topic: str | None, group: str | None, broker: bool) -> tuple[str, str]:
    """Its kind and its name."""
    given = [
        (kind, name) for kind, name in (("topic", topic), ("group", group)) if name is not None
    ]
    if broker:
        given.append(("broker", ""))
    if len(given) != 1:
        raise click.UsageError("say whose configs: --topic NAME, --group NAME or --broker")
    return given[0]


def set_configs(config: Mapping[str, Any]) -> bool:
    """Whether somebody has set it: at this place, or for the broker at its start."""
    return bool(config["config_source"] != DEFAULT)


def read_configs(client: Any, kind: str, name: str) -> dict[str, dict[str, Any]]:
    """All configs of what exists. Raises Refused."""
    from kafka.admin import ConfigResource

    if kind == "topic" and client.describe_topics([name])[0]["error_code"]:
        raise Refused(f"there is no topic {plain(name)!r}; kumquat topics list shows them")
    named = name if kind != "broker" else str(_node(client))
    answer = client.describe_configs([ConfigResource(kind, named)], config_filter="all")
    found: dict[str, dict[str, Any]] = answer[kind][named]
    return found


def _node(client: Any) -> int:
    node: int = client.describe_cluster()["brokers"][0]["broker_id"]
    return node


@configs.command("get")
@click.argument("names", nargs=-1, metavar="[CONFIG…]")
@click.option("--all", "everything", is_flag=True, help="those with their default value too")
@_of
def get(
    names: tuple[str, ...],
    everything: bool,
    topic: str | None,
    group: str | None,
    broker: bool,
    bootstrap: str,
    as_json: bool,
) -> int:
    """Configs and their values: those that were set, those that are named, or all."""
    kind, name = _resource(topic, group, broker)
    with admin_client(bootstrap) as client:
        found = read_configs(client, kind, name)
    if unknown := [each for each in names if each not in found]:
        raise Refused(f"a {kind} has no config {plain(unknown[0])!r}; --all shows what there is")
    rows = [
        {
            "name": each,
            "value": config["value"],
            "source": config["config_source"].lower().replace("_", " ").removesuffix(" config"),
            "type": config.get("config_type", "").lower(),
        }
        for each, config in sorted(found.items())
        if each in names or (not names and (everything or set_configs(config)))
    ]
    if as_json:
        print(json.dumps({kind: name, "configs": rows}, ensure_ascii=False))
    elif rows:
        for line in listing(rows, COLUMNS):
            print(line)
    else:
        print("Nothing is set; --all shows the defaults.")
    return DONE


@configs.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="CONFIG=VALUE…")
@_of
def set_values(pairs: tuple[str, ...], bootstrap: str, as_json: bool, **whose: Any) -> int:
    """Set configs."""
    changes: dict[str, tuple[str, str | None]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise click.UsageError(f"{pair!r}: expected CONFIG=VALUE")
        changes[name] = ("SET", value)
    return _alter(_resource(**whose), changes, bootstrap, as_json)


@configs.command("unset")
@click.argument("names", nargs=-1, required=True, metavar="CONFIG…")
@_of
def unset(names: tuple[str, ...], bootstrap: str, as_json: bool, **whose: Any) -> int:
    """Have configs at their defaults again."""
    return _alter(_resource(**whose), dict.fromkeys(names, ("DELETE", None)), bootstrap, as_json)


def _alter(
    resource: tuple[str, str],
    changes: Mapping[str, tuple[str, str | None]],
    bootstrap: str,
    as_json: bool,
) -> int:
    kind, name = resource
    with admin_client(bootstrap) as client:
        from kafka.admin import ConfigResource

        named = name if kind != "broker" else str(_node(client))
        wanted = [ConfigResource(kind, named, dict(changes))]
        answer = client.alter_configs(wanted, raise_on_unknown=False)
    said = answer[kind][named]
    if said != "OK":
        raise Refused(plain(said.partition(": ")[2] or said))
    changed = {each: value for each, (_, value) in changes.items()}
    if as_json:
        print(json.dumps({kind: name, "changed": changed}, ensure_ascii=False))
        return DONE
    for each, value in changed.items():
        print(plain(f"{each} is at its default" if value is None else f"{each}={value}"))
    return DONE
