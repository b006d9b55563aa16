"""CreatePartitions (37): make topics wider (KIP-195). Rules: ReplicationControlManager.createPartitions.

Records stay where they are, so keys may go to another partition from then on; there is no way back.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.assignments import check_assignments, same_length
from halfmoon.adapters.kafka.duplicates import duplicates_in_slices
from halfmoon.adapters.kafka.durable import each_of, refuse, tells_state
from halfmoon.adapters.kafka.lookup import changeable
from halfmoon.adapters.kafka.mutations import Mutations
from halfmoon.adapters.kafka.protocol import CreatePartitionsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault

_Result = CreatePartitionsResponse.CreatePartitionsTopicResult


STRICT_SINCE = 3
"""From this version on, clients know what it means that their quota of changes is used up."""


@tells_state(each_of("results"))
def handle(ctx: Context, request: Any) -> Slices[object]:
    twice = yield from duplicates_in_slices(topic.name for topic in request.topics)
    mutations = Mutations(ctx, STRICT_SINCE)
    results = []
    for topic in request.topics:
        yield
        if topic.name in twice:
            continue
        result = _Result(name=topic.name, error_code=0, error_message=None)
        results.append(result)
        try:
            _widen(ctx, topic, bool(request.validate_only), mutations)
        except BrokerError as error:
            refuse(result, error)
    for name in twice:
        yield
        result = _Result(name=name)
        refuse(result, BrokerError(Fault.INVALID_REQUEST, "duplicate topic name"))
        results.append(result)
    return CreatePartitionsResponse(throttle_time_ms=mutations.wait_ms, results=results)


def _widen(ctx: Context, wanted: Any, validate_only: bool, mutations: Mutations) -> None:
    """Raises BrokerError."""
    topic = changeable(ctx.core, wanted.name)
    present = len(topic.partitions)
    if wanted.count <= present:
        raise BrokerError(
            Fault.INVALID_PARTITIONS,
            f"topic '{topic.name}' has {present} partition(s); {wanted.count} would not be an increase",
        )
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - present:
            raise BrokerError(
                Fault.INVALID_REPLICA_ASSIGNMENT,
                f"{wanted.count - present} partition(s) are to be added, but {len(wanted.assignments)} are assigned",
            )
        assigned = [assignment.broker_ids for assignment in wanted.assignments]
        if ctx.core.owners.has_replicas:
            same_length(assigned)
        else:
            check_assignments(assigned, ctx.core.node_id)
    mutations.take(wanted.count - present)
    ctx.core.administration.add_partitions(topic, wanted.count, validate_only=validate_only)
