"""DescribeLogDirs: how much each subject has on disk."""

from kumquat.gateway.wire.declare import array, bool_, int16, int32, int64, string
from kumquat.gateway.wire.message import message

DescribeLogDirsRequest = message("DescribeLogDirsRequest", key=35, versions=(1, 4), flexible=2)(
    "topics"
    / array(
        "DescribableLogDirTopic",
        "topic" / string,
        "partitions" / array(int32),
    ).nullable(),
)
(DescribableLogDirTopic,) = DescribeLogDirsRequest.structs

DescribeLogDirsResponse = message("DescribeLogDirsResponse", key=35, versions=(1, 4), flexible=2)(
    "throttle_time_ms" / int32,
    "error_code" / int16.since(3).ignorable(),
    "results"
    / array(
        "DescribeLogDirsResult",
        "error_code" / int16,
        "log_dir" / string,
        "topics"
        / array(
            "DescribeLogDirsTopic",
            "name" / string,
            "partitions"
            / array(
                "DescribeLogDirsPartition",
                "partition_index" / int32,
                "partition_size" / int64,
                "offset_lag" / int64,
                "is_future_key" / bool_,
            ),
        ),
        "total_bytes" / int64.since(4).default(-1).ignorable(),
        "usable_bytes" / int64.since(4).default(-1).ignorable(),
    ),
)
DescribeLogDirsResult, DescribeLogDirsTopic, DescribeLogDirsPartition = (
    DescribeLogDirsResponse.structs
)
