"""DescribeCluster (60): the cluster's id and its nodes, which are one (KIP-700).

Rules: AuthHelper.computeDescribeClusterResponse.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.operations import CLUSTER_OPERATIONS
from halfmoon.adapters.kafka.protocol import DescribeClusterResponse
from halfmoon.adapters.kafka.registry import Context

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types (KIP-919): which kind of nodes the client wants to see."""

MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115
"""Error codes that only this API has."""


def handle(ctx: Context, request: Any) -> object:
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=MISMATCHED_ENDPOINT_TYPE if known else UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} was asked for; this is a broker's (type {BROKERS})",
            endpoint_type=BROKERS,
            cluster_id="",
            brokers=[],
        )
    node_id = ctx.core.node_id
    owners = ctx.core.owners
    nodes = [(node_id, ctx.peer.host, ctx.peer.port, owners.rack)]
    nodes += [(other.node_id, *ctx.peer.address_of(other), other.rack) for other in owners.listed()]
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=ctx.core.cluster_id,
        controller_id=node_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=each_id, host=host, port=port, rack=rack, is_fenced=False
            )
            for each_id, host, port, rack in nodes
        ],
        authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else None,
    )
