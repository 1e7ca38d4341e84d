r"""`kumquat consume TOPIC`: records to stdout. The habits are kcat's.

    kumquat consume orders -o -10 -e                   the last ten, then end
    kumquat consume orders -o @2h -e -f '%T %k %s\n'   the last two hours, in a format: format.py
    kumquat consume orders -o beginning -J | jq .value
    kumquat consume orders -g billing -c 100           as a member of a group, a hundred of them
    kumquat consume orders --key customer-17 -e

Without a group it reads all, from `-o` (the beginning, unless it says otherwise), and changes nothing. With
a group it is a member like any other: it begins where the group stands, and what was written to stdout is
committed when it ends, by a signal too, and every COMMIT_SECONDS: after a crash the last records may come
once more, none is lost. In a group that shares, the offsets are the member's own.

It goes on until `-c` records are written, or, with `-e`, until there is no more; else until Ctrl-C (exit
code 130), SIGTERM (143), or until its reader has seen enough (0). At a terminal characters that control it
are replaced; in a pipe bytes stay as they are.
"""

from __future__ import annotations

import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from kumquat.core.clock import wall_clock_ms
from kumquat.gateway.cli.bootstrap import bootstrap_option, clear_errors, settings
from kumquat.gateway.cli.command import DONE, Action, Refused
from kumquat.gateway.cli.names import complete_groups, complete_topics
from kumquat.gateway.cli.records.format import ENCODINGS, Format, as_json, as_text, visible
from kumquat.gateway.cli.records.start import Start, read_start
from kumquat.gateway.cli.signals import held
from kumquat.gateway.cli.tables import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLL_MS = 200
COMMIT_SECONDS = 5.0
QUIET_SECONDS = 5.0
"""With `-e`: after so long without a record it is looked whether the broker is still there."""
DEFAULT_FORMAT = "%s\\n"


@click.command("consume", cls=Action)
@click.argument("topic", metavar="TOPIC", shell_complete=complete_topics)
@click.option(
    "-o",
    "--offset",
    metavar="WHERE",
    help="beginning, end, an offset, -N (the last N), @TIME (a time, or how long ago: @2h)",
)
@click.option("-c", "--count", metavar="N", type=click.IntRange(1), help="end after so many")
@click.option("-e", "--exit", "exit_at_end", is_flag=True, help="end where the topic ends")
@click.option(
    "-g", "--group", metavar="NAME", help="as a member of a group", shell_complete=complete_groups
)
@click.option(
    "-f", "--format", "shape", metavar="FORMAT", help="%s %k %o %t %T %h %S %K %p \\n \\t"
)
@click.option("-J", "--json", "in_json", is_flag=True, help="a JSON object a line")
@click.option("--as", "encoding", type=click.Choice([*ENCODINGS]), default="text", help="values as")
@click.option("-Z", "show_null", is_flag=True, help="show null as NULL")
@click.option("--key", metavar="TEXT", help="only those with this key")
@bootstrap_option
def consume(
    topic: str,
    offset: str | None,
    count: int | None,
    exit_at_end: bool,
    group: str | None,
    key: str | None,
    bootstrap: str,
    **how: Any,
) -> int:
    """Read records and write them to stdout."""
    start = _start(offset, group)
    shape = _shape(**how)
    wanted = None if key is None else os.fsencode(key)
    with clear_errors(bootstrap):
        reading = Reading(bootstrap, topic, group, start)
        try:
            _copy(reading, shape, count, exit_at_end, wanted)
        finally:
            reading.close()
    return DONE


def _start(offset: str | None, group: str | None) -> Start:
    try:
        start = read_start(offset or "beginning", wall_clock_ms())
    except ValueError as error:
        raise click.UsageError(f"-o: {error}") from None
    if group is not None and not start.word:
        raise click.UsageError(
            "-o: a group begins where it stands, and -o says only where a new one begins: beginning or "
            "end; kumquat groups reset moves it"
        )
    return start


