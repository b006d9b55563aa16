"""Groups of RocketMQ's consumers, as the broker's groups see them (services/groups/names.py: OtherProtocolGroups)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from halfmoon.adapters.rocketmq.members import Members
from halfmoon.adapters.rocketmq.progress import Progress
from halfmoon.services.groups.names import MemberDescription


class Groups:
    protocol_type = "rocketmq"

    def __init__(self, members: Members, progress: Progress) -> None:
        self._members = members
        self._progress = progress

    def has_members(self, group: str) -> bool:
        return self._members.has_consumers(group)

    def members(self, group: str) -> Sequence[MemberDescription]:
        known = self._members.consumer_group(group)
        return [
            MemberDescription(member.client_id, None, member.client_id, f"/{member.connection.peer_host}", b"", b"")
            for member in (known.members.values() if known is not None else ())
        ]

    def groups(self) -> Iterable[str]:
        return list(self._members.consumers)

    def write_offsets(self, group: str) -> None:
        self._progress.write(group)
