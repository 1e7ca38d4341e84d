"""`kumquat topics …`: topics of a broker, through Kafka's protocol.

    kumquat topics list 'shop-*'                           how much is in them
    kumquat topics list --names                            the names alone, a line each
    kumquat topics describe orders                         offsets, size, configs that were set
    kumquat topics create orders --config retention.ms=86400000
    kumquat topics delete orders --yes
    kumquat topics records-delete orders --before 5000     (or latest)
    kumquat topics records-delete orders --older-than 7d --dry-run

`messages` is the distance from the earliest to the latest offset: delayed records leave holes in it. At a
terminal nothing is deleted without `--yes`; a script is never asked. What is done to several topics is done
to each by itself: those that are refused are named, and the exit code is 1.
"""

from __future__ import annotations

import json
import sys
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.admin.times import read_past, show_time
from kumquat.gateway.cli.bootstrap import admin_client, bootstrap_option, refusal
from kumquat.gateway.cli.command import DONE, REFUSED, Commands, Refused
from kumquat.gateway.cli.endpoint import json_option
from kumquat.gateway.cli.kafka.configs import read_configs, set_configs
from kumquat.gateway.cli.names import complete_topics
from kumquat.gateway.cli.tables import listing, plain, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

AT_A_TIME = 2000
"""Topics in one request."""
UNKNOWN = 3
EXISTS = 36
LATEST, EARLIEST = -1, -2
COLUMNS = {
    "TOPIC": "topic",
    "EARLIEST": "earliest",
    "LATEST": "latest",
    "MESSAGES": "messages",
    "SIZE": "shown_size",
}

topics = Commands("topics", help="List, describe, create, delete topics; delete their records.")
_names = click.argument(
    "names", nargs=-1, required=True, metavar="TOPIC…", shell_complete=complete_topics
)
_yes = click.option("--yes", is_flag=True, help="do it, also at a terminal")


@topics.command("list")
@click.argument("pattern", default="*", metavar="[PATTERN]")
@click.option("--names", is_flag=True, help="the names alone, a line each")
@bootstrap_option
@json_option
def list_topics(pattern: str, names: bool, bootstrap: str, as_json: bool) -> int:
    """Topics, how much is in them, and how large they are."""
    with admin_client(bootstrap) as client:
        found = sorted(n for n in client.list_topics() if fnmatchcase(n, pattern))
        if not names:
            described = [row for part in _parts(found) for row in _standing(client, part)]
    if names:
        print(json.dumps({"topics": found}) if as_json else "\n".join(map(plain, found)))
    elif as_json:
        print(json.dumps({"topics": described}, ensure_ascii=False))
    elif described:
        _show(listing([_readable(row) for row in described], COLUMNS))
    else:
        print("There are no such topics." if pattern != "*" else "There are no topics.")
    return DONE


