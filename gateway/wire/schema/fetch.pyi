# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class ForgottenTopic(Struct):
    topic: str
    topic_id: bytes
    partitions: list[int]
    def __init__(
        self,
        topic: str = ...,
        topic_id: bytes = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class FetchPartition(Struct):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes
    def __init__(
        self,
        partition: int = ...,
        current_leader_epoch: int = ...,
        fetch_offset: int = ...,
        last_fetched_epoch: int = ...,
        log_start_offset: int = ...,
        partition_max_bytes: int = ...,
        replica_directory_id: bytes = ...,
    ) -> None: ...

class FetchTopic(Struct):
    topic: str
    topic_id: bytes
    partitions: list[FetchPartition]
    def __init__(
        self,
        topic: str = ...,
        topic_id: bytes = ...,
        partitions: list[FetchPartition] | Encoded = ...,
    ) -> None: ...

class ReplicaState(Struct):
    replica_id: int
    replica_epoch: int
    def __init__(
        self,
        replica_id: int = ...,
        replica_epoch: int = ...,
    ) -> None: ...

class FetchRequest(Message):
    cluster_id: str | None
    replica_id: int
    replica_state: ReplicaState | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]
    rack_id: str
    def __init__(
        self,
        cluster_id: str | None = ...,
        replica_id: int = ...,
        replica_state: ReplicaState | None = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        isolation_level: int = ...,
        session_id: int = ...,
        session_epoch: int = ...,
        topics: list[FetchTopic] | Encoded = ...,
        forgotten_topics_data: list[ForgottenTopic] | Encoded = ...,
        rack_id: str = ...,
    ) -> None: ...

class NodeEndpoint(Struct):
    node_id: int
    host: str
    port: int
    rack: str | None
    def __init__(
        self,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        rack: str | None = ...,
    ) -> None: ...

class AbortedTransaction(Struct):
    producer_id: int
    first_offset: int
    def __init__(
        self,
        producer_id: int = ...,
        first_offset: int = ...,
    ) -> None: ...

class SnapshotId(Struct):
    end_offset: int
    epoch: int
    def __init__(
        self,
        end_offset: int = ...,
        epoch: int = ...,
    ) -> None: ...

class LeaderIdAndEpoch(Struct):
    leader_id: int
    leader_epoch: int
    def __init__(
        self,
        leader_id: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class FetchEpochEndOffset(Struct):
    epoch: int
    end_offset: int
    def __init__(
        self,
        epoch: int = ...,
        end_offset: int = ...,
    ) -> None: ...

class PartitionData(Struct):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: FetchEpochEndOffset | None
    current_leader: LeaderIdAndEpoch | None
    snapshot_id: SnapshotId | None
    aborted_transactions: list[AbortedTransaction] | None
    preferred_read_replica: int
    records: memoryview | None
    def __init__(
        self,
        partition_index: int = ...,
        error_code: int = ...,
        high_watermark: int = ...,
        last_stable_offset: int = ...,
        log_start_offset: int = ...,
        diverging_epoch: FetchEpochEndOffset | None = ...,
        current_leader: LeaderIdAndEpoch | None = ...,
        snapshot_id: SnapshotId | None = ...,
        aborted_transactions: list[AbortedTransaction] | Encoded | None = ...,
        preferred_read_replica: int = ...,
        records: bytes | memoryview | list[bytes | memoryview] | None = ...,
    ) -> None: ...

class FetchableTopicResponse(Struct):
    topic: str
    topic_id: bytes
    partitions: list[PartitionData]
    def __init__(
        self,
        topic: str = ...,
        topic_id: bytes = ...,
        partitions: list[PartitionData] | Encoded = ...,
    ) -> None: ...

class FetchResponse(Message):
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        session_id: int = ...,
        responses: list[FetchableTopicResponse] | Encoded = ...,
        node_endpoints: list[NodeEndpoint] | Encoded = ...,
    ) -> None: ...
