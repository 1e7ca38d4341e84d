"""Log lines that clients could forge, or that cannot be read."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from kumquat.gateway.process.log import JsonFormatter, set_up_logging
from kumquat.gateway.testing.broker import broker


@pytest.fixture(autouse=True)
def _root() -> Iterator[None]:
    """The root logger is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def stream() -> io.StringIO:
    """The root logger writes here, as it would to stderr."""
    text = io.StringIO()
    set_up_logging("INFO", text)
    return text


@pytest.fixture
def objects() -> io.StringIO:
    """The same as JSON."""
    text = io.StringIO()
    set_up_logging("INFO", text, format="json")
    return text


def test_a_line_has_time_level_logger_and_message(stream: io.StringIO) -> None:
    logging.getLogger("kumquat.gateway.x").info("ready on %s", "127.0.0.1:9092")
    logging.getLogger("kumquat.gateway.x").debug("not shown")
    stamp, logger = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", r"kumquat\.gateway\.x"
    pattern = rf"{stamp} INFO    {logger}: ready on 127\.0\.0\.1:9092\n"
    assert re.fullmatch(pattern, stream.getvalue())


def test_a_client_cannot_forge_a_line(stream: io.StringIO) -> None:
    logging.getLogger("x").warning("client id %s", "a\n2026-01-01 INFO y: all is well\x1b[2J\r")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert r"a\n2026-01-01 INFO y: all is well\x1b[2J\r" in stream.getvalue()


def test_a_traceback_is_indented_under_its_line(stream: io.StringIO) -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("x").exception("it failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("x: it failed")
    assert rest[-1] == "    ValueError: wrong"
    assert all(line.startswith("    ") for line in rest)


def test_a_program_has_to_take_a_line_apart(objects: io.StringIO) -> None:
    logging.getLogger("kumquat.x").info("ready on %s", "127.0.0.1:9092")
    found = json.loads(objects.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    message = "ready on 127.0.0.1:9092"
    assert found == {"level": "INFO", "logger": "kumquat.x", "message": message}


def test_a_traceback_or_a_clients_name_breaks_an_object_in_two(objects: io.StringIO) -> None:
    try:
        raise ValueError('a\n{"level": "INFO"}')
    except ValueError:
        logging.getLogger("x").exception("client %s", 'b\n"c"')
    (line,) = objects.getvalue().splitlines()
    found = json.loads(line)
    assert found["message"] == 'client b\n"c"'
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith('ValueError: a\n{"level": "INFO"}')


def test_a_broker_writes_text_although_json_is_asked_for() -> None:
    with broker(logging_format="json") as b:
        assert b.stop() == 0
        found = [json.loads(line) for line in b.log_text().splitlines()]
    assert found[-1]["message"] == "stopped"
    assert any("ready on" in line["message"] for line in found)


def test_a_name_that_is_no_text_costs_the_line() -> None:
    line = JsonFormatter().format(logging.makeLogRecord({"msg": "client \ud800"}))
    assert line.isascii()
    assert json.loads(line)["message"] == "client \ud800"
