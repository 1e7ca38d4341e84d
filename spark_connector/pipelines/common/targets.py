"""The subject that a pipeline writes to: it must exist, or be created on request.

An unknown name may be a typing error, so a target is created only with `--create`, with the broker's own
settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import check_subjects, existing_subjects

if TYPE_CHECKING:
    import argparse


def check_target(bootstrap: str, target: str, *, create: bool) -> None:
    """Returns if it can be written to, or may be made."""
    if target in existing_subjects(bootstrap):
        check_subjects(bootstrap, [target])
    elif not create:
        raise ConnectorError(
            f"no subject {target} on {bootstrap} to send to: correct the name, or add --create "
            "(create=True) to have it made"
        )


def make_target(bootstrap: str, target: str) -> None:
    """Returns when the subject exists."""
    if target in existing_subjects(bootstrap):
        return
    try:
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(target, 1, 1)])
    except TopicAlreadyExistsError:
        pass
    except KafkaError as error:
        raise ConnectorError(f"{bootstrap} does not make subject {target!r}: {error}") from error


def add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--create", action="store_true", help="make the target if it is not there")
