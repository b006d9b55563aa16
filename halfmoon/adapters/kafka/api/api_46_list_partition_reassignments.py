"""ListPartitionReassignments (46): none is ever in progress, because nothing is replicated (KIP-455).

Partitions that do not exist are left out of the answer, as in Kafka; so are all others.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.protocol import ListPartitionReassignmentsResponse
from halfmoon.adapters.kafka.registry import Context


def handle(ctx: Context, request: Any) -> object:
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=[])
