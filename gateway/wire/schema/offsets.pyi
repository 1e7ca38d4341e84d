# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class ListOffsetsPartition(Struct):
    partition_index: int
    current_leader_epoch: int
    timestamp: int
    def __init__(
        self,
        partition_index: int = ...,
        current_leader_epoch: int = ...,
        timestamp: int = ...,
    ) -> None: ...

class ListOffsetsTopic(Struct):
    name: str
    partitions: list[ListOffsetsPartition]
    def __init__(
        self,
        name: str = ...,
        partitions: list[ListOffsetsPartition] | Encoded = ...,
    ) -> None: ...

class ListOffsetsRequest(Message):
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: list[ListOffsetsTopic] | Encoded = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class ListOffsetsPartitionResponse(Struct):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int
    def __init__(
        self,
        partition_index: int = ...,
        error_code: int = ...,
        timestamp: int = ...,
        offset: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class ListOffsetsTopicResponse(Struct):
    name: str
    partitions: list[ListOffsetsPartitionResponse]
    def __init__(
        self,
        name: str = ...,
        partitions: list[ListOffsetsPartitionResponse] | Encoded = ...,
    ) -> None: ...

class ListOffsetsResponse(Message):
    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[ListOffsetsTopicResponse] | Encoded = ...,
    ) -> None: ...

class OffsetForLeaderPartition(Struct):
    partition: int
    current_leader_epoch: int
    leader_epoch: int
    def __init__(
        self,
        partition: int = ...,
        current_leader_epoch: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class OffsetForLeaderTopic(Struct):
    topic: str
    partitions: list[OffsetForLeaderPartition]
    def __init__(
        self,
        topic: str = ...,
        partitions: list[OffsetForLeaderPartition] | Encoded = ...,
    ) -> None: ...

class OffsetForLeaderEpochRequest(Message):
    replica_id: int
    topics: list[OffsetForLeaderTopic]
    def __init__(
        self,
        replica_id: int = ...,
        topics: list[OffsetForLeaderTopic] | Encoded = ...,
    ) -> None: ...

class EpochEndOffset(Struct):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int
    def __init__(
        self,
        error_code: int = ...,
        partition: int = ...,
        leader_epoch: int = ...,
        end_offset: int = ...,
    ) -> None: ...

class OffsetForLeaderTopicResult(Struct):
    topic: str
    partitions: list[EpochEndOffset]
    def __init__(
        self,
        topic: str = ...,
        partitions: list[EpochEndOffset] | Encoded = ...,
    ) -> None: ...

class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: int
    topics: list[OffsetForLeaderTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[OffsetForLeaderTopicResult] | Encoded = ...,
    ) -> None: ...

class DeleteRecordsPartition(Struct):
    partition_index: int
    offset: int
    def __init__(
        self,
        partition_index: int = ...,
        offset: int = ...,
    ) -> None: ...

class DeleteRecordsTopic(Struct):
    name: str
    partitions: list[DeleteRecordsPartition]
    def __init__(
        self,
        name: str = ...,
        partitions: list[DeleteRecordsPartition] | Encoded = ...,
    ) -> None: ...

class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic]
    timeout_ms: int
    def __init__(
        self,
        topics: list[DeleteRecordsTopic] | Encoded = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeleteRecordsPartitionResult(Struct):
    partition_index: int
    low_watermark: int
    error_code: int
    def __init__(
        self,
        partition_index: int = ...,
        low_watermark: int = ...,
        error_code: int = ...,
    ) -> None: ...

class DeleteRecordsTopicResult(Struct):
    name: str
    partitions: list[DeleteRecordsPartitionResult]
    def __init__(
        self,
        name: str = ...,
        partitions: list[DeleteRecordsPartitionResult] | Encoded = ...,
    ) -> None: ...

class DeleteRecordsResponse(Message):
    throttle_time_ms: int
    topics: list[DeleteRecordsTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[DeleteRecordsTopicResult] | Encoded = ...,
    ) -> None: ...
