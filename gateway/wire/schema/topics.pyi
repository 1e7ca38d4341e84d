# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class CreatableTopicConfig(Struct):
    name: str
    value: str | None
    def __init__(
        self,
        name: str = ...,
        value: str | None = ...,
    ) -> None: ...

class CreatableReplicaAssignment(Struct):
    partition_index: int
    broker_ids: list[int]
    def __init__(
        self,
        partition_index: int = ...,
        broker_ids: list[int] = ...,
    ) -> None: ...

class CreatableTopic(Struct):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]
    def __init__(
        self,
        name: str = ...,
        num_partitions: int = ...,
        replication_factor: int = ...,
        assignments: list[CreatableReplicaAssignment] | Encoded = ...,
        configs: list[CreatableTopicConfig] | Encoded = ...,
    ) -> None: ...

class CreateTopicsRequest(Message):
    topics: list[CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        topics: list[CreatableTopic] | Encoded = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
    ) -> None: ...

class CreatableTopicConfigs(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    def __init__(
        self,
        name: str = ...,
        value: str | None = ...,
        read_only: bool = ...,
        config_source: int = ...,
        is_sensitive: bool = ...,
    ) -> None: ...

class CreatableTopicResult(Struct):
    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: list[CreatableTopicConfigs] | None
    def __init__(
        self,
        name: str = ...,
        topic_id: bytes = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topic_config_error_code: int = ...,
        num_partitions: int = ...,
        replication_factor: int = ...,
        configs: list[CreatableTopicConfigs] | Encoded | None = ...,
    ) -> None: ...

class CreateTopicsResponse(Message):
    throttle_time_ms: int
    topics: list[CreatableTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[CreatableTopicResult] | Encoded = ...,
    ) -> None: ...

class DeleteTopicState(Struct):
    name: str | None
    topic_id: bytes
    def __init__(
        self,
        name: str | None = ...,
        topic_id: bytes = ...,
    ) -> None: ...

class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(
        self,
        topics: list[DeleteTopicState] | Encoded = ...,
        topic_names: list[str] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class DeletableTopicResult(Struct):
    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None
    def __init__(
        self,
        name: str | None = ...,
        topic_id: bytes = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class DeleteTopicsResponse(Message):
    throttle_time_ms: int
    responses: list[DeletableTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: list[DeletableTopicResult] | Encoded = ...,
    ) -> None: ...

class CreatePartitionsAssignment(Struct):
    broker_ids: list[int]
    def __init__(
        self,
        broker_ids: list[int] = ...,
    ) -> None: ...

class CreatePartitionsTopic(Struct):
    name: str
    count: int
    assignments: list[CreatePartitionsAssignment] | None
    def __init__(
        self,
        name: str = ...,
        count: int = ...,
        assignments: list[CreatePartitionsAssignment] | Encoded | None = ...,
    ) -> None: ...

class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        topics: list[CreatePartitionsTopic] | Encoded = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
    ) -> None: ...

class CreatePartitionsTopicResult(Struct):
    name: str
    error_code: int
    error_message: str | None
    def __init__(
        self,
        name: str = ...,
        error_code: int = ...,
        error_message: str | None = ...,
    ) -> None: ...

class CreatePartitionsResponse(Message):
    throttle_time_ms: int
    results: list[CreatePartitionsTopicResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: list[CreatePartitionsTopicResult] | Encoded = ...,
    ) -> None: ...
