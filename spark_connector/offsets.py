"""Where subjects begin and end, asked of the broker by the driver: {subject: offset}.

A subject has one partition, so an offset is one number. The answers are what a pipeline keeps in its
state files and what Spark's options need (`spark_json`). Each question first checks that the broker answers
and that the subjects exist; if not, it is a ConnectorError at once, where Spark would try for
a minute and then print pages. `offset` always means the next one to read: a subject with
messages 0 to 9 has the latest offset 10.
"""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError

from kumquat.spark.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Offsets = dict[str, int]
CONNECT_SECONDS = 10.0
ANSWER_MS = 60_000
_UNKNOWN = 3


def earliest(bootstrap: str, subjects: Iterable[str]) -> Offsets:
    """The first offset that each subject still has."""
    return _ask(bootstrap, subjects, OffsetSpec.EARLIEST)


def latest(bootstrap: str, subjects: Iterable[str]) -> Offsets:
    """The offset after each subject's last message."""
    return _ask(bootstrap, subjects, OffsetSpec.LATEST)


def at_time(bootstrap: str, subjects: Iterable[str], milliseconds: int) -> Offsets:
    """The first offset whose message is as late as this (ms since 1970), or else the end."""
    subjects = list(subjects)
    if milliseconds < 0:
        raise ConnectorError(f"a time before 1970 is no time of a message: {milliseconds} ms")
    ends = latest(bootstrap, subjects)
    found = _ask(bootstrap, subjects, milliseconds)
    return {subject: ends[subject] if at < 0 else at for subject, at in found.items()}


def spark_json(offsets: Mapping[str, int]) -> str:
    """The JSON that Spark's startingOffsets and endingOffsets want."""
    return json.dumps({subject: {"0": offset} for subject, offset in offsets.items()})


def check_broker(bootstrap: str) -> None:
    """Returns if a broker answers there."""
    with _admin(bootstrap):
        pass


def check_subjects(bootstrap: str, subjects: Iterable[str]) -> None:
    """Returns if the broker answers and has all these subjects."""
    with _admin(bootstrap) as admin:
        _partitions(admin, bootstrap, subjects)


def identities(bootstrap: str, subjects: Iterable[str]) -> dict[str, str]:
    """Each subject's own id, which another of the same name, made later, does not have."""
    with _admin(bootstrap) as admin:
        wanted = _partitions(admin, bootstrap, subjects)
        described = admin.describe_topics(list(wanted)) if wanted else []
    return {each["name"]: str(each["topic_id"]) for each in described}


def existing_subjects(bootstrap: str) -> list[str]:
    """The names of all subjects."""
    with _admin(bootstrap) as admin:
        return sorted(admin.list_topics())


def matching(bootstrap: str, names: Iterable[str]) -> list[str]:
    """The subjects of these names, where a name may be a pattern (shop-*, shop-?, shop-[ab]). What begins
    with two underscores is only matched by a pattern that begins so too, and what the broker calls
    internal (__consumer_offsets, __kumquat_retry) by none."""
    wanted, there = list(names), None
    found: dict[str, None] = {}
    for name in wanted:
        if not is_pattern(name):
            found[name] = None
            continue
        there = _not_internal(bootstrap) if there is None else there
        hits = [each for each in there if fnmatchcase(each, name) and _may_match(each, name)]
        if not hits:
            raise ConnectorError(
                f"no subject on {bootstrap} matches {name}: there are {', '.join(there) or 'none'}"
            )
        found |= dict.fromkeys(hits)
    return list(found)


def _not_internal(bootstrap: str) -> list[str]:
    with _admin(bootstrap) as admin:
        return sorted(each["name"] for each in admin.describe_topics() if not each["is_internal"])


def is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _may_match(subject: str, pattern: str) -> bool:
    return not subject.startswith("__") or pattern.startswith("__")


def _ask(bootstrap: str, subjects: Iterable[str], spec: Any) -> Offsets:
    with _admin(bootstrap) as admin:
        partitions = _partitions(admin, bootstrap, subjects)
        for subject, count in partitions.items():
            if count != 1:
                raise ConnectorError(
                    f"{subject} has {count} partitions, but a subject has one: "
                    "this is no Kumquat broker; read it with Spark's own options"
                )
        wanted = {TopicPartition(subject, 0): spec for subject in partitions}
        answers = admin.list_partition_offsets(wanted) if wanted else {}
    return {subject: int(answers[TopicPartition(subject, 0)].offset) for subject in partitions}


def _partitions(admin: Any, bootstrap: str, subjects: Iterable[str]) -> dict[str, int]:
    wanted = list(dict.fromkeys(subjects))
    if not wanted:
        return {}
    if patterns := [name for name in wanted if is_pattern(name)]:
        raise ConnectorError(f"{patterns[0]} is a pattern, but here a subject is given by its name")
    described = {each["name"]: each for each in admin.describe_topics(wanted)}
    missing = [name for name in wanted if described[name]["error_code"] == _UNKNOWN]
    if missing:
        noun = "subject" if len(missing) == 1 else "subjects"
        raise ConnectorError(
            f"no {noun} {', '.join(missing)} on {bootstrap}: "
            "correct the name, or write a first message to it"
        )
    for name in wanted:
        if code := described[name]["error_code"]:
            raise ConnectorError(f"{bootstrap} refuses subject {name!r}: Kafka's error {code}")
    return {name: len(described[name]["partitions"]) for name in wanted}


@contextmanager
def _admin(bootstrap: str) -> Iterator[Any]:
    answering = _connect(bootstrap)
    try:
        with KafkaAdminClient(
            bootstrap_servers=answering,
            bootstrap_timeout_ms=ANSWER_MS,
            request_timeout_ms=ANSWER_MS,
        ) as admin:
            yield admin
    except KafkaError as error:
        raise ConnectorError(
            f"the broker at {bootstrap} does not answer as it should: {error}"
        ) from error


def _connect(bootstrap: str) -> str:
    """The first address at which a broker listens: kafka-python leaves sockets and a thread behind
    when nothing listens at the address that it is given."""
    reasons = []
    for address in bootstrap.split(","):
        host, colon, port = address.strip().rpartition(":")
        if not (host and colon and port.isdigit()):
            raise ConnectorError(f"{bootstrap!r} is no broker's address: write HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            reasons.append(getattr(error, "strerror", None) or str(error))
        else:
            return address.strip()
    raise ConnectorError(
        f"no broker answers at {bootstrap} ({reasons[0]}): start it, or correct the address"
    )
