"""ApiVersions: which APIs this broker serves, and in which versions. Key 18, versions 0 to 4.

What each version added:
  v1  throttle time (always 0)
  v2  nothing a client sees
  v3  flexible; the client's name and version, which are checked; features (none are listed: the only one
      that clients read, transaction.version, would promise transactions)
  v4  features may have a minimum of 0
The response header is that of version 0 in all versions: see wire/frame.py.

A version that is not served (Java 4.4 begins with 5) is answered in the layout of version 0, with
UNSUPPORTED_VERSION and the range of this API alone, from which a client chooses again (KIP-511).

What is advertised is what was registered (net/dispatch.py). Produce is the exception: it is advertised from
version 0, though 0 to 2 are not served, because older librdkafka turns compression off otherwise
(KAFKA-18659).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import Refused, dispatch, handles
from kumquat.gateway.wire import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Api, Session

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


def _range(api: Api) -> ApiVersion:
    return ApiVersion(
        api_key=api.key, min_version=api.advertised.start, max_version=api.advertised.stop - 1
    )


def _unknown_version() -> ApiVersionsResponse:
    own = dispatch.apis[ApiVersionsRequest.api_key]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(own)])


@handles(
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    versions=range(5),
    fallback=_unknown_version,
)
def api_versions(session: Session, request: ApiVersionsRequest) -> ApiVersionsResponse:
    for value in (request.client_software_name, request.client_software_version):
        # Versions before 3 have neither, which decodes as empty.
        if value and not _SOFTWARE.fullmatch(value):
            raise Refused(ErrorCode.INVALID_REQUEST, f"{value!r} is no name of client software")
    session.software = request.client_software_name
    session.software_version = request.client_software_version
    session.asked = session.version
    return ApiVersionsResponse(api_keys=[_range(api) for _, api in sorted(dispatch.apis.items())])
