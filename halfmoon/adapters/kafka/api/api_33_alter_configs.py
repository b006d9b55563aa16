"""AlterConfigs (33): replace all overrides of a topic; what is not named falls back to the node's value.

Not so the definition of a view, which never changes: it need not be repeated.

Kept for old clients; new ones send IncrementalAlterConfigs (KIP-339), which cannot lose another client's change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.alter_configs import alter, refuse_nulls
from halfmoon.adapters.kafka.protocol import AlterConfigsResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.core.topic_configs import view_configs

if TYPE_CHECKING:
    from halfmoon.core.catalog import Topic


@api(33, "AlterConfigs", 0, 2)
def alter_configs(ctx: Context, request: Any) -> object:
    return alter(ctx, request, AlterConfigsResponse, _replaced)


def _replaced(ctx: Context, topic: Topic | None, resource: Any) -> dict[str, str]:
    refuse_nulls([config.name for config in resource.configs if config.value is None])
    kept = {} if topic is None else view_configs(topic.configs)
    return kept | {config.name: config.value for config in resource.configs}
