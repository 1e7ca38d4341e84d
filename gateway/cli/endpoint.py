"""The admin endpoint of a running broker, as commands ask it: one request, one answer, one exit code.

The address is `--admin`, else KUMQUAT_ADMIN_LISTENER, else DEFAULT_ADMIN. `--json` shows the endpoint's own
answer. Exit codes: 0 done; REFUSED the broker refuses; UNREACHABLE the endpoint cannot be reached (as for a
wrong command).
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

DEFAULT_ADMIN = "http://127.0.0.1:9093"
VARIABLE = "KUMQUAT_ADMIN_LISTENER"
TIMEOUT_SECONDS = 90.0
REFUSED, UNREACHABLE = 1, 2


class Unreachable(Exception):
    """The admin endpoint did not answer; the text is one line for the operator."""


def add_flags(action: argparse.ArgumentParser) -> None:
    """What every command has that asks the endpoint."""
    action.add_argument("--admin", metavar="URL", help="address of the admin endpoint")
    action.add_argument("--json", action="store_true", help="show the answer as JSON")


def address(parsed: argparse.Namespace) -> str:
    return parsed.admin or os.environ.get(VARIABLE) or DEFAULT_ADMIN


def given(parsed: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Arguments by name, without those that were not given."""
    return {name: value for name in names if (value := getattr(parsed, name)) is not None}


def report(
    parsed: argparse.Namespace,
    status: int,
    answer: Mapping[str, Any],
    show: Callable[[Mapping[str, Any]], Iterable[str]],
) -> int:
    """Show an answer, or why there is none, and give the exit code."""
    if parsed.json:
        print(json.dumps(answer, ensure_ascii=False))
    elif "error" in answer:
        print(f"kumquat: {answer['message']}", file=sys.stderr)
    else:
        for line in show(answer):
            print(line)
    return 0 if status < 300 else REFUSED


def ask(
    admin: str, method: str, path: str, values: Mapping[str, object]
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
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    try:
        if method == "GET":
            connection.request("GET", f"{path}?{urlencode(values)}" if values else path)
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
