# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class ShareForgottenTopic(Struct):
    topic_id: bytes
    partitions: list[int]
    def __init__(
        self,
        topic_id: bytes = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ShareFetchAcknowledgement(Struct):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]
    def __init__(
        self,
        first_offset: int = ...,
        last_offset: int = ...,
        acknowledge_types: list[int] = ...,
    ) -> None: ...

class ShareFetchPartition(Struct):
    partition_index: int
    acknowledgement_batches: list[ShareFetchAcknowledgement]
    def __init__(
        self,
        partition_index: int = ...,
        acknowledgement_batches: list[ShareFetchAcknowledgement] | Encoded = ...,
    ) -> None: ...

class ShareFetchTopic(Struct):
    topic_id: bytes
    partitions: list[ShareFetchPartition]
    def __init__(
        self,
        topic_id: bytes = ...,
        partitions: list[ShareFetchPartition] | Encoded = ...,
    ) -> None: ...

class ShareFetchRequest(Message):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[ShareFetchTopic]
    forgotten_topics_data: list[ShareForgottenTopic]
    def __init__(
        self,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        max_records: int = ...,
        batch_size: int = ...,
        share_acquire_mode: int = ...,
        is_renew_ack: bool = ...,
        topics: list[ShareFetchTopic] | Encoded = ...,
        forgotten_topics_data: list[ShareForgottenTopic] | Encoded = ...,
    ) -> None: ...

class ShareFetchNodeEndpoint(Struct):
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

class AcquiredRecords(Struct):
    first_offset: int
    last_offset: int
    delivery_count: int
    def __init__(
        self,
        first_offset: int = ...,
        last_offset: int = ...,
        delivery_count: int = ...,
    ) -> None: ...

class ShareFetchLeader(Struct):
    leader_id: int
    leader_epoch: int
    def __init__(
        self,
        leader_id: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class SharePartitionData(Struct):
    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: ShareFetchLeader
    records: memoryview
    acquired_records: list[AcquiredRecords]
    def __init__(
        self,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acknowledge_error_code: int = ...,
        acknowledge_error_message: str | None = ...,
        current_leader: ShareFetchLeader = ...,
        records: bytes | memoryview | list[bytes | memoryview] = ...,
        acquired_records: list[AcquiredRecords] | Encoded = ...,
    ) -> None: ...

class ShareFetchableTopicResponse(Struct):
    topic_id: bytes
    partitions: list[SharePartitionData]
    def __init__(
        self,
        topic_id: bytes = ...,
        partitions: list[SharePartitionData] | Encoded = ...,
    ) -> None: ...

class ShareFetchResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[ShareFetchNodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: list[ShareFetchableTopicResponse] | Encoded = ...,
        node_endpoints: list[ShareFetchNodeEndpoint] | Encoded = ...,
    ) -> None: ...

class AcknowledgementBatch(Struct):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]
    def __init__(
        self,
        first_offset: int = ...,
        last_offset: int = ...,
        acknowledge_types: list[int] = ...,
    ) -> None: ...

class AcknowledgePartition(Struct):
    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]
    def __init__(
        self,
        partition_index: int = ...,
        acknowledgement_batches: list[AcknowledgementBatch] | Encoded = ...,
    ) -> None: ...

class AcknowledgeTopic(Struct):
    topic_id: bytes
    partitions: list[AcknowledgePartition]
    def __init__(
        self,
        topic_id: bytes = ...,
        partitions: list[AcknowledgePartition] | Encoded = ...,
    ) -> None: ...

class ShareAcknowledgeRequest(Message):
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[AcknowledgeTopic]
    def __init__(
        self,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        is_renew_ack: bool = ...,
        topics: list[AcknowledgeTopic] | Encoded = ...,
    ) -> None: ...

class AcknowledgeNodeEndpoint(Struct):
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

class AcknowledgeLeader(Struct):
    leader_id: int
    leader_epoch: int
    def __init__(
        self,
        leader_id: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class AcknowledgedPartition(Struct):
    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: AcknowledgeLeader
    def __init__(
        self,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        current_leader: AcknowledgeLeader = ...,
    ) -> None: ...

class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes
    partitions: list[AcknowledgedPartition]
    def __init__(
        self,
        topic_id: bytes = ...,
        partitions: list[AcknowledgedPartition] | Encoded = ...,
    ) -> None: ...

class ShareAcknowledgeResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[AcknowledgeNodeEndpoint]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: list[ShareAcknowledgeTopicResponse] | Encoded = ...,
        node_endpoints: list[AcknowledgeNodeEndpoint] | Encoded = ...,
    ) -> None: ...
