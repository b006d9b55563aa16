"""Groups as operators see them: lists and descriptions. Reads, changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from halfmoon.services.groups.model import Group, State
from halfmoon.services.groups.names import CLASSIC_TYPE, GroupDescription, GroupListing, MemberDescription


def listed(groups: Mapping[str, Group], types: Collection[str], offset_groups: Iterable[str]) -> Iterator[GroupListing]:
    """See GroupCoordinator.listed."""
    if types and CLASSIC_TYPE not in {type_.lower() for type_ in types}:
        return
    only_offsets = list(offset_groups)
    for name in list(groups):
        group = groups.get(name)
        if group is not None:
            yield GroupListing(name, group.protocol_type, group.state.value, CLASSIC_TYPE)
    for name in only_offsets:
        if name not in groups:
            yield GroupListing(name, "", State.EMPTY.value, CLASSIC_TYPE)


def in_states(found: Iterable[GroupListing], states: Collection[str]) -> list[GroupListing]:
    """Those in these states (empty: all; letter case does not matter), sorted by name."""
    wanted = {state.lower() for state in states}
    return sorted((each for each in found if not wanted or each.state.lower() in wanted), key=lambda each: each.group)


def describe(group_id: str, group: Group | None, has_offsets: bool) -> GroupDescription | None:
    """See GroupCoordinator.describe."""
    if group is None:
        return GroupDescription(group_id, State.EMPTY.value, "", "", 0, ()) if has_offsets else None
    protocol = group.protocol if group.state is State.STABLE else ""
    return GroupDescription(
        group=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type,
        protocol=protocol,
        generation=group.generation,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )
