"""What goes into the coordinator of new consumer groups and what comes out of it. Plain values; times in milliseconds.

A partition is (topic number, index), its *place*: topic numbers are never given out twice, so a place of a deleted
topic can never be taken for one of a later namesake.

What the log remembers of it is in schema/groups.py.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from halfmoon.schema.groups import JOIN, ConsumerMember, Place, Places

LEAVE_FOR_NOW = -2
"""Of a static member that means to be back before its session ends."""


class ConsumerHeartbeat(Struct, frozen=True):
    """A member's request. None means in all of them: as I said before."""

    group: str
    member_id: str
    epoch: int
    """Below 0: it leaves, and a static member for good unless it is LEAVE_FOR_NOW."""
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Places | None = None
    """What the member holds."""
    client_id: str = ""
    client_host: str = ""
    describes: Callable[[str], bool] | None = None
    """Whether the member may describe the topic of this name: a pattern finds no others. None: it may all."""

    @property
    def is_full(self) -> bool:
        """It says everything, as a member does that joins, or has missed an answer: it is told everything, too."""
        return self.epoch == JOIN or (
            self.rebalance_timeout_ms != -1 and self.topics is not None and self.owned is not None
        )


class ConsumerMemberDescription(Struct, frozen=True):
    """A member as an operator sees it."""

    member: ConsumerMember
    target: tuple[Place, ...]


class ConsumerGroupDescription(Struct, frozen=True):
    """A group as an operator sees it."""

    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
