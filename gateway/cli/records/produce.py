r"""`kumquat produce TOPIC`: what comes from stdin, or files, as records. The habits are kcat's.

    echo hello | kumquat produce orders
    kumquat produce orders -K: < lines                        key:value, a line each
    kumquat produce orders -H tenant=a -z zstd --delay 10m < lines
    kumquat produce orders --at 2027-01-01T09:00Z --delay-id newyear < lines
    kumquat produce orders picture.png letter.pdf             each file a record
    kumquat produce orders --json < records.jsonl             keys, headers and delays of each: lines.py

How many records were written is said on stderr. Records that the broker refused are named there with its
reason, and the exit code is 1; the others are written. A batch is refused as a whole: one record with a bad
header takes those along that were sent with it. After Ctrl-C (exit code 130) or SIGTERM (143) no further
record is sent. Those under way get their answers and are counted; a second signal ends the wait for them.

The producer is not idempotent: with kafka-python, one refused batch would make every later one fail (see
the README). So a record may be written twice if the connection is lost at the wrong moment, as with kcat.
Order is kept: one request is under way at a time.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kumquat.gateway.cli.bootstrap import (
    admin_client,
    bootstrap_option,
    clear_errors,
    reason,
    settings,
)
from kumquat.gateway.cli.command import DONE, REFUSED, Action, Refused, Unreachable
from kumquat.gateway.cli.names import complete_topics
from kumquat.gateway.cli.records.format import unescape
from kumquat.gateway.cli.records.lines import ASKING, Cutter, Lines
from kumquat.gateway.cli.signals import held
from kumquat.gateway.cli.tables import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kumquat.gateway.cli.records.lines import Headers, Sent

READ_BYTES = 1 << 16
WINDOW_BYTES = 32 << 20
"""Records that wait for their answer, together; beyond it stdin is not read."""
BATCH_BYTES = 1 << 18
LARGEST_BYTES = 100 << 20
"""The broker says what is too large, not the client."""
DELIVERY_MS = 30_000
ANSWER_SECONDS = 10.0
BLOCK_MS = 30_000
"""How long a topic is waited for that the broker does not know yet."""
MOST_REASONS = 10
"""That are shown."""
ACKS = {"all": "all", "-1": "all", "1": 1, "0": 0}


class Report:
    """What became of the records. The producer's thread calls it too."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._waiting: dict[int, int] = {}
        self._bytes = 0
        self.written = 0
        self.refused: dict[str, list[int]] = {}

    def wait_for_room(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self._bytes < WINDOW_BYTES)

    def sent(self, number: int, size: int) -> None:
        with self._news:
            self._waiting[number] = size
            self._bytes += size

    def done(self, number: int) -> None:
        with self._news:
            self.written += self._ended(number)

    def failed(self, number: int, why: str) -> None:
        with self._news:
            if self._ended(number):
                self.refused.setdefault(why, []).append(number)

    def _ended(self, number: int) -> bool:
        """Whether it was waited for: an answer may come after `complete` has given it up."""
        size = self._waiting.pop(number, None)
        self._bytes -= size or 0
        self._news.notify_all()
        return size is not None

    def complete(self, seconds: float = ANSWER_SECONDS) -> None:
        """Wait until each record has its answer: kafka-python's flush may return a moment before."""
        with self._news:
            self._news.wait_for(lambda: not self._waiting, seconds)
            for number in list(self._waiting):
                self.failed(number, "it is not known what became of it")

    @property
    def refusals(self) -> int:
        return sum(map(len, self.refused.values()))


class _Null:
    """A value that is null, where kafka-python would refuse None because the key is null too."""


def _serializer() -> Any:
    from kafka.serializer import Serializer

    class Bytes(Serializer):  # type: ignore[misc]
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
            return None if isinstance(data, _Null) else data

    return Bytes()


class Sending:
    """A producer of kafka-python, and the report on what it sends."""

    def __init__(self, bootstrap: str, topic: str, acks: str, compression: str) -> None:
        from kafka import KafkaProducer

        self.report = Report()
        self._topic = topic
        self._number = 0
        self._producer = KafkaProducer(
            **settings(bootstrap),
            acks=ACKS[acks],
            compression_type=None if compression == "none" else compression,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            linger_ms=5,
            batch_size=BATCH_BYTES,
            max_request_size=LARGEST_BYTES,
            max_block_ms=BLOCK_MS,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=DELIVERY_MS - 1000,
            value_serializer=_serializer(),
        )

    def find_topic(self) -> None:
        """Raises KafkaTimeoutError if the broker does not know it and does not make it."""
        self._producer.partitions_for(self._topic)

    def send(self, record: Sent) -> None:
        self.report.wait_for_room()
        value = _Null() if record.value is None else record.value
        with held:
            self._number += 1
            number = self._number
            self.report.sent(number, record.size)
            future = self._producer.send(
                self._topic, value, record.key, [(n, v) for n, v in record.headers], partition=0
            )
            future.add_callback(lambda _: self.report.done(number))
            future.add_errback(lambda error: self.report.failed(number, reason(error)))

    def finish(self) -> None:
        with held:
            self._producer.flush()
            self.report.complete()
            self._producer.close()


