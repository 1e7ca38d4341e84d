# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class DescribableLogDirTopic(Struct):
    topic: str
    partitions: list[int]
    def __init__(
        self,
        topic: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class DescribeLogDirsRequest(Message):
    topics: list[DescribableLogDirTopic] | None
    def __init__(
        self,
        topics: list[DescribableLogDirTopic] | Encoded | None = ...,
    ) -> None: ...

class DescribeLogDirsPartition(Struct):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
    def __init__(
        self,
        partition_index: int = ...,
        partition_size: int = ...,
        offset_lag: int = ...,
        is_future_key: bool = ...,
    ) -> None: ...

class DescribeLogDirsTopic(Struct):
    name: str
    partitions: list[DescribeLogDirsPartition]
    def __init__(
        self,
        name: str = ...,
        partitions: list[DescribeLogDirsPartition] | Encoded = ...,
    ) -> None: ...

class DescribeLogDirsResult(Struct):
    error_code: int
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: int
    usable_bytes: int
    def __init__(
        self,
        error_code: int = ...,
        log_dir: str = ...,
        topics: list[DescribeLogDirsTopic] | Encoded = ...,
        total_bytes: int = ...,
        usable_bytes: int = ...,
    ) -> None: ...

class DescribeLogDirsResponse(Message):
    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results: list[DescribeLogDirsResult] | Encoded = ...,
    ) -> None: ...
