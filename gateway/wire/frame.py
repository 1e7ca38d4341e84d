"""Frames and headers: what stands around a message body.

A frame is a 4-byte size and that many bytes: a header, then the body. Three rules are special, and
live here rather than in the schemas:

- a request header of a flexible version (v2) ends with a section of tagged fields, but its
  client id stays a plain nullable string, so that it can be read before the version is known;
- a response header of a flexible version (v1) only adds a section of tagged fields, always empty;
- answers to ApiVersions have the old header (v0) in all versions, because the client that asks does
  not know yet what the broker speaks.

The key, version and correlation id of any request can be read. For an unknown API
the end of the header is a guess (v1), good enough to answer or to log.
"""

from __future__ import annotations

import struct

from kumquat.gateway.wire.decoder import MAX_HEADER_TAGS, skip_tags
from kumquat.gateway.wire.errors import WireError
from kumquat.gateway.wire.message import REQUESTS, RESPONSES
from kumquat.gateway.wire.varint import read_uvarint

API_VERSIONS_KEY = 18
NEVER = 0x7FFF

_REQUEST_START = struct.Struct(">hhih")
_KEY_VERSION_CORRELATION = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
_CORRELATION_NO_TAGS = struct.Struct(">ix")

# API key to the first version with a flexible header. Importing this module imported its package
# first, and with it every schema, so both tables are complete.
_REQUEST_FLEXIBLE = {key: message.flexible_from for key, message in REQUESTS.items()}
_RESPONSE_FLEXIBLE = {key: message.flexible_from for key, message in RESPONSES.items()}
_RESPONSE_FLEXIBLE[API_VERSIONS_KEY] = NEVER


def read_request_header(view: memoryview, pos: int = 0) -> tuple[int, int, int, str | None, int]:
    """(api key, api version, correlation id, client id, position of the body)."""
    try:
        key, version, correlation_id, size = _REQUEST_START.unpack_from(view, pos)
    except struct.error as failure:
        return _header_without_client_id(view, pos, failure)
    pos += 10
    client_id = None
    if size != -1:
        stop = pos + size
        if not pos <= stop <= len(view):
            raise WireError(f"client id of {size} bytes", message="request header", position=pos)
        try:
            client_id = view[pos:stop].tobytes().decode()
        except UnicodeDecodeError as failure:
            raise WireError(str(failure), message="request header", position=pos) from failure
        pos = stop
    if version >= _REQUEST_FLEXIBLE.get(key, NEVER):
        # No client sends tags here, so the empty section needs no call.
        pos = pos + 1 if pos < len(view) and not view[pos] else _skip_header_tags(view, pos)
    return key, version, correlation_id, client_id, pos


def _header_without_client_id(
    view: memoryview, pos: int, failure: struct.error
) -> tuple[int, int, int, str | None, int]:
    """Header v0, which only an API that is not served could have."""
    if len(view) - pos < _KEY_VERSION_CORRELATION.size:
        raise WireError(str(failure), message="request header", position=pos) from failure
    key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(view, pos)
    if key in REQUESTS:
        raise WireError("no client id", message="request header", position=pos + 8) from failure
    return key, version, correlation_id, None, pos + 8


def _skip_header_tags(view: memoryview, pos: int) -> int:
    try:
        count, after = read_uvarint(view, pos)
        if count > MAX_HEADER_TAGS:
            raise WireError(f"{count} tagged fields, more than {MAX_HEADER_TAGS}")
        return skip_tags(view, after, count, len(view))
    except IndexError as failure:
        raise WireError("no tag section", message="request header", position=pos) from failure
    except WireError as failure:
        raise WireError(failure.reason, message="request header", position=pos) from failure


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header alone, without the size in front."""
    if version >= _RESPONSE_FLEXIBLE.get(api_key, NEVER):
        return _CORRELATION_NO_TAGS.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)
