"""AlterReplicaLogDirs (34): move partitions to another data directory (KIP-113). There is one, so they can only stay.

Rules: ReplicaManager.alterReplicaLogDirs, where a move to where a partition already lies is no error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halfmoon.adapters.kafka.errors import NONE, code_of
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.adapters.kafka.protocol import AlterReplicaLogDirsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError

REPLICA_NOT_AVAILABLE, LOG_DIR_NOT_FOUND = 9, 57
"""Error codes that only this API has."""

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


def handle(ctx: Context, request: Any) -> Slices[object]:
    here = str(Path(ctx.core.settings.node.data_dir).absolute())
    found: dict[str, list[Any]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            results = found.setdefault(topic.name, [])
            for index in topic.partitions:
                yield
                error_code = _verdict(ctx, topic.name, index) if directory.path == here else LOG_DIR_NOT_FOUND
                results.append(_Topic.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error_code))
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0, results=[_Topic(topic_name=name, partitions=results) for name, results in found.items()]
    )


def _verdict(ctx: Context, name: str, index: int) -> int:
    try:
        partition = partition_of(ctx.core.catalog.topic(name), index)
    except BrokerError as error:
        return code_of(error)
    return NONE if ctx.core.owners.owner_of(partition) == ctx.core.node_id else REPLICA_NOT_AVAILABLE
