"""Groups as operators see them: lists and descriptions. Reads, changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from halfmoon.services.groups.model import Group, State
from halfmoon.services.groups.names import CLASSIC_TYPE, GroupDescription, GroupListing, MemberDescription


def listing(
    groups: Mapping[str, Group], states: Collection[str], types: Collection[str], offset_groups: Iterable[str]
) -> list[GroupListing]:
    """See GroupCoordinator.list."""
    wanted_states = {state.lower() for state in states}
    if types and CLASSIC_TYPE not in {type_.lower() for type_ in types}:
        return []
    found = {
        name: GroupListing(name, group.protocol_type, group.state.value, CLASSIC_TYPE) for name, group in groups.items()
    }
    for name in offset_groups:
        if name not in found:
            found[name] = GroupListing(name, "", State.EMPTY.value, CLASSIC_TYPE)
    return [found[name] for name in sorted(found) if not wanted_states or found[name].state.lower() in wanted_states]


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
