"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

The structs of the incremental form have Kafka's names with `Incremental` in front where the
older form uses the same name.
"""

from kumquat.gateway.wire.declare import array, bool_, int8, int16, int32, string
from kumquat.gateway.wire.message import message

DescribeConfigsRequest = message("DescribeConfigsRequest", key=32, versions=(1, 4), flexible=4)(
    "resources"
    / array(
        "DescribeConfigsResource",
        "resource_type" / int8,
        "resource_name" / string,
        "configuration_keys" / array(string).nullable(),
    ),
    "include_synonyms" / bool_,
    "include_documentation" / bool_.since(3),
)
(DescribeConfigsResource,) = DescribeConfigsRequest.structs

DescribeConfigsResponse = message("DescribeConfigsResponse", key=32, versions=(1, 4), flexible=4)(
    "throttle_time_ms" / int32,
    "results"
    / array(
        "DescribeConfigsResult",
        "error_code" / int16,
        "error_message" / string.nullable(),
        "resource_type" / int8,
        "resource_name" / string,
        "configs"
        / array(
            "DescribeConfigsResourceResult",
            "name" / string,
            "value" / string.nullable(),
            "read_only" / bool_,
            "config_source" / int8.default(-1),
            "is_sensitive" / bool_,
            "synonyms"
            / array(
                "DescribeConfigsSynonym",
                "name" / string,
                "value" / string.nullable(),
                "source" / int8,
            ),
            "config_type" / int8.since(3).ignorable(),
            "documentation" / string.since(3).nullable().ignorable(),
        ),
    ),
)
DescribeConfigsResult, DescribeConfigsResourceResult, DescribeConfigsSynonym = (
    DescribeConfigsResponse.structs
)

AlterConfigsRequest = message("AlterConfigsRequest", key=33, versions=(0, 2), flexible=2)(
    "resources"
    / array(
        "AlterConfigsResource",
        "resource_type" / int8,
        "resource_name" / string,
        "configs"
        / array(
            "AlterableConfig",
            "name" / string,
            "value" / string.nullable(),
        ),
    ),
    "validate_only" / bool_,
)
AlterConfigsResource, AlterableConfig = AlterConfigsRequest.structs

AlterConfigsResponse = message("AlterConfigsResponse", key=33, versions=(0, 2), flexible=2)(
    "throttle_time_ms" / int32,
    "responses"
    / array(
        "AlterConfigsResourceResponse",
        "error_code" / int16,
        "error_message" / string.nullable(),
        "resource_type" / int8,
        "resource_name" / string,
    ),
)
(AlterConfigsResourceResponse,) = AlterConfigsResponse.structs

IncrementalAlterConfigsRequest = message(
    "IncrementalAlterConfigsRequest", key=44, versions=(0, 1), flexible=1
)(
    "resources"
    / array(
        "IncrementalAlterConfigsResource",
        "resource_type" / int8,
        "resource_name" / string,
        "configs"
        / array(
            "IncrementalAlterableConfig",
            "name" / string,
            "config_operation" / int8,
            "value" / string.nullable(),
        ),
    ),
    "validate_only" / bool_,
)
IncrementalAlterConfigsResource, IncrementalAlterableConfig = IncrementalAlterConfigsRequest.structs

IncrementalAlterConfigsResponse = message(
    "IncrementalAlterConfigsResponse", key=44, versions=(0, 1), flexible=1
)(
    "throttle_time_ms" / int32,
    "responses"
    / array(
        "IncrementalAlterConfigsResourceResponse",
        "error_code" / int16,
        "error_message" / string.nullable(),
        "resource_type" / int8,
        "resource_name" / string,
    ),
)
(IncrementalAlterConfigsResourceResponse,) = IncrementalAlterConfigsResponse.structs
