"""What goes into the coordinator of new consumer groups and what comes out of it. Plain values; times in milliseconds.

A partition is (topic number, index), its *place*: topic numbers are never given out twice, so a place of a deleted
topic can never be taken for one of a later namesake.

`ConsumerMember`, `MemberStep` and `ConsumerGroupChange` are also what the log remembers: fields are only ever added at
the end, with a default.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from halfmoon.core.errors import Fault
from halfmoon.core.groups.messages import Protocols

JOIN = 0
"""The member epoch of one that joins, or joins anew because it was fenced. It holds nothing then."""
LEAVE = -1
LEAVE_FOR_NOW = -2
"""Of a static member that means to be back before its session ends."""

Place: TypeAlias = tuple[int, int]
Places: TypeAlias = frozenset[Place]
Holding: TypeAlias = tuple[int, int, int]
"""A place, and the member epoch at which the member got it."""

STABLE, UNREVOKED, UNRELEASED = "stable", "unrevoked", "unreleased"
"""States of a member: it has what it can have of its target; it is to give something up first; it waits for others to
give something up."""


class ClassicSide(Struct, array_like=True, frozen=True):
    """Of a member that speaks the classic protocol: what it joined with last."""

    session_timeout_ms: int
    protocols: Protocols


class MemberStep(Struct, array_like=True, frozen=True):
    """How far a member has got, without what it says of itself, which may be long and seldom changes."""

    member_id: str
    epoch: int
    previous_epoch: int
    state: str
    assigned: tuple[Holding, ...]
    revoking: tuple[Holding, ...]


class ConsumerMember(Struct, array_like=True, frozen=True):
    """One member (ConsumerGroupMember). Changed by replacing it."""

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    """Names that it subscribes to, sorted."""
    regex: str = ""
    assignor: str | None = None
    epoch: int = JOIN
    previous_epoch: int = JOIN
    state: str = STABLE
    assigned: tuple[Holding, ...] = ()
    """What it may read, sorted."""
    revoking: tuple[Holding, ...] = ()
    """What it may still be reading and is to give up."""
    classic: ClassicSide | None = None

    def step(self) -> MemberStep:
        return MemberStep(self.member_id, self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def after(self, step: MemberStep) -> ConsumerMember:
        return replace(
            self,
            epoch=step.epoch,
            previous_epoch=step.previous_epoch,
            state=step.state,
            assigned=step.assigned,
            revoking=step.revoking,
        )

    def holds(self) -> Places:
        """All that nobody else may have."""
        return frozenset((number, index) for number, index, _ in (*self.assigned, *self.revoking))

    def may_read(self) -> Places:
        return frozenset((number, index) for number, index, _ in self.assigned)


class ConsumerGroupChange(Struct, array_like=True, frozen=True):
    """What became different in one step, to be remembered as one. Applied twice it changes nothing more."""

    group: str
    epoch: int
    assignment_epoch: int
    """The group epoch that `targets` are for."""
    replaces: bool = False
    """This is all there is to know of the group, whatever was known before."""
    topics: tuple[tuple[int, int], ...] | None = None
    """(topic number, partitions) of the topics that the group reads; None: as before."""
    members: tuple[ConsumerMember, ...] = ()
    """Those that are new, or say something else of themselves."""
    targets: tuple[tuple[str, tuple[Place, ...]], ...] = ()
    gone: tuple[str, ...] = ()
    """Member ids that exist no more, nor their targets."""
    problem: str | None = None
    """Why `targets` are those of the assignment before."""
    steps: tuple[MemberStep, ...] = ()
    """Of members of whom all the rest is as before."""


class ConsumerHeartbeat(Struct, frozen=True):
    """A member's request. None means in all of them: as I said before."""

    group: str
    member_id: str
    epoch: int
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

    @property
    def is_full(self) -> bool:
        """It says everything, as a member does that joins, or has missed an answer: it is told everything, too."""
        return self.epoch == JOIN or (
            self.rebalance_timeout_ms != -1 and self.topics is not None and self.owned is not None
        )


class HeartbeatResult(Struct, frozen=True):
    """The answer. With a fault only `message` means something."""

    fault: Fault | None
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    interval_ms: int = 0
    """When to send the next heartbeat."""
    assigned: tuple[Holding, ...] | None = None
    """What the member may read now; None: as before."""


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
