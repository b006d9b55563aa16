"""Names of groups: which kind of group has a name, and what can be done whatever the kind.

    groups         members of Kafka's classic and consumer protocols; they commit offsets (`service`)
    share groups   another kind: they have no committed offsets (services/share)

A name belongs to one kind. Each kind registers here and asks here, so that no kind knows the others. Groups whose
members speak another protocol, such as RocketMQ's, are no kind of their own: they have their names and their committed
offsets in common with `groups`, and only their live members are somebody else's (`other_protocol`).

Knows no log and no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from halfmoon.core.steps import Pauses, finish
from halfmoon.errors import BrokerError, Fault

EVERY = 64
"""Groups from one pause to the next."""

CLASSIC_TYPE = "classic"
"""The type of a group of the classic protocol, in the words of ListGroups v5 (KIP-848)."""


class GroupListing(Struct, frozen=True):
    """A group in a list of groups. `protocol_type` is "" for a group that holds nothing but offsets."""

    group: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(Struct, frozen=True):
    """A member as an operator sees it. `metadata` is filled in while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(Struct, frozen=True):
    """A group as an operator sees it. `protocol` is filled in while the group is stable."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    generation: int
    members: tuple[MemberDescription, ...]
    type: str = CLASSIC_TYPE


Listings = list[GroupListing]


class GroupKind(Protocol):
    """All groups of one kind."""

    def exists(self, group: str) -> bool: ...

    def listed(self, types: Sequence[str]) -> Iterable[GroupListing]:
        """Those of these types (lower case); of all types if it is empty."""
        ...

    def delete(self, group: str) -> int | None:
        """Remove a group; the log position to wait for, or None if there is no such group of this kind. Raises
        BrokerError(NON_EMPTY_GROUP)."""
        ...


class OtherProtocolGroups(Protocol):
    """Groups whose live members speak another protocol than Kafka's, and agree among themselves who reads what. A
    group's members speak one protocol at a time."""

    protocol_type: str

    def has_members(self, group: str) -> bool: ...

    def members(self, group: str) -> Sequence[MemberDescription]: ...

    def groups(self) -> Iterable[str]:
        """Those that have members."""
        ...

    def write_offsets(self, group: str) -> None:
        """A client is about to look at a group's committed offsets, or to change them: record what is not recorded
        yet."""
        ...


class _NoOtherProtocol:
    protocol_type = ""

    def has_members(self, group: str) -> bool:
        return False

    def members(self, group: str) -> Sequence[MemberDescription]:
        return ()

    def groups(self) -> Iterable[str]:
        return ()

    def write_offsets(self, group: str) -> None:
        pass


class GroupNames:
    """Of one broker."""

    def __init__(self) -> None:
        self._kinds: list[GroupKind] = []
        self.other_protocol: OtherProtocolGroups = _NoOtherProtocol()
        self._remembered: list[Callable[[], Collection[str]]] = []

    def register(self, kind: GroupKind) -> None:
        self._kinds.append(kind)

    def also_remember(self, groups: Callable[[], Collection[str]]) -> None:
        """A feature remembers something of groups, whether they exist or not: until GroupDeleted."""
        self._remembered.append(groups)

    def remembered(self) -> set[str]:
        """Groups of which features remember something."""
        return {group for groups in self._remembered for group in groups()}

    def exists(self, group: str) -> bool:
        return any(kind.exists(group) for kind in self._kinds)

    def taken_by_another(self, group: str, kind: GroupKind) -> bool:
        """Whether another kind than this has a group of that name."""
        return any(each is not kind and each.exists(group) for each in self._kinds)

    def list(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """All groups by name; of these states and types only, whatever their case, where any are named."""
        return finish(self.list_slices(states, types))

    def list_slices(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Pauses[Listings]:
        """The same in slices."""
        found = yield from self.found_slices(states, types)
        return [found[name] for name in sorted(found)]

    def found_slices(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> Pauses[dict[str, GroupListing]]:
        """The same in no order: to sort 100,000 names takes 30 ms."""
        types = [each.lower() for each in types]
        wanted = {state.lower() for state in states}
        found: dict[str, GroupListing] = {}
        for kind in self._kinds:
            for at, listing in enumerate(kind.listed(types)):
                if not wanted or listing.state.lower() in wanted:
                    found[listing.group] = listing
                if not at % EVERY:
                    yield None
        return found

    def delete(self, group: str) -> int:
        """Remove a group and its offsets; returns the log position to wait for. Raises BrokerError."""
        for kind in self._kinds:
            position = kind.delete(group)
            if position is not None:
                return position
        raise BrokerError(Fault.GROUP_ID_NOT_FOUND)
