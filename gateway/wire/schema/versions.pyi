# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class ApiVersionsRequest(Message):
    client_software_name: str
    client_software_version: str
    def __init__(
        self,
        client_software_name: str = ...,
        client_software_version: str = ...,
    ) -> None: ...

class FinalizedFeatureKey(Struct):
    name: str
    max_version_level: int
    min_version_level: int
    def __init__(
        self,
        name: str = ...,
        max_version_level: int = ...,
        min_version_level: int = ...,
    ) -> None: ...

class SupportedFeatureKey(Struct):
    name: str
    min_version: int
    max_version: int
    def __init__(
        self,
        name: str = ...,
        min_version: int = ...,
        max_version: int = ...,
    ) -> None: ...

class ApiVersion(Struct):
    api_key: int
    min_version: int
    max_version: int
    def __init__(
        self,
        api_key: int = ...,
        min_version: int = ...,
        max_version: int = ...,
    ) -> None: ...

class ApiVersionsResponse(Message):
    error_code: int
    api_keys: list[ApiVersion]
    throttle_time_ms: int
    supported_features: list[SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(
        self,
        error_code: int = ...,
        api_keys: list[ApiVersion] | Encoded = ...,
        throttle_time_ms: int = ...,
        supported_features: list[SupportedFeatureKey] | Encoded = ...,
        finalized_features_epoch: int = ...,
        finalized_features: list[FinalizedFeatureKey] | Encoded = ...,
        zk_migration_ready: bool = ...,
    ) -> None: ...
