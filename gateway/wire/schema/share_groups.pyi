# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class ShareGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        rack_id: str | None = ...,
        subscribed_topic_names: list[str] | None = ...,
    ) -> None: ...

class ShareTopicPartitions(Struct):
    topic_id: bytes
    partitions: list[int]
    def __init__(
        self,
        topic_id: bytes = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ShareGroupAssignment(Struct):
    topic_partitions: list[ShareTopicPartitions]
    def __init__(
        self,
        topic_partitions: list[ShareTopicPartitions] | Encoded = ...,
    ) -> None: ...

class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupAssignment | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ShareGroupAssignment | None = ...,
    ) -> None: ...

class ShareGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
    ) -> None: ...

class DescribedShareTopicPartitions(Struct):
    topic_id: bytes
    topic_name: str
    partitions: list[int]
    def __init__(
        self,
        topic_id: bytes = ...,
        topic_name: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class DescribedShareAssignment(Struct):
    topic_partitions: list[DescribedShareTopicPartitions]
    def __init__(
        self,
        topic_partitions: list[DescribedShareTopicPartitions] | Encoded = ...,
    ) -> None: ...

class DescribedShareGroupMember(Struct):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: DescribedShareAssignment
    def __init__(
        self,
        member_id: str = ...,
        rack_id: str | None = ...,
        member_epoch: int = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        assignment: DescribedShareAssignment = ...,
    ) -> None: ...

class DescribedShareGroup(Struct):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[DescribedShareGroupMember]
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
        members: list[DescribedShareGroupMember] | Encoded = ...,
        authorized_operations: int = ...,
    ) -> None: ...

class ShareGroupDescribeResponse(Message):
    throttle_time_ms: int
    groups: list[DescribedShareGroup]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: list[DescribedShareGroup] | Encoded = ...,
    ) -> None: ...