@click.command("produce", cls=Action)
@click.argument("topic", metavar="TOPIC", shell_complete=complete_topics)
@click.argument(
    "files", nargs=-1, metavar="[FILE…]", type=click.Path(path_type=Path, dir_okay=False)
)
@click.option("-K", "key_delimiter", metavar="DELIMITER", help="what stands between key and value")
@click.option("-k", "--key", metavar="TEXT", help="the key of records that have none of their own")
@click.option("-D", "delimiter", metavar="DELIMITER", default="\\n", help="what ends a record")
@click.option("-H", "--header", multiple=True, metavar="NAME=VALUE", help="a header of all records")
@click.option("-Z", "empty_is_null", is_flag=True, help="an empty key or value is null")
@click.option("--delay", metavar="DURATION", help="deliver so much later: 90s, 10m, 1h30m, 2d")
@click.option("--at", metavar="TIME", help="deliver then: 2027-01-01T09:00Z, or ms since 1970")
@click.option("--delay-id", metavar="ID", help="a name, to cancel or move it until it is delivered")
@click.option("--acks", type=click.Choice([*ACKS]), default="all", help="how durable it must be")
@click.option(
    "-z",
    "compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    help="how batches are compressed",
)
@click.option("--json", "as_json", is_flag=True, help="each line is a JSON object")
@click.option("-q", "--quiet", is_flag=True, help="do not say how many were written")
@bootstrap_option
def produce(
    topic: str,
    files: tuple[Path, ...],
    as_json: bool,
    acks: str,
    compression: str,
    quiet: bool,
    bootstrap: str,
    **how: Any,
) -> int:
    """Write lines of stdin, or whole files, as records."""
    lines, delimiter = _lines(**how)
    if as_json and (files or lines.key_delimiter is not None):
        raise click.UsageError("--json is for lines of stdin, which have their own keys")
    with clear_errors(bootstrap):
        from kafka.errors import KafkaTimeoutError

        try:
            sending = Sending(bootstrap, topic, acks, compression)
            sending.find_topic()
        except KafkaTimeoutError:
            raise _why_not(bootstrap, topic) from None
        except ValueError as error:
            raise click.UsageError(f"TOPIC: {error}") from None
        broken = ""
        stopped: KeyboardInterrupt | None = None
        try:
            try:
                for record in _records(files, lines, delimiter, as_json):
                    sending.send(record)
            except ValueError as error:
                broken = str(error)
            finally:
                sending.finish()
        except KeyboardInterrupt as signal:
            stopped = signal
            sending.report.complete(0.0)
    code = _tell(sending.report, quiet, broken)
    if stopped is not None:
        raise stopped
    return code


def _why_not(bootstrap: str, topic: str) -> Exception:
    with admin_client(bootstrap) as client:
        if client.describe_topics([topic])[0]["error_code"]:
            return Refused(
                f"there is no topic {plain(topic)!r}, and the broker makes none by itself; "
                f"kumquat topics create {plain(topic)}"
            )
    return Unreachable(f"the broker at {bootstrap} does not answer in time")


def _lines(
    key_delimiter: str | None,
    key: str | None,
    delimiter: str,
    header: tuple[str, ...],
    empty_is_null: bool,
    **asked: str | None,
) -> tuple[Lines, bytes]:
    """How records are made of lines, and what ends a line."""
    try:
        ends = unescape(delimiter)
        between = None if key_delimiter is None else unescape(key_delimiter)
    except ValueError as error:
        raise click.UsageError(f"delimiter: {error}") from None
    if not ends or between == b"":
        raise click.UsageError("a delimiter must not be empty")
    headers: Headers = []
    for pair in header:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"-H {pair}: expected NAME=VALUE")
        headers.append((name, os.fsencode(value)))
    if asked["delay"] is not None and asked["at"] is not None:
        raise click.UsageError("give either --delay or --at")
    headers += [
        (asking.decode(), text.encode())
        for option, asking in ASKING.items()
        if (text := asked[option]) is not None
    ]
    fixed = None if key is None else os.fsencode(key)
    return Lines(between, fixed, headers, empty_is_null), ends


def _records(
    files: tuple[Path, ...], lines: Lines, delimiter: bytes, as_json: bool
) -> Iterator[Sent]:
    """Raises ValueError for a line or a file that cannot be read; what came before is sent."""
    for file in files:
        try:
            yield lines.record(file.read_bytes())
        except OSError as error:
            raise ValueError(f"cannot read {file}: {error.strerror or error}") from None
    if files:
        return
    for number, line in enumerate(_pieces(delimiter), 1):
        if as_json and line.strip():
            try:
                yield lines.json_record(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
        elif not as_json:
            yield lines.record(line)


def _pieces(delimiter: bytes) -> Iterator[bytes]:
    """Records of stdin, as soon as each is there."""
    cutter = Cutter(delimiter)
    stdin: Any = sys.stdin.buffer  # its read1 gives what is there; read would wait for all of it
    while data := stdin.read1(READ_BYTES):
        yield from cutter.feed(data)
    yield from cutter.end()


def _tell(report: Report, quiet: bool, broken: str) -> int:
    reasons = list(report.refused.items())
    for why, numbers in reasons[:MOST_REASONS]:
        which = f"record {numbers[0]:,}"
        if len(numbers) > 1:
            which = f"{len(numbers):,} records from number {numbers[0]:,} on"
        print(plain(f"kumquat: {which} refused: {why}"), file=sys.stderr)
    if len(reasons) > MOST_REASONS:
        rest = sum(len(numbers) for _, numbers in reasons[MOST_REASONS:])
        print(f"kumquat: {rest:,} more refused, for other reasons", file=sys.stderr)
    if not quiet or report.refusals or broken:
        many = "record" if report.written == 1 else "records"
        print(f"{report.written:,} {many} written", file=sys.stderr)
    if broken:
        raise Refused(f"stopped: {plain(broken)}")
    return REFUSED if report.refusals else DONE
