# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class SubscriptionTopicPartition(Struct):
    topic: str
    partitions: list[int]
    def __init__(
        self,
        topic: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ConsumerProtocolSubscription(Message):
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[SubscriptionTopicPartition]
    generation_id: int
    rack_id: str | None
    def __init__(
        self,
        topics: list[str] = ...,
        user_data: bytes | None = ...,
        owned_partitions: list[SubscriptionTopicPartition] | Encoded = ...,
        generation_id: int = ...,
        rack_id: str | None = ...,
    ) -> None: ...

class AssignmentTopicPartition(Struct):
    topic: str
    partitions: list[int]
    def __init__(
        self,
        topic: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[AssignmentTopicPartition]
    user_data: bytes | None
    def __init__(
        self,
        assigned_partitions: list[AssignmentTopicPartition] | Encoded = ...,
        user_data: bytes | None = ...,
    ) -> None: ...
