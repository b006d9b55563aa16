"""DeleteGroups (42): groups without members, with their offsets."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import each_of, tells_state
from halfmoon.adapters.kafka.errors import NONE
from halfmoon.adapters.kafka.group_errors import coordinator_code
from halfmoon.adapters.kafka.protocol import DeleteGroupsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError
from halfmoon.services.groups.names import GroupNames


def _fail(result: Any, error: Exception) -> None:
    result.error_code = coordinator_code(error)


@tells_state(each_of("results", _fail))
def handle(ctx: Context, request: Any) -> Slices[object]:
    results = []
    # The names are a map's keys: one given twice is answered once.
    for group_id in dict.fromkeys(request.groups_names):
        yield
        result = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=NONE)
        results.append(result)
        try:
            ctx.services.get(GroupNames).delete(group_id)
        except BrokerError as error:
            _fail(result, error)
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
