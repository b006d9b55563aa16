"""ElectLeaders (43): who has a shard leads its partitions, so no election is ever needed (KIP-460).

Version 0 knows only the preferred leader, later ones ask for an unclean election too. Without a list of partitions,
Kafka answers for those it has elected a leader of: for none.

Rules: ReplicationControlManager.electLeaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.lookup import changeable
from halfmoon.adapters.kafka.protocol import ElectLeadersResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.core import Core

_Topic = ElectLeadersResponse.ReplicaElectionResult
_Partition = _Topic.PartitionResult

PREFERRED, UNCLEAN = 0, 1


def handle(ctx: Context, request: Any) -> Slices[object]:
    unknown = ctx.api_version >= 1 and request.election_type not in (PREFERRED, UNCLEAN)
    topics = []
    for asked in request.topic_partitions or ():
        results = []
        for index in asked.partitions:
            yield
            result = _Partition(partition_id=index, error_code=0, error_message=None)
            if unknown:
                error = BrokerError(Fault.INVALID_REQUEST, f"unknown election type {request.election_type}")
            else:
                error = _refusal(ctx.core, asked.topic, index)
            refuse(result, error)
            results.append(result)
        topics.append(_Topic(topic=asked.topic, partition_result=results))
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=code(Fault.INVALID_REQUEST) if unknown else 0,
        replica_election_results=topics,
    )


def _refusal(core: Core, name: str, index: int) -> BrokerError:
    """Why no leader is elected."""
    try:
        topic = changeable(core, name)
    except BrokerError as error:
        return error
    if not 0 <= index < len(topic.partitions):
        return BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"no such partition: {name}-{index}")
    return BrokerError(Fault.ELECTION_NOT_NEEDED)
