# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.

from kumquat.gateway.wire.encoder import Encoded
from kumquat.gateway.wire.message import Message, Struct

class DescribeConfigsResource(Struct):
    resource_type: int
    resource_name: str
    configuration_keys: list[str] | None
    def __init__(
        self,
        resource_type: int = ...,
        resource_name: str = ...,
        configuration_keys: list[str] | None = ...,
    ) -> None: ...

class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(
        self,
        resources: list[DescribeConfigsResource] | Encoded = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
    ) -> None: ...

class DescribeConfigsSynonym(Struct):
    name: str
    value: str | None
    source: int
    def __init__(
        self,
        name: str = ...,
        value: str | None = ...,
        source: int = ...,
    ) -> None: ...

class DescribeConfigsResourceResult(Struct):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: int
    documentation: str | None
    def __init__(
        self,
        name: str = ...,
        value: str | None = ...,
        read_only: bool = ...,
        config_source: int = ...,
        is_sensitive: bool = ...,
        synonyms: list[DescribeConfigsSynonym] | Encoded = ...,
        config_type: int = ...,
        documentation: str | None = ...,
    ) -> None: ...

class DescribeConfigsResult(Struct):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: list[DescribeConfigsResourceResult]
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
        configs: list[DescribeConfigsResourceResult] | Encoded = ...,
    ) -> None: ...

class DescribeConfigsResponse(Message):
    throttle_time_ms: int
    results: list[DescribeConfigsResult]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: list[DescribeConfigsResult] | Encoded = ...,
    ) -> None: ...

class AlterableConfig(Struct):
    name: str
    value: str | None
    def __init__(
        self,
        name: str = ...,
        value: str | None = ...,
    ) -> None: ...

class AlterConfigsResource(Struct):
    resource_type: int
    resource_name: str
    configs: list[AlterableConfig]
    def __init__(
        self,
        resource_type: int = ...,
        resource_name: str = ...,
        configs: list[AlterableConfig] | Encoded = ...,
    ) -> None: ...

class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        resources: list[AlterConfigsResource] | Encoded = ...,
        validate_only: bool = ...,
    ) -> None: ...

class AlterConfigsResourceResponse(Struct):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
    ) -> None: ...

class AlterConfigsResponse(Message):
    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: list[AlterConfigsResourceResponse] | Encoded = ...,
    ) -> None: ...

class IncrementalAlterableConfig(Struct):
    name: str
    config_operation: int
    value: str | None
    def __init__(
        self,
        name: str = ...,
        config_operation: int = ...,
        value: str | None = ...,
    ) -> None: ...

class IncrementalAlterConfigsResource(Struct):
    resource_type: int
    resource_name: str
    configs: list[IncrementalAlterableConfig]
    def __init__(
        self,
        resource_type: int = ...,
        resource_name: str = ...,
        configs: list[IncrementalAlterableConfig] | Encoded = ...,
    ) -> None: ...

class IncrementalAlterConfigsRequest(Message):
    resources: list[IncrementalAlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        resources: list[IncrementalAlterConfigsResource] | Encoded = ...,
        validate_only: bool = ...,
    ) -> None: ...

class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int
    responses: list[IncrementalAlterConfigsResourceResponse]
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: list[IncrementalAlterConfigsResourceResponse] | Encoded = ...,
    ) -> None: ...