def _parts(names: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(names)
    while part := list(islice(remaining, AT_A_TIME)):
        yield part


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "shown_size": size(row["bytes"])}


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _standing(client: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Offsets and sizes of topics that exist."""
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec

    wanted = [TopicPartition(name, 0) for name in names]
    earliest = client.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
    latest = client.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
    sizes: dict[str, int] = {}
    for answer in client.describe_log_dirs({name: [0] for name in names}):
        for folder in answer["log_dirs"]:
            for topic in folder["topics"]:
                held = sum(part["partition_size"] for part in topic["partitions"])
                sizes[topic["name"]] = sizes.get(topic["name"], 0) + held
    return [
        {
            "topic": place.topic,
            "earliest": earliest[place].offset,
            "latest": latest[place].offset,
            "messages": latest[place].offset - earliest[place].offset,
            "bytes": sizes.get(place.topic, 0),
        }
        for place in wanted
    ]


@topics.command("describe")
@_names
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> int:
    """Offsets, size and id of topics, and the configs that were set."""
    with admin_client(bootstrap) as client:
        found = {topic["name"]: topic for topic in _existing(client, names)}
        described = [
            {
                **row,
                "id": str(found[row["topic"]]["topic_id"]),
                "configs": {
                    name: config["value"]
                    for name, config in read_configs(client, "topic", row["topic"]).items()
                    if set_configs(config)
                },
            }
            for row in _standing(client, list(found))
        ]
    if as_json:
        print(json.dumps({"topics": described}, ensure_ascii=False))
        return DONE
    for number, row in enumerate(described):
        if number:
            print()
        for name in ("topic", "id", "earliest", "latest", "messages"):
            print(f"{name + ':':<10} {plain(str(row[name]))}")
        print(f"{'size:':<10} {size(row['bytes'])} ({row['bytes']:,} bytes)")
        for config, value in row["configs"].items():
            print(f"{'config:':<10} {plain(f'{config}={value}')}")
    return DONE


def _existing(client: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Metadata of topics that must exist."""
    found: list[dict[str, Any]] = client.describe_topics(list(dict.fromkeys(names)))
    for topic in found:
        if topic["error_code"] == UNKNOWN:
            name = plain(topic["name"])
            raise Refused(f"there is no topic {name!r}; kumquat topics list shows them")
        if topic["error_code"]:
            raise Refused(f"{plain(topic['name'])}: {refusal(topic['error_code'], None)}")
    return found


@topics.command("create")
@_names
@click.option("--config", "-c", "given", multiple=True, metavar="NAME=VALUE", help="a config")
@click.option("--if-not-exists", is_flag=True, help="one that is there already is no error")
@bootstrap_option
@json_option
def create(
    names: tuple[str, ...],
    given: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> int:
    """Make topics. Partitions need no planning: a topic has one, and any number of consumers."""
    configs = dict(_pair(text) for text in given)
    with admin_client(bootstrap) as client:
        asked = {name: {"configs": configs} for name in names}
        answer = client.create_topics(asked, raise_errors=False)
    done, refused = _outcome(answer["topics"], {EXISTS} if if_not_exists else set())
    return _report(as_json, "created", "Created", done, refused)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--config {text}: expected NAME=VALUE")
    return name, value


def _outcome(
    topics: Iterable[dict[str, Any]], harmless: set[int]
) -> tuple[list[str], dict[str, str]]:
    done: list[str] = []
    refused: dict[str, str] = {}
    for topic in topics:
        code = topic["error_code"]
        if not code:
            done.append(topic["name"])
        elif code not in harmless:
            refused[topic["name"]] = refusal(code, topic.get("error_message"))
    return done, refused


def _report(as_json: bool, verb: str, said: str, done: list[str], refused: dict[str, str]) -> int:
    if as_json:
        print(json.dumps({verb: done, "refused": refused}, ensure_ascii=False))
    else:
        _show(plain(f"{said}: {name}") for name in done)
        for name, why in refused.items():
            print(plain(f"kumquat: {name}: {why}"), file=sys.stderr)
    return REFUSED if refused else DONE


@topics.command("delete")
@_names
@_yes
@bootstrap_option
@json_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> int:
    """Delete topics with all that is in them, also what is for later."""
    with admin_client(bootstrap) as client:
        _existing(client, names)
        if not yes and sys.stdin.isatty():
            _show(listing([_readable(row) for row in _standing(client, names)], COLUMNS))
            raise Refused("nothing was changed; add --yes to delete them for good")
        answer = client.delete_topics(list(names), raise_errors=False)
    return _report(as_json, "deleted", "Deleted", *_outcome(answer["topics"], set()))


@topics.command("records-delete")
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option("--before", metavar="OFFSET", help="all below this offset; latest: all there are")
@click.option("--older-than", metavar="TIME", help="all before a time, or so long ago (7d, 1h30m)")
@click.option("--dry-run", is_flag=True, help="say what would happen, do nothing")
@_yes
@bootstrap_option
@json_option
def records_delete(
    name: str,
    before: str | None,
    older_than: str | None,
    dry_run: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> int:
    """Delete the oldest messages of a topic."""
    if (before is None) == (older_than is None):
        raise click.UsageError("say what to delete: either --before or --older-than")
    if before is not None and before != "latest" and not before.isdecimal():
        raise click.UsageError(f"--before {before!r}: expected an offset, or latest")
    since = None if older_than is None else _moment(older_than)
    from kafka import TopicPartition

    with admin_client(bootstrap) as client:
        _existing(client, [name])
        (standing,) = _standing(client, [name])
        to = standing["latest"]
        if since is not None:
            place = TopicPartition(name, 0)
            found = client.list_partition_offsets({place: since})[place].offset
            to = to if found < 0 else found
        elif before != "latest":
            to = int(before or 0)
        if to > standing["latest"]:
            raise Refused(f"{plain(name)} ends at {standing['latest']:,}; there is no {to:,}")
        told = {"topic": name, "from": standing["earliest"], "to": to, "done": False}
        told["messages"] = max(0, to - standing["earliest"])
        asking = not yes and not dry_run and sys.stdin.isatty()
        if not (dry_run or asking) and told["messages"]:
            client.delete_records({TopicPartition(name, 0): to})
            told["done"] = True
    if as_json:
        print(json.dumps(told, ensure_ascii=False))
    else:
        verb = "Deleted" if told["done"] else "Would be deleted"
        print(plain(f"{verb}: {told['messages']:,} offsets of {name}, those below {to:,}."))
    if asking:
        raise Refused("nothing was changed; add --yes to delete them for good")
    return DONE


def _moment(text: str) -> int:
    from kumquat.core.clock import wall_clock_ms

    try:
        return read_past(text, wall_clock_ms())
    except ValueError as error:
        example = show_time(0)[:17]
        raise click.UsageError(
            f"--older-than {text!r}: {error}; a time is like {example}00Z, a duration like 7d"
        ) from None
