"""Log lines that clients could forge, or that cannot be read."""

import io
import logging
import re
from collections.abc import Iterator

import pytest

from kumquat.gateway.process.log import set_up_logging


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The root logger writes here, as it would to stderr; put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    text = io.StringIO()
    set_up_logging("INFO", text)
    yield text
    root.handlers[:] = handlers
    root.setLevel(level)


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
