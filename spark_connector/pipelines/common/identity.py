"""Which message is this? What two copies of one message have in common.

By `id`: the header `message-id` (or another one that is named); a message without it is known by
its key; one without a key by its place. By `header` a message without the header is known by its
place alone, by `key` the header is not looked at. The place is subject and offset, of the original
where the message is a copy that names its origin (copies/copier.py). By `offset` only the offset counts:
for a subject and its own archive, where each message has its offset on both sides.

Many messages may have the same key, but not the same id, place or offset. So an identity begins with a
letter: `i` for an id, `k` for a key, `p` for a place, `o` for an offset; the rest is the bytes as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.copies.copier import ORIGIN

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column

ID_HEADER = "message-id"
WAYS = ("id", "header", "key")
OFFSET = "offset"
_KINDS = {"i": "id", "k": "key", "p": "place", "o": "offset"}


def identity(by: str = "id", id_header: str = ID_HEADER) -> Column:
    """Binary; of rows as Spark's Kafka source has them."""
    if by == OFFSET:
        return _marked("o", sql.col("offset").cast("string").cast("binary"))
    check_way(by)
    origin = sql.concat_ws("/", "topic", sql.col("offset").cast("string"))
    place = sql.coalesce(header_bytes(ORIGIN), origin.cast("binary"))
    known = [_marked("p", place)]
    if by in ("id", "key"):
        known.insert(0, _marked("k", sql.col("key")))
    if by in ("id", "header"):
        known.insert(0, _marked("i", header_bytes(id_header)))
    return sql.coalesce(*known)


def check_way(by: str) -> None:
    """Also before there is a Spark."""
    if by not in WAYS:
        raise ConnectorError(f"a message is known by {', '.join(WAYS)}, not by {by!r}")


def is_unique(column: Column) -> Column:
    """Whether an identity may come only once: all but keys."""
    return sql.substring(column, 1, 1) != sql.lit(b"k")


def identity_text(value: bytes) -> str:
    """id order-17; key 0xff00; place orders/12."""
    rest = bytes(value[1:])
    try:
        text = rest.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable():
        text = ""
    return f"{_KINDS[chr(value[0])]} {text or '0x' + rest.hex()}"


def header_bytes(name: str) -> Column:
    """The last header of that name, or null."""
    same = sql.filter("headers", lambda each: each["key"] == name)
    return sql.try_element_at(same, sql.lit(-1))["value"]


def add_identity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        choices=(*WAYS, OFFSET),
        help="what makes two messages the same: the id header, else the key (id); only the header; "
        "only the key; the offset. A message with no id or key is known by its place. Unless said: "
        "offset for a subject and its archive, else id",
    )
    parser.add_argument(
        "--id-header", default=ID_HEADER, metavar="NAME", help=f"the id's header ({ID_HEADER})"
    )


def _marked(kind: str, value: Column) -> Column:
    return sql.concat(sql.lit(kind.encode()), value)
