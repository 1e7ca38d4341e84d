"""FindCoordinator: which broker looks after a group or a transaction."""

from kumquat.gateway.wire.declare import array, int8, int16, int32, string
from kumquat.gateway.wire.message import message

FindCoordinatorRequest = message("FindCoordinatorRequest", key=10, versions=(0, 6), flexible=3)(
    "key" / string.until(3),
    "key_type" / int8.since(1),
    "coordinator_keys" / array(string).since(4),
)

FindCoordinatorResponse = message("FindCoordinatorResponse", key=10, versions=(0, 6), flexible=3)(
    "throttle_time_ms" / int32.since(1).ignorable(),
    "error_code" / int16.until(3),
    "error_message" / string.since(1).until(3).nullable().ignorable(),
    "node_id" / int32.until(3),
    "host" / string.until(3),
    "port" / int32.until(3),
    "coordinators"
    / array(
        "Coordinator",
        "key" / string,
        "node_id" / int32,
        "host" / string,
        "port" / int32,
        "error_code" / int16,
        "error_message" / string.nullable(),
    ).since(4),
)
(Coordinator,) = FindCoordinatorResponse.structs
