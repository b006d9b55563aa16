"""DescribeQuorum (55): who decides about the cluster's metadata, and how far they are (KIP-595, KIP-836).

Metadata are control records in the commitlog, so the quorum of `__cluster_metadata` is this node alone: it leads in its
generation, and its offsets are positions of the commitlog: of the end, and up to where it is durable.

Rules: KafkaRaftClient.handleDescribeQuorumRequest.
"""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_OID, uuid5

from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.protocol import DescribeQuorumResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault

METADATA_TOPIC = "__cluster_metadata"

_Topic = DescribeQuorumResponse.TopicData
_Partition = _Topic.PartitionData
_Replica = _Partition.ReplicaState
_Node = DescribeQuorumResponse.Node


def handle(ctx: Context, request: Any) -> object:
    topics = []
    described = False
    for asked in request.topics:
        partitions = []
        for partition in asked.partitions:
            if asked.topic_name == METADATA_TOPIC and partition.partition_index == 0:
                partitions.append(_metadata_partition(ctx))
                described = True
            else:
                partitions.append(_unknown(partition.partition_index))
        topics.append(_Topic(topic_name=asked.topic_name, partitions=partitions))
    return DescribeQuorumResponse(
        error_code=0, error_message="", topics=topics, nodes=[_node(ctx)] if described else []
    )


def _metadata_partition(ctx: Context) -> Any:
    core = ctx.core
    now_ms = core.clock.wall_ms()
    voter = _Replica(
        replica_id=core.node_id,
        replica_directory_id=uuid5(NAMESPACE_OID, f"{core.cluster_id}/{core.node_id}"),
        log_end_offset=core.log.end,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return _Partition(
        partition_index=0,
        error_code=0,
        error_message="",
        leader_id=core.node_id,
        leader_epoch=core.generation,
        high_watermark=core.turn.durable_position,
        current_voters=[voter],
        observers=[],
    )


def _unknown(index: int) -> Any:
    result = _Partition(
        partition_index=index, leader_id=0, leader_epoch=0, high_watermark=0, current_voters=[], observers=[]
    )
    refuse(result, BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION))
    return result


def _node(ctx: Context) -> Any:
    listener = _Node.Listener(name="PLAINTEXT", host=ctx.peer.host, port=ctx.peer.port)
    return _Node(node_id=ctx.core.node_id, listeners=[listener])
