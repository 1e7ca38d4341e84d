"""ApiVersions: what the broker speaks.

The one API that a client sends before it knows anything. Its response header is never flexible and
version 0 answers every version that is not known: see frame.py.
"""

from kumquat.gateway.wire.declare import array, bool_, int16, int32, int64, string
from kumquat.gateway.wire.message import message

ApiVersionsRequest = message("ApiVersionsRequest", key=18, versions=(0, 4), flexible=3)(
    "client_software_name" / string.since(3).ignorable(),
    "client_software_version" / string.since(3).ignorable(),
)

ApiVersionsResponse = message("ApiVersionsResponse", key=18, versions=(0, 4), flexible=3)(
    "error_code" / int16,
    "api_keys"
    / array(
        "ApiVersion",
        "api_key" / int16,
        "min_version" / int16,
        "max_version" / int16,
    ),
    "throttle_time_ms" / int32.since(1).ignorable(),
    "supported_features"
    / array(
        "SupportedFeatureKey",
        "name" / string,
        "min_version" / int16,
        "max_version" / int16,
    )
    .ignorable()
    .tagged(0, since=3),
    "finalized_features_epoch" / int64.default(-1).ignorable().tagged(1, since=3),
    "finalized_features"
    / array(
        "FinalizedFeatureKey",
        "name" / string,
        "max_version_level" / int16,
        "min_version_level" / int16,
    )
    .ignorable()
    .tagged(2, since=3),
    "zk_migration_ready" / bool_.ignorable().tagged(3, since=3),
)
ApiVersion, SupportedFeatureKey, FinalizedFeatureKey = ApiVersionsResponse.structs
