# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: list[int]
    def __init__(
        self,
        topic_name: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[DescribeShareGroupOffsetsRequestTopic] | Encoded | None = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsRequest(Message):
    groups: list[DescribeShareGroupOffsetsRequestGroup]
    def __init__(
        self,
        groups: list[DescribeShareGroupOffsetsRequestGroup] | Encoded = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int
    error_code: int
    error_message: str | None
    def __init__(
        self,
        partition_index: int = ...,
        start_offset: int = ...,
        leader_epoch: int = ...,
        lag: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: bytes
    partitions: list[DescribeShareGroupOffsetsResponsePartition]
    def __init__(
        self,
        topic_name: str = ...,
        topic_id: bytes = ...,
        partitions: list[DescribeShareGroupOffsetsResponsePartition] | Encoded = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: int
    error_message: str | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[DescribeShareGroupOffsetsResponseTopic] | Encoded = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: int
    groups: list[DescribeShareGroupOffsetsResponseGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: list[DescribeShareGroupOffsetsResponseGroup] | Encoded = ...,
    ) -> None: ...

class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int
    start_offset: int
    def __init__(
        self,
        partition_index: int = ...,
        start_offset: int = ...,
    ) -> None: ...

class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]
    def __init__(
        self,
        topic_name: str = ...,
        partitions: list[AlterShareGroupOffsetsRequestPartition] | Encoded = ...,
    ) -> None: ...

class AlterShareGroupOffsetsRequest(Message):
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        topics: list[AlterShareGroupOffsetsRequestTopic] | Encoded = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int
    error_code: int
    error_message: str | None
    def __init__(
        self,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: bytes
    partitions: list[AlterShareGroupOffsetsResponsePartition]
    def __init__(
        self,
        topic_name: str = ...,
        topic_id: bytes = ...,
        partitions: list[AlterShareGroupOffsetsResponsePartition] | Encoded = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[AlterShareGroupOffsetsResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[AlterShareGroupOffsetsResponseTopic] | Encoded = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str
    def __init__(
        self,
        topic_name: str = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsRequest(Message):
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        topics: list[DeleteShareGroupOffsetsRequestTopic] | Encoded = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    def __init__(
        self,
        topic_name: str = ...,
        topic_id: bytes = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[DeleteShareGroupOffsetsResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[DeleteShareGroupOffsetsResponseTopic] | Encoded = ...,
    ) -> None: ...
