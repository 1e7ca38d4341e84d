"""DescribeCluster: the brokers there are, which is this one. Key 60, versions 0 and 1.

What each version added:
  v1  endpoint types; that of controllers is refused, as a Kafka broker does
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.handlers.common.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.wire import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session

BROKERS = 1


@handles(request=DescribeClusterRequest, response=DescribeClusterResponse, versions=range(2))
def describe_cluster(session: Session, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        raise Refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker; there are no controllers to list"
        )
    broker, endpoint = session.broker, session.endpoint
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.node_id, host=endpoint.host, port=endpoint.port)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )
