"""Metadata and DescribeCluster: which brokers, subjects and partitions there are."""

from kumquat.gateway.wire.declare import array, bool_, int8, int16, int32, string, uuid
from kumquat.gateway.wire.message import message

MetadataRequest = message("MetadataRequest", key=3, versions=(0, 13), flexible=9)(
    "topics"
    / array(
        "MetadataRequestTopic",
        "topic_id" / uuid.since(10).ignorable(),
        "name" / string.nullable(10),
    ).nullable(1),
    "allow_auto_topic_creation" / bool_.since(4).default(True),
    "include_cluster_authorized_operations" / bool_.since(8).until(10),
    "include_topic_authorized_operations" / bool_.since(8),
)
(MetadataRequestTopic,) = MetadataRequest.structs

MetadataResponse = message("MetadataResponse", key=3, versions=(0, 13), flexible=9)(
    "throttle_time_ms" / int32.since(3).ignorable(),
    "brokers"
    / array(
        "MetadataResponseBroker",
        "node_id" / int32,
        "host" / string,
        "port" / int32,
        "rack" / string.since(1).nullable().default(None).ignorable(),
    ),
    "cluster_id" / string.since(2).nullable().default(None).ignorable(),
    "controller_id" / int32.since(1).default(-1).ignorable(),
    "topics"
    / array(
        "MetadataResponseTopic",
        "error_code" / int16,
        "name" / string.nullable(12),
        "topic_id" / uuid.since(10).ignorable(),
        "is_internal" / bool_.since(1).ignorable(),
        "partitions"
        / array(
            "MetadataResponsePartition",
            "error_code" / int16,
            "partition_index" / int32,
            "leader_id" / int32,
            "leader_epoch" / int32.since(7).default(-1).ignorable(),
            "replica_nodes" / array(int32),
            "isr_nodes" / array(int32),
            "offline_replicas" / array(int32).since(5).ignorable(),
        ),
        "topic_authorized_operations" / int32.since(8).default(-2147483648),
    ),
    "cluster_authorized_operations" / int32.since(8).until(10).default(-2147483648),
    "error_code" / int16.since(13).ignorable(),
)
MetadataResponseBroker, MetadataResponseTopic, MetadataResponsePartition = MetadataResponse.structs

DescribeClusterRequest = message("DescribeClusterRequest", key=60, versions=(0, 1), flexible=0)(
    "include_cluster_authorized_operations" / bool_,
    "endpoint_type" / int8.since(1).default(1),
)

DescribeClusterResponse = message("DescribeClusterResponse", key=60, versions=(0, 1), flexible=0)(
    "throttle_time_ms" / int32,
    "error_code" / int16,
    "error_message" / string.nullable().default(None),
    "endpoint_type" / int8.since(1).default(1),
    "cluster_id" / string,
    "controller_id" / int32.default(-1),
    "brokers"
    / array(
        "DescribeClusterBroker",
        "broker_id" / int32,
        "host" / string,
        "port" / int32,
        "rack" / string.nullable().default(None),
    ),
    "cluster_authorized_operations" / int32.default(-2147483648),
)
(DescribeClusterBroker,) = DescribeClusterResponse.structs
