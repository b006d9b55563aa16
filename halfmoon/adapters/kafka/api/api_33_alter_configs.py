"""AlterConfigs (33): replace all overrides of a resource; what is not named falls back to what stands below it.

Not so the definition of a view, which never changes: it need not be repeated. Levels of loggers cannot be altered so.

Kept for old clients; new ones send IncrementalAlterConfigs (KIP-339), which cannot lose another client's change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.alter_configs import alter, refuse_nulls
from halfmoon.adapters.kafka.durable import each_of, tells_state
from halfmoon.adapters.kafka.protocol import AlterConfigsResponse, Slices
from halfmoon.adapters.kafka.registry import Context

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.resources import Resource


@tells_state(each_of("responses"))
def handle(ctx: Context, request: Any) -> Slices[object]:
    return (yield from alter(ctx, request, AlterConfigsResponse, _replaced))


def _replaced(resource: Resource, asked: Any) -> dict[str, str]:
    refuse_nulls([config.name for config in asked.configs if config.value is None])
    return resource.kept() | {config.name: config.value for config in asked.configs}
