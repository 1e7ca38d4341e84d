# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class OwnedTopicPartitions(Struct):
    topic_id: bytes
    partitions: list[int]
    def __init__(
        self,
        topic_id: bytes = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[OwnedTopicPartitions] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: list[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: list[OwnedTopicPartitions] | Encoded | None = ...,
    ) -> None: ...

class AssignedTopicPartitions(Struct):
    topic_id: bytes
    partitions: list[int]
    def __init__(
        self,
        topic_id: bytes = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ConsumerGroupAssignment(Struct):
    topic_partitions: list[AssignedTopicPartitions]
    def __init__(
        self,
        topic_partitions: list[AssignedTopicPartitions] | Encoded = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupAssignment | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ConsumerGroupAssignment | None = ...,
    ) -> None: ...

class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...

class DescribedTopicPartitions(Struct):
    topic_id: bytes
    topic_name: str
    partitions: list[int]
    def __init__(
        self,
        topic_id: bytes = ...,
        topic_name: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class DescribedAssignment(Struct):
    topic_partitions: list[DescribedTopicPartitions]
    def __init__(
        self,
        topic_partitions: list[DescribedTopicPartitions] | Encoded = ...,
    ) -> None: ...

class DescribedConsumerGroupMember(Struct):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: int
    def __init__(
        self,
        member_id: str = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        member_epoch: int = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        subscribed_topic_regex: str | None = ...,
        assignment: DescribedAssignment = ...,
        target_assignment: DescribedAssignment = ...,
        member_type: int = ...,
    ) -> None: ...

class DescribedConsumerGroup(Struct):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[DescribedConsumerGroupMember]
    authorized_operations: int
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        group_id: str = ...,
        group_state: str = ...,
        group_epoch: int = ...,
        assignment_epoch: int = ...,
        assignor_name: str = ...,
        members: list[DescribedConsumerGroupMember] | Encoded = ...,
        authorized_operations: int = ...,
    ) -> None: ...

class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int
    groups: list[DescribedConsumerGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: list[DescribedConsumerGroup] | Encoded = ...,
    ) -> None: ...
