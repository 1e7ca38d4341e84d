"""The admin endpoint of a running broker, as commands ask it: one request, one answer, one exit code.

The address is `--admin`, else KUMQUAT_ADMIN_LISTENER, else DEFAULT_ADMIN. `--json` shows the endpoint's own
answer. Exit codes: 0 done; REFUSED the broker refuses; WRONG the endpoint cannot be reached (as for a wrong
command).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import click

from kumquat.gateway.cli.command import DONE, REFUSED, Unreachable
from kumquat.gateway.cli.tables import json_line, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

DEFAULT_ADMIN = "http://127.0.0.1:9093"
VARIABLE = "KUMQUAT_ADMIN_LISTENER"
TIMEOUT_SECONDS = 90.0

admin_option = click.option(
    "--admin",
    metavar="URL",
    envvar=VARIABLE,
    default=DEFAULT_ADMIN,
    help=f"address of the admin endpoint; else ${VARIABLE}, else {DEFAULT_ADMIN}",
)
json_option = click.option("--json", "as_json", is_flag=True, help="show the answer as JSON")


def asking(command: Any) -> Any:
    """What every command has that asks the endpoint: `--admin` and `--json`."""
    return admin_option(json_option(command))


def given(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Arguments by name, without those that were not given."""
    return {name: value for name in names if (value := values[name]) is not None}


def report(
    as_json: bool,
    status: int,
    answer: Mapping[str, Any],
    show: Callable[[Mapping[str, Any]], Iterable[str]],
) -> int:
    """Show an answer, or why there is none, and give the exit code."""
    if as_json:
        print(json_line(answer))
    elif "error" in answer:
        print(plain(f"kumquat: {answer['message']}"), file=sys.stderr)
    else:
        for line in show(answer):
            print(line)
    return DONE if status < 300 else REFUSED


def ask(
    admin: str,
    method: str,
    path: str,
    values: Mapping[str, object],
    timeout: float = TIMEOUT_SECONDS,
) -> tuple[int, dict[str, Any]]:
    """Send one request; its status and answer."""
    import http.client  # not for every command: it is half of what starting costs

    try:
        parts = urlsplit(admin)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme != "http":
        raise Unreachable(f"--admin {admin!r} is not of the form {DEFAULT_ADMIN}")
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        if method == "GET":
            query = urlencode(values, errors="surrogateescape")  # bytes as they were given
            connection.request("GET", f"{path}?{query}" if values else path)
        else:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(values), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if not isinstance(answer, dict):
            raise ValueError
    except OSError as error:
        raise Unreachable(
            f"no admin endpoint at {admin}: {error.strerror or error}; is the broker running, with "
            "--admin-listener?"
        ) from None
    except (http.client.HTTPException, ValueError):
        raise Unreachable(
            f"what answers at {admin} is not the admin endpoint of a broker"
        ) from None
    finally:
        connection.close()
    return response.status, answer
