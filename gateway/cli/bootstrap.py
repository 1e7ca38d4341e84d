"""The broker as a Kafka client reaches it: `--bootstrap`, clients of kafka-python, and their errors.

    with admin_client(bootstrap) as client:
        client.list_topics()

kafka-python logs every connection that fails and names its own classes in its errors. Neither reaches the
user: its loggers are silent here, and `clear_errors` turns an error into one line that says what is wrong
and what to do. What the broker refuses is Refused (exit code 1); a broker that is not there is Unreachable
(2).

kafka-python is imported when a client is made. It takes 200 ms, and what a command refuses by itself needs
no client.
"""

from __future__ import annotations

import logging
import socket
import warnings
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.cli.command import Refused, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
VARIABLE = "KUMQUAT_BOOTSTRAP"
CONNECT_MS = 30_000
"""How long a broker that takes the connection and does not answer is tried."""
NOBODY = "no broker at"
"""How the error begins if nothing takes the connection."""
ADVICE = "is it running, and is --bootstrap right?"
CLIENT_ID = "kumquat-cli"

bootstrap_option = click.option(
    "--bootstrap",
    "-b",
    metavar="HOST:PORT",
    envvar=VARIABLE,
    default=DEFAULT_BOOTSTRAP,
    help=f"address of the broker; else ${VARIABLE}, else {DEFAULT_BOOTSTRAP}",
)


def silence() -> None:
    """No log line and no warning of kafka-python reaches the user."""
    logger = logging.getLogger("kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="kafka")


def lend_snappy() -> None:
    """kafka-python needs python-snappy for snappy, which is no dependency of ours; cramjam is one and does
    the same. Without it a topic with snappy batches could not be read."""
    from kafka import codec

    if codec.snappy is None:
        import cramjam

        codec.snappy = SimpleNamespace(
            compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
            decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
        )


def settings(bootstrap: str, connect_ms: int = CONNECT_MS) -> dict[str, Any]:
    """What all clients are made with. Raises Unreachable if no address takes a connection: kafka-python
    would try for as long as it may, and then not say why."""
    addresses = [address.strip() for address in bootstrap.split(",")]
    why = ""
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise Unreachable(f"--bootstrap {bootstrap!r} is not of the form {DEFAULT_BOOTSTRAP}")
        try:
            socket.create_connection((host.strip("[]"), int(port)), connect_ms / 1000).close()
            break
        except OSError as error:
            why = error.strerror or str(error)
    else:
        raise Unreachable(f"{NOBODY} {bootstrap}: {why}; {ADVICE}")
    return {
        "bootstrap_servers": [address],  # it names the others, if there are any
        "client_id": CLIENT_ID,
        "bootstrap_timeout_ms": connect_ms,
        "reconnect_backoff_max_ms": 1000,
    }


@contextmanager
def clear_errors(bootstrap: str) -> Iterator[None]:
    """What kafka-python raises, as one line."""
    silence()
    lend_snappy()
    from kafka import errors

    try:
        yield
    except (errors.KafkaTimeoutError, errors.KafkaConnectionError):
        raise Unreachable(f"the broker at {bootstrap} does not answer; {ADVICE}") from None
    except errors.KafkaError as error:
        raise Refused(reason(error)) from None


def reason(error: BaseException) -> str:
    """The broker's own words where it gave any, else what Kafka says about the error."""
    from kafka.errors import KafkaTimeoutError

    if isinstance(error, KafkaTimeoutError):
        return "the broker did not answer in time"
    name = getattr(error, "message", None)
    said = str(error.args[0]) if error.args and error.args[0] else ""
    if said.startswith("Failed to append record because"):
        return "another record of its batch was refused"
    if said and not said.startswith(("Request '", "[Error ")):
        return said
    description = str(getattr(error, "description", "") or type(error).__name__)
    return f"{description.rstrip('.')} ({name})" if name else description


def refusal(code: int, message: str | None) -> str:
    """Why the broker refused one of several things: its own words, else Kafka's for the code."""
    from kafka import errors

    return message or reason(errors.for_code(code)())


@contextmanager
def admin_client(bootstrap: str, connect_ms: int = CONNECT_MS) -> Iterator[Any]:
    """An admin client of kafka-python."""
    wanted = settings(bootstrap, connect_ms)
    with clear_errors(bootstrap):
        from kafka.admin import KafkaAdminClient

        with KafkaAdminClient(**wanted) as client:
            yield client
