"""By config: broker.yaml says who reads what.

Source of the idea: RocketMQ's AllocateMessageQueueByConfig (there CONFIG), where every client is handed its own list
and nothing keeps two lists from overlapping. Here one table stands for the whole group, and a queue has one owner:

    plugins:
      by_config:
        assign:
          "billing-1*": ["orders/0", "orders/1"]     # a member's name → queues, as TOPIC/ID or TOPIC/BROKER/ID
          "billing-2*": ["orders/*"]                 # the rest

Names are matched as in a shell (`*`, `?`, `[…]`), because Kafka's member ids end in a random part. Lines are tried from
top to bottom; the first that matches the queue *and* a living member has it, and where several members match, the one
that sorts first. So a line further down is a stand-by. A queue that no line covers has no owner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial

from msgspec import field

from halfmoon.plugin import (
    AnyAllocator,
    Assignment,
    ConfigSection,
    PluginContext,
    Queue,
    Section,
    SettingError,
    hookimpl,
    sorted_members,
    sorted_queues,
)

api_version = 1


class ByConfigSettings(Section, frozen=True, kw_only=True):
    """`$.plugins.by_config`."""

    assign: dict[str, list[str]] = field(default_factory=dict)
    """Pattern of a member's name → patterns of queues."""

    def __post_init__(self) -> None:
        for patterns in self.assign.values():
            for pattern in patterns:
                if pattern.count("/") not in (1, 2):
                    raise SettingError("assign", f"got {pattern!r}, expected queues as TOPIC/ID or TOPIC/BROKER/ID")


def by_config(
    members: Sequence[str], queues: Sequence[Queue], /, assign: Mapping[str, Sequence[str]] | None = None
) -> Assignment:
    """A queue has one owner, or none where the table names nobody who is there."""
    ordered = sorted_members(members)
    living = [
        (owner, patterns)
        for who, patterns in (assign or {}).items()
        if (owner := next((member for member in ordered if fnmatchcase(member, who)), None)) is not None
    ]
    assignment: Assignment = {member: [] for member in ordered}
    for queue in sorted_queues(queues):
        for owner, patterns in living:
            if any(_matches(queue, pattern) for pattern in patterns):
                assignment[owner].append(queue)
                break
    return assignment


def _matches(queue: Queue, pattern: str) -> bool:
    names = (queue.topic, str(queue.queue_id)) if pattern.count("/") == 1 else (*queue[:2], str(queue.queue_id))
    return all(fnmatchcase(name, part) for name, part in zip(names, pattern.split("/"), strict=True))


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(ByConfigSettings)


@hookimpl
def halfmoon_allocators(ctx: PluginContext) -> dict[str, AnyAllocator]:
    return {"by_config": partial(by_config, assign=ctx.settings_as(ByConfigSettings).assign)}
