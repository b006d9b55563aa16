"""What goes into the group coordinator and what comes out of it. Plain values; times in milliseconds.

Structs, because thirteen dataclasses would take 7 ms at every start.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from halfmoon.errors import Fault
from halfmoon.schema.groups import ConsumerGroupChange, GroupRecord, Holding, Protocols

UNKNOWN_MEMBER = ""
"""The member id of one who has none yet."""
NO_GENERATION = -1


class GroupSettings(Struct, frozen=True):
    """Limits and delays. Defaults are Kafka's (GroupCoordinatorConfig) but for the first three."""

    initial_rebalance_delay_ms: int = 100
    """How long an empty group waits for more members before its first generation (Kafka: 3 s). 0: not at all."""
    min_session_timeout_ms: int = 1_000
    """Kafka: 6 s. Lower, so that tests of users need not wait so long."""
    max_size: int = 10_000
    """Members of one group, and separately members that were handed an id and have not come back (Kafka: no limit)."""
    max_session_timeout_ms: int = 1_800_000
    new_member_timeout_ms: int = 300_000
    """How long a member that never got an answer to its first join is kept."""
    heartbeat_wait_ms: int = 3_000
    """How long a heartbeat that may wait does, at most (Kafka: none may)."""


class Join(Struct, frozen=True):
    """A member asks to be in the group's next generation."""

    group: str
    member_id: str
    instance_id: str | None
    """Static membership (KIP-345): who I am across restarts."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    require_known_member: bool = True
    """Hand a member without id one first and let it come back with it (KIP-394; JoinGroup v4+)."""
    can_skip_assignment: bool = False
    """The member understands `JoinResult.skip_assignment` (KIP-814; JoinGroup v9+)."""
    reason: str = ""
    """For the log (KIP-800)."""


class JoinedMember(Struct, frozen=True):
    """One member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(Struct, frozen=True):
    """The answer to a Join. With a fault, only `member_id` means something."""

    fault: Fault | None
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = UNKNOWN_MEMBER
    members: tuple[JoinedMember, ...] = ()
    """All members for the leader, nothing for the others."""
    skip_assignment: bool = False
    """You lead a group that keeps its assignment: watch the metadata, assign nothing."""


class Sync(Struct, frozen=True):
    """A member asks for its share; the leader brings everybody's."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class SyncResult(Struct, frozen=True):
    """The answer to a Sync."""

    fault: Fault | None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class HeartbeatResult(Struct, frozen=True):
    """What a heartbeat that has waited is answered with."""

    fault: Fault | None


class ConsumerHeartbeatResult(Struct, frozen=True):
    """The answer to a heartbeat of the consumer protocol (consumer/messages). With a fault only `message` means
    something."""

    fault: Fault | None
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    interval_ms: int = 0
    """When to send the next heartbeat."""
    assigned: tuple[Holding, ...] | None = None
    """What the member may read now; None: as before."""


class Reply(Struct, frozen=True):
    """Answer the request that came with `token`.

    To be sent only once every Persist before it, in this list or an earlier one, is durable.
    """

    token: object
    result: Any
    """A `Result`: what the kind of request is answered with."""


class Persist(Struct, frozen=True):
    """Write `record` to the log."""

    record: Any
    """A `Record`."""


Effect: TypeAlias = Reply | Persist

Result: TypeAlias = JoinResult | SyncResult | HeartbeatResult | ConsumerHeartbeatResult
Record: TypeAlias = GroupRecord | ConsumerGroupChange
