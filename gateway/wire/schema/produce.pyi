# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class PartitionProduceData(Struct):
    index: int
    records: memoryview | None
    def __init__(
        self,
        index: int = ...,
        records: bytes | memoryview | list[bytes | memoryview] | None = ...,
    ) -> None: ...

class TopicProduceData(Struct):
    name: str
    topic_id: bytes
    partition_data: list[PartitionProduceData]
    def __init__(
        self,
        name: str = ...,
        topic_id: bytes = ...,
        partition_data: list[PartitionProduceData] | Encoded = ...,
    ) -> None: ...

class ProduceRequest(Message):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicProduceData]
    def __init__(
        self,
        transactional_id: str | None = ...,
        acks: int = ...,
        timeout_ms: int = ...,
        topic_data: list[TopicProduceData] | Encoded = ...,
    ) -> None: ...

class ProduceNodeEndpoint(Struct):
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

class ProduceLeader(Struct):
    leader_id: int
    leader_epoch: int
    def __init__(
        self,
        leader_id: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class BatchIndexAndErrorMessage(Struct):
    batch_index: int
    batch_index_error_message: str | None
    def __init__(
        self,
        batch_index: int = ...,
        batch_index_error_message: str | None = ...,
    ) -> None: ...

class PartitionProduceResponse(Struct):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[BatchIndexAndErrorMessage]
    error_message: str | None
    current_leader: ProduceLeader | None
    def __init__(
        self,
        index: int = ...,
        error_code: int = ...,
        base_offset: int = ...,
        log_append_time_ms: int = ...,
        log_start_offset: int = ...,
        record_errors: list[BatchIndexAndErrorMessage] | Encoded = ...,
        error_message: str | None = ...,
        current_leader: ProduceLeader | None = ...,
    ) -> None: ...

class TopicProduceResponse(Struct):
    name: str
    topic_id: bytes
    partition_responses: list[PartitionProduceResponse]
    def __init__(
        self,
        name: str = ...,
        topic_id: bytes = ...,
        partition_responses: list[PartitionProduceResponse] | Encoded = ...,
    ) -> None: ...

class ProduceResponse(Message):
    responses: list[TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[ProduceNodeEndpoint]
    def __init__(
        self,
        responses: list[TopicProduceResponse] | Encoded = ...,
        throttle_time_ms: int = ...,
        node_endpoints: list[ProduceNodeEndpoint] | Encoded = ...,
    ) -> None: ...

class InitProducerIdRequest(Message):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        transactional_id: str | None = ...,
        transaction_timeout_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
    ) -> None: ...

class InitProducerIdResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
    ) -> None: ...