def _shape(
    shape: str | None, in_json: bool, encoding: str, show_null: bool
) -> Callable[[Any], bytes]:
    if in_json:
        if shape is not None:
            raise click.UsageError("give either -f or -J")
        return as_json
    encode = ENCODINGS[encoding]
    if encode is as_text and sys.stdout.isatty():
        encode = visible
    try:
        compiled = Format(shape or DEFAULT_FORMAT, encode, b"NULL" if show_null else b"")
    except ValueError as error:
        raise click.UsageError(f"-f: {error}") from None
    return compiled.line


class Reading:
    """A consumer of kafka-python on one topic, alone or in a group."""

    def __init__(self, bootstrap: str, topic: str, group: str | None, start: Start) -> None:
        from kafka import KafkaConsumer, TopicPartition

        self._bootstrap = bootstrap
        self._place = TopicPartition(topic, 0)
        self._group = group
        self._done: int | None = None
        self._committed = monotonic()
        self._consumer = KafkaConsumer(
            **settings(bootstrap),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset=start.word or "earliest",
            allow_auto_create_topics=False,
        )
        try:
            if not self._consumer.partitions_for_topic(topic):
                raise Refused(f"there is no topic {plain(topic)!r}; kumquat topics list shows them")
            if group is not None:
                self._consumer.subscribe([topic])
            else:
                self._consumer.assign([self._place])
                self._consumer.seek(self._place, self._begin(start))
        except BaseException:
            self._consumer.close(autocommit=False)
            raise

    def _begin(self, start: Start) -> int:
        places = [self._place]
        earliest = self._consumer.beginning_offsets(places)[self._place]
        latest = self._consumer.end_offsets(places)[self._place]
        place = start.place(earliest, latest, self._at_time)
        if place > latest:
            raise Refused(
                f"{plain(self._place.topic)} ends at {latest:,}; there is no {place:,} yet"
            )
        return place

    def _at_time(self, time: int) -> int | None:
        found = self._consumer.offsets_for_times({self._place: time})[self._place]
        return None if found is None else int(found.offset)

    def records(self, exit_at_end: bool) -> Iterator[Any]:
        """Those that are there, then those that come; `None` when there is nothing for the moment. Raises
        Unreachable if there is to be an end, and nobody there to reach it with."""
        heard = monotonic()
        while True:
            with held:
                polled = self._consumer.poll(POLL_MS)
                ended = exit_at_end and self._at_end()
            for found in polled.values():
                yield from found
                heard = monotonic()
            if ended:
                return
            if exit_at_end and monotonic() - heard > QUIET_SECONDS:
                settings(self._bootstrap)
                heard = monotonic()
            yield None

    def _at_end(self) -> bool:
        if self._place not in self._consumer.assignment():
            return False
        end = self._consumer.highwater(self._place)
        at = self._consumer.position(self._place, timeout_ms=0)
        return end is not None and at is not None and at >= end

    def written(self, record: Any) -> None:
        self._done = record.offset + 1

    def commit(self, now: bool = False) -> None:
        """Commit what is written, if it is time to."""
        late = monotonic() - self._committed >= COMMIT_SECONDS
        if self._group is None or self._done is None or not (now or late):
            return
        from kafka import OffsetAndMetadata

        with held:
            self._consumer.commit({self._place: OffsetAndMetadata(self._done, "", -1)})
        self._done = None
        self._committed = monotonic()

    def close(self) -> None:
        from kafka.errors import KafkaError

        try:
            self.commit(now=True)
        except KafkaError as error:
            raise Refused(f"what was written could not be committed: {error}") from None
        finally:
            with held:
                self._consumer.close(autocommit=False)


def _copy(
    reading: Reading,
    shape: Callable[[Any], bytes],
    count: int | None,
    exit_at_end: bool,
    key: bytes | None,
) -> None:
    out = sys.stdout.buffer
    written = 0
    last = None
    try:
        for record in reading.records(exit_at_end):
            if record is not None:
                if key is None or record.key == key:
                    out.write(shape(record))
                    written += 1
                last = record
                if written != count:
                    continue
            out.flush()
            if last is not None:
                reading.written(last)
                last = None
            reading.commit()
            if count is not None and written >= count:
                return
    finally:  # after a signal too: what was written is committed
        out.flush()
        if last is not None:
            reading.written(last)
