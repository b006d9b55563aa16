"""What control records and snapshots say of groups, of both kinds. Times in milliseconds.

A partition is (topic number, index), its *place*: topic numbers are never given out twice, so a place of a deleted
topic can never be taken for one of a later namesake.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Assignment protocols with the member's metadata for each, in the member's order of preference."""

JOIN = 0
"""The member epoch of one that joins, or joins anew because it was fenced. It holds nothing then."""
Place: TypeAlias = tuple[int, int]
Places: TypeAlias = frozenset[Place]
Holding: TypeAlias = tuple[int, int, int]
"""A place, and the member epoch at which the member got it."""

STABLE, UNREVOKED, UNRELEASED = "stable", "unrevoked", "unreleased"
"""States of a member: it has what it can have of its target; it is to give something up first; it waits for others to
give something up."""


class SavedMember(Struct, frozen=True):
    """A member as it is remembered over a restart."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes


class GroupRecord(Struct, frozen=True):
    """What must survive a restart: the generation, and who is in. A later record replaces an earlier one.

    A record without members says that the group has just become empty: its offsets' time starts to run.
    """

    group: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    settled: bool
    """The assignments in `members` are those of this generation, and nothing has happened since."""
    members: tuple[SavedMember, ...] = field(name="static_members")
    forgotten: int = field(name="dynamic_members", default=0)
    """How many members are not in `members`: the first version of these records kept only static ones."""


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
