"""ListGroups (16): all groups, those included that hold nothing but offsets.

Filters: by state from version 4 on (KIP-518), by type from version 5 on (KIP-848); "classic" or "consumer".
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE
from halfmoon.adapters.kafka.protocol import ListGroupsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.services.groups.names import GroupNames


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    groups = []
    for group in (yield from ctx.services.get(GroupNames).list_slices(request.states_filter, request.types_filter)):
        groups.append(
            ListGroupsResponse.ListedGroup(
                group_id=group.group, protocol_type=group.protocol_type, group_state=group.state, group_type=group.type
            )
        )
        yield
    return ListGroupsResponse(throttle_time_ms=0, error_code=NONE, groups=groups)
