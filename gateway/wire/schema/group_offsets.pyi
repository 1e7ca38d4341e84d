# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class OffsetCommitRequestPartition(Struct):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None
    def __init__(
        self,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        committed_metadata: str | None = ...,
    ) -> None: ...

class OffsetCommitRequestTopic(Struct):
    name: str
    partitions: list[OffsetCommitRequestPartition]
    def __init__(
        self,
        name: str = ...,
        partitions: list[OffsetCommitRequestPartition] | Encoded = ...,
    ) -> None: ...

class OffsetCommitRequest(Message):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: list[OffsetCommitRequestTopic] | Encoded = ...,
    ) -> None: ...

class OffsetCommitResponsePartition(Struct):
    partition_index: int
    error_code: int
    def __init__(
        self,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetCommitResponseTopic(Struct):
    name: str
    partitions: list[OffsetCommitResponsePartition]
    def __init__(
        self,
        name: str = ...,
        partitions: list[OffsetCommitResponsePartition] | Encoded = ...,
    ) -> None: ...

class OffsetCommitResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[OffsetCommitResponseTopic] | Encoded = ...,
    ) -> None: ...

class OffsetFetchRequestTopics(Struct):
    name: str
    partition_indexes: list[int]
    def __init__(
        self,
        name: str = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class OffsetFetchRequestGroup(Struct):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: list[OffsetFetchRequestTopics] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        topics: list[OffsetFetchRequestTopics] | Encoded | None = ...,
    ) -> None: ...

class OffsetFetchRequestTopic(Struct):
    name: str
    partition_indexes: list[int]
    def __init__(
        self,
        name: str = ...,
        partition_indexes: list[int] = ...,
    ) -> None: ...

class OffsetFetchRequest(Message):
    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        group_id: str = ...,
        topics: list[OffsetFetchRequestTopic] | Encoded | None = ...,
        groups: list[OffsetFetchRequestGroup] | Encoded = ...,
        require_stable: bool = ...,
    ) -> None: ...

class OffsetFetchResponsePartitions(Struct):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
    def __init__(
        self,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        metadata: str | None = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponseTopics(Struct):
    name: str
    partitions: list[OffsetFetchResponsePartitions]
    def __init__(
        self,
        name: str = ...,
        partitions: list[OffsetFetchResponsePartitions] | Encoded = ...,
    ) -> None: ...

class OffsetFetchResponseGroup(Struct):
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: int
    def __init__(
        self,
        group_id: str = ...,
        topics: list[OffsetFetchResponseTopics] | Encoded = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponsePartition(Struct):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
    def __init__(
        self,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        metadata: str | None = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponseTopic(Struct):
    name: str
    partitions: list[OffsetFetchResponsePartition]
    def __init__(
        self,
        name: str = ...,
        partitions: list[OffsetFetchResponsePartition] | Encoded = ...,
    ) -> None: ...

class OffsetFetchResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[OffsetFetchResponseTopic] | Encoded = ...,
        error_code: int = ...,
        groups: list[OffsetFetchResponseGroup] | Encoded = ...,
    ) -> None: ...

class OffsetDeleteRequestPartition(Struct):
    partition_index: int
    def __init__(
        self,
        partition_index: int = ...,
    ) -> None: ...

class OffsetDeleteRequestTopic(Struct):
    name: str
    partitions: list[OffsetDeleteRequestPartition]
    def __init__(
        self,
        name: str = ...,
        partitions: list[OffsetDeleteRequestPartition] | Encoded = ...,
    ) -> None: ...

class OffsetDeleteRequest(Message):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]
    def __init__(
        self,
        group_id: str = ...,
        topics: list[OffsetDeleteRequestTopic] | Encoded = ...,
    ) -> None: ...

class OffsetDeleteResponsePartition(Struct):
    partition_index: int
    error_code: int
    def __init__(
        self,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetDeleteResponseTopic(Struct):
    name: str
    partitions: list[OffsetDeleteResponsePartition]
    def __init__(
        self,
        name: str = ...,
        partitions: list[OffsetDeleteResponsePartition] | Encoded = ...,
    ) -> None: ...

class OffsetDeleteResponse(Message):
    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponseTopic]
    def __init__(
        self,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: list[OffsetDeleteResponseTopic] | Encoded = ...,
    ) -> None: ...
