"""DeleteGroups (42): groups without members, with their offsets."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import later, when_durable
from halfmoon.adapters.kafka.errors import NONE
from halfmoon.adapters.kafka.group_errors import coordinator_code
from halfmoon.adapters.kafka.protocol import DeleteGroupsResponse, Slices
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import BrokerError
from halfmoon.services.groups.names import GroupNames


@api(42, "DeleteGroups", 0, 2, service=GroupNames)
def delete_groups(ctx: Context, request: Any) -> Slices[object]:
    position: int | None = None
    results, deleted = [], []
    # The names are a map's keys: one given twice is answered once.
    for group_id in dict.fromkeys(request.groups_names):
        yield
        result = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=NONE)
        results.append(result)
        try:
            position = later(position, ctx.services.get(GroupNames).delete(group_id))
            deleted.append(result)
        except BrokerError as error:
            result.error_code = coordinator_code(error)
    return when_durable(ctx, position, DeleteGroupsResponse(throttle_time_ms=0, results=results), deleted, _fail)


def _fail(result: Any, error: Exception) -> None:
    result.error_code = coordinator_code(error)
