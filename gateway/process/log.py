"""Logging to stderr: one line per event, with time (UTC), level, logger and message.

    2025-11-16T02:41:05.123Z INFO    kumquat.gateway.process.server: kumquat 0.1.0 ready on 127.0.0.1:9092

or, with `logging.format=json`, for programs that collect logs:

    {"time": "2025-11-16T02:41:05.123Z", "level": "INFO", "logger": "kumquat.gateway.process.server",
     "message": "kumquat 0.1.0 ready on 127.0.0.1:9092"}

in one line; an event with a traceback has it in `exception`, with its line breaks escaped, as JSON does.

In text, line breaks and other control characters in a message are escaped. Messages contain names and ids
that clients choose, and a client must not be able to forge a line. Only the traceback of an exception
takes more lines, each indented.
"""

import json
import logging
import sys
import time
from typing import TextIO

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_ESCAPES |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


def _time(record: logging.LogRecord) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{stamp}.{int(record.msecs):03}Z"


class LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().translate(_ESCAPES)
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {message}"
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(f"    {part}" for part in trace)])


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        # ASCII only: a name may hold what cannot be written as UTF-8, and then the line would be lost.
        return json.dumps(fields)


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": LineFormatter, "json": JsonFormatter}
"""By `logging.format`."""


def set_up_logging(level: str, stream: TextIO | None = None, format: str = "text") -> None:
    """Send all log lines of this process to stderr, from this level on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMATTERS[format]())
    logging.basicConfig(level=level, handlers=[handler], force=True)
