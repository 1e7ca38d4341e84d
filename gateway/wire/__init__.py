"""Kafka's wire protocol: messages, codecs, frames. Imports nothing of ours.

- declare.py: the language of declarations, `"name" / int32.since(7)`
- schema/: Kafka's messages in it, one module per family of APIs, each with its .pyi
- message.py: the classes made from them; `FetchRequest[12]`, `decode`, `encode`
- reference.py: one version as a construct.Struct, the reference codec
- decoder.py, encoder.py, code_writer.py, varint.py: the flat codecs generated from that
- frame.py: sizes and headers
- errors.py, codes.py: WireError; Kafka's error codes
- stubs.py: writes the .pyi files and this one
"""

# Written by gateway/wire/stubs.py from the declarations. Change those, then run it again.
# ruff: noqa: I001 (one group of names per module)

from kumquat.gateway.wire.codes import (
    ErrorCode as ErrorCode,
)
from kumquat.gateway.wire.encoder import (
    Encoded as Encoded,
)
from kumquat.gateway.wire.errors import (
    WireError as WireError,
)
from kumquat.gateway.wire.message import (
    Message as Message,
    REQUESTS as REQUESTS,
    RESPONSES as RESPONSES,
)
from kumquat.gateway.wire.schema.classic_groups import (
    HeartbeatRequest as HeartbeatRequest,
    HeartbeatResponse as HeartbeatResponse,
    JoinGroupRequest as JoinGroupRequest,
    JoinGroupRequestProtocol as JoinGroupRequestProtocol,
    JoinGroupResponse as JoinGroupResponse,
    JoinGroupResponseMember as JoinGroupResponseMember,
    LeaveGroupRequest as LeaveGroupRequest,
    LeaveGroupResponse as LeaveGroupResponse,
    MemberIdentity as MemberIdentity,
    MemberResponse as MemberResponse,
    SyncGroupRequest as SyncGroupRequest,
    SyncGroupRequestAssignment as SyncGroupRequestAssignment,
    SyncGroupResponse as SyncGroupResponse,
)
from kumquat.gateway.wire.schema.configs import (
    AlterConfigsRequest as AlterConfigsRequest,
    AlterConfigsResource as AlterConfigsResource,
    AlterConfigsResourceResponse as AlterConfigsResourceResponse,
    AlterConfigsResponse as AlterConfigsResponse,
    AlterableConfig as AlterableConfig,
    DescribeConfigsRequest as DescribeConfigsRequest,
    DescribeConfigsResource as DescribeConfigsResource,
    DescribeConfigsResourceResult as DescribeConfigsResourceResult,
    DescribeConfigsResponse as DescribeConfigsResponse,
    DescribeConfigsResult as DescribeConfigsResult,
    DescribeConfigsSynonym as DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest as IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource as IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse as IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse as IncrementalAlterConfigsResponse,
    IncrementalAlterableConfig as IncrementalAlterableConfig,
)
from kumquat.gateway.wire.schema.consumer_groups import (
    AssignedTopicPartitions as AssignedTopicPartitions,
    ConsumerGroupAssignment as ConsumerGroupAssignment,
    ConsumerGroupDescribeRequest as ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse as ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest as ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse as ConsumerGroupHeartbeatResponse,
    DescribedAssignment as DescribedAssignment,
    DescribedConsumerGroup as DescribedConsumerGroup,
    DescribedConsumerGroupMember as DescribedConsumerGroupMember,
    DescribedTopicPartitions as DescribedTopicPartitions,
    OwnedTopicPartitions as OwnedTopicPartitions,
)
from kumquat.gateway.wire.schema.consumer_protocol import (
    AssignmentTopicPartition as AssignmentTopicPartition,
    ConsumerProtocolAssignment as ConsumerProtocolAssignment,
    ConsumerProtocolSubscription as ConsumerProtocolSubscription,
    SubscriptionTopicPartition as SubscriptionTopicPartition,
)
from kumquat.gateway.wire.schema.coordinator import (
    Coordinator as Coordinator,
    FindCoordinatorRequest as FindCoordinatorRequest,
    FindCoordinatorResponse as FindCoordinatorResponse,
)
from kumquat.gateway.wire.schema.fetch import (
    AbortedTransaction as AbortedTransaction,
    FetchEpochEndOffset as FetchEpochEndOffset,
    FetchPartition as FetchPartition,
    FetchRequest as FetchRequest,
    FetchResponse as FetchResponse,
    FetchTopic as FetchTopic,
    FetchableTopicResponse as FetchableTopicResponse,
    ForgottenTopic as ForgottenTopic,
    LeaderIdAndEpoch as LeaderIdAndEpoch,
    NodeEndpoint as NodeEndpoint,
    PartitionData as PartitionData,
    ReplicaState as ReplicaState,
    SnapshotId as SnapshotId,
)
from kumquat.gateway.wire.schema.group_admin import (
    DeletableGroupResult as DeletableGroupResult,
    DeleteGroupsRequest as DeleteGroupsRequest,
    DeleteGroupsResponse as DeleteGroupsResponse,
    DescribeGroupsRequest as DescribeGroupsRequest,
    DescribeGroupsResponse as DescribeGroupsResponse,
    DescribedGroup as DescribedGroup,
    DescribedGroupMember as DescribedGroupMember,
    ListGroupsRequest as ListGroupsRequest,
    ListGroupsResponse as ListGroupsResponse,
    ListedGroup as ListedGroup,
)
from kumquat.gateway.wire.schema.group_offsets import (
    OffsetCommitRequest as OffsetCommitRequest,
    OffsetCommitRequestPartition as OffsetCommitRequestPartition,
    OffsetCommitRequestTopic as OffsetCommitRequestTopic,
    OffsetCommitResponse as OffsetCommitResponse,
    OffsetCommitResponsePartition as OffsetCommitResponsePartition,
    OffsetCommitResponseTopic as OffsetCommitResponseTopic,
    OffsetDeleteRequest as OffsetDeleteRequest,
    OffsetDeleteRequestPartition as OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic as OffsetDeleteRequestTopic,
    OffsetDeleteResponse as OffsetDeleteResponse,
    OffsetDeleteResponsePartition as OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic as OffsetDeleteResponseTopic,
    OffsetFetchRequest as OffsetFetchRequest,
    OffsetFetchRequestGroup as OffsetFetchRequestGroup,
    OffsetFetchRequestTopic as OffsetFetchRequestTopic,
    OffsetFetchRequestTopics as OffsetFetchRequestTopics,
    OffsetFetchResponse as OffsetFetchResponse,
    OffsetFetchResponseGroup as OffsetFetchResponseGroup,
    OffsetFetchResponsePartition as OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions as OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic as OffsetFetchResponseTopic,
    OffsetFetchResponseTopics as OffsetFetchResponseTopics,
)
from kumquat.gateway.wire.schema.log_dirs import (
    DescribableLogDirTopic as DescribableLogDirTopic,
    DescribeLogDirsPartition as DescribeLogDirsPartition,
    DescribeLogDirsRequest as DescribeLogDirsRequest,
    DescribeLogDirsResponse as DescribeLogDirsResponse,
    DescribeLogDirsResult as DescribeLogDirsResult,
    DescribeLogDirsTopic as DescribeLogDirsTopic,
)
from kumquat.gateway.wire.schema.metadata import (
    DescribeClusterBroker as DescribeClusterBroker,
    DescribeClusterRequest as DescribeClusterRequest,
    DescribeClusterResponse as DescribeClusterResponse,
    MetadataRequest as MetadataRequest,
    MetadataRequestTopic as MetadataRequestTopic,
    MetadataResponse as MetadataResponse,
    MetadataResponseBroker as MetadataResponseBroker,
    MetadataResponsePartition as MetadataResponsePartition,
    MetadataResponseTopic as MetadataResponseTopic,
)
from kumquat.gateway.wire.schema.offsets import (
    DeleteRecordsPartition as DeleteRecordsPartition,
    DeleteRecordsPartitionResult as DeleteRecordsPartitionResult,
    DeleteRecordsRequest as DeleteRecordsRequest,
    DeleteRecordsResponse as DeleteRecordsResponse,
    DeleteRecordsTopic as DeleteRecordsTopic,
    DeleteRecordsTopicResult as DeleteRecordsTopicResult,
    EpochEndOffset as EpochEndOffset,
    ListOffsetsPartition as ListOffsetsPartition,
    ListOffsetsPartitionResponse as ListOffsetsPartitionResponse,
    ListOffsetsRequest as ListOffsetsRequest,
    ListOffsetsResponse as ListOffsetsResponse,
    ListOffsetsTopic as ListOffsetsTopic,
    ListOffsetsTopicResponse as ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest as OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse as OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition as OffsetForLeaderPartition,
    OffsetForLeaderTopic as OffsetForLeaderTopic,
    OffsetForLeaderTopicResult as OffsetForLeaderTopicResult,
)
from kumquat.gateway.wire.schema.produce import (
    BatchIndexAndErrorMessage as BatchIndexAndErrorMessage,
    InitProducerIdRequest as InitProducerIdRequest,
    InitProducerIdResponse as InitProducerIdResponse,
    PartitionProduceData as PartitionProduceData,
    PartitionProduceResponse as PartitionProduceResponse,
    ProduceLeader as ProduceLeader,
    ProduceNodeEndpoint as ProduceNodeEndpoint,
    ProduceRequest as ProduceRequest,
    ProduceResponse as ProduceResponse,
    TopicProduceData as TopicProduceData,
    TopicProduceResponse as TopicProduceResponse,
)
from kumquat.gateway.wire.schema.share_fetch import (
    AcknowledgeLeader as AcknowledgeLeader,
    AcknowledgeNodeEndpoint as AcknowledgeNodeEndpoint,
    AcknowledgePartition as AcknowledgePartition,
    AcknowledgeTopic as AcknowledgeTopic,
    AcknowledgedPartition as AcknowledgedPartition,
    AcknowledgementBatch as AcknowledgementBatch,
    AcquiredRecords as AcquiredRecords,
    ShareAcknowledgeRequest as ShareAcknowledgeRequest,
    ShareAcknowledgeResponse as ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse as ShareAcknowledgeTopicResponse,
    ShareFetchAcknowledgement as ShareFetchAcknowledgement,
    ShareFetchLeader as ShareFetchLeader,
    ShareFetchNodeEndpoint as ShareFetchNodeEndpoint,
    ShareFetchPartition as ShareFetchPartition,
    ShareFetchRequest as ShareFetchRequest,
    ShareFetchResponse as ShareFetchResponse,
    ShareFetchTopic as ShareFetchTopic,
    ShareFetchableTopicResponse as ShareFetchableTopicResponse,
    ShareForgottenTopic as ShareForgottenTopic,
    SharePartitionData as SharePartitionData,
)
from kumquat.gateway.wire.schema.share_groups import (
    DescribedShareAssignment as DescribedShareAssignment,
    DescribedShareGroup as DescribedShareGroup,
    DescribedShareGroupMember as DescribedShareGroupMember,
    DescribedShareTopicPartitions as DescribedShareTopicPartitions,
    ShareGroupAssignment as ShareGroupAssignment,
    ShareGroupDescribeRequest as ShareGroupDescribeRequest,
    ShareGroupDescribeResponse as ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest as ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse as ShareGroupHeartbeatResponse,
    ShareTopicPartitions as ShareTopicPartitions,
)
from kumquat.gateway.wire.schema.share_offsets import (
    AlterShareGroupOffsetsRequest as AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition as AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic as AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse as AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition as AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic as AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest as DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic as DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse as DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic as DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest as DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup as DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic as DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse as DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup as DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition as DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic as DescribeShareGroupOffsetsResponseTopic,
)
from kumquat.gateway.wire.schema.topics import (
    CreatableReplicaAssignment as CreatableReplicaAssignment,
    CreatableTopic as CreatableTopic,
    CreatableTopicConfig as CreatableTopicConfig,
    CreatableTopicConfigs as CreatableTopicConfigs,
    CreatableTopicResult as CreatableTopicResult,
    CreatePartitionsAssignment as CreatePartitionsAssignment,
    CreatePartitionsRequest as CreatePartitionsRequest,
    CreatePartitionsResponse as CreatePartitionsResponse,
    CreatePartitionsTopic as CreatePartitionsTopic,
    CreatePartitionsTopicResult as CreatePartitionsTopicResult,
    CreateTopicsRequest as CreateTopicsRequest,
    CreateTopicsResponse as CreateTopicsResponse,
    DeletableTopicResult as DeletableTopicResult,
    DeleteTopicState as DeleteTopicState,
    DeleteTopicsRequest as DeleteTopicsRequest,
    DeleteTopicsResponse as DeleteTopicsResponse,
)
from kumquat.gateway.wire.schema.versions import (
    ApiVersion as ApiVersion,
    ApiVersionsRequest as ApiVersionsRequest,
    ApiVersionsResponse as ApiVersionsResponse,
    FinalizedFeatureKey as FinalizedFeatureKey,
    SupportedFeatureKey as SupportedFeatureKey,
)
