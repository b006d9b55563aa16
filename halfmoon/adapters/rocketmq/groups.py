"""Groups of RocketMQ's consumers, as the broker's groups see them (services/groups/names.py: OtherProtocolGroups)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from halfmoon.adapters.rocketmq.members import Members
from halfmoon.adapters.rocketmq.progress import AnyProgress
from halfmoon.services.groups.names import MemberDescription


def speaks_kafka(group: str) -> str:
    """Why a consumer of RocketMQ's cannot be a member now."""
    return f"members of group '{group}' speak Kafka's protocol now; a group's members speak one at a time"


class ConsumersElsewhere:
    """Consumers that other shards have told of: most are connected here too, but not those of a group whose retry topic
    they have not heard of yet, or that consumes as a broadcast."""

    def __init__(self, timeout_ms: int, mono_ms: Callable[[], int]) -> None:
        self._timeout_ms = timeout_ms
        self._mono_ms = mono_ms
        self._groups: dict[str, dict[tuple[str, int], tuple[str, int]]] = {}
        """Group → (client id, shard) → (its host, until when it is one)."""
        self._in_order: dict[str, dict[int, int]] = {}
        """Group → shard → until when it has locks there."""

    def seen(self, group: str, client_id: str, host: str, shard: int) -> None:
        self._groups.setdefault(group, {})[client_id, shard] = host, self._mono_ms() + self._timeout_ms

    def put_off(self, by_ms: int) -> None:
        """The clock has leapt, which is nobody's silence."""
        for known in self._groups.values():
            for key, (host, until_ms) in known.items():
                known[key] = host, until_ms + by_ms
        for held in self._in_order.values():
            for shard in held:
                held[shard] += by_ms

    def left(self, group: str, client_id: str, shard: int) -> None:
        known = self._groups.get(group)
        if known is not None:
            known.pop((client_id, shard), None)
            if not known:
                del self._groups[group]

    def holds_locks(self, group: str, shard: int, until_ms: int) -> None:
        """Consumers of the group hold queues to themselves in a shard, until then."""
        self._in_order.setdefault(group, {})[shard] = until_ms

    def is_ordered(self, group: str) -> bool:
        now_ms = self._mono_ms()
        return any(now_ms < until_ms for until_ms in self._in_order.get(group, {}).values())

    def of(self, group: str) -> dict[str, str]:
        """Client id → host."""
        known, now_ms = self._groups.get(group), self._mono_ms()
        if known is None:
            return {}
        return {client_id: host for (client_id, _), (host, until_ms) in known.items() if now_ms < until_ms}

    def groups(self) -> list[str]:
        return [group for group in self._groups if self.of(group)]

    def expire(self) -> None:
        now_ms = self._mono_ms()
        for group, known in list(self._groups.items()):
            for client_id, shard in [key for key, (_, until_ms) in known.items() if until_ms <= now_ms]:
                self.left(group, client_id, shard)
        for group in [group for group in self._in_order if not self.is_ordered(group)]:
            del self._in_order[group]


class Groups:
    protocol_type = "rocketmq"

    def __init__(self, members: Members, progress: AnyProgress, elsewhere: ConsumersElsewhere) -> None:
        self._members = members
        self._progress = progress
        self._elsewhere = elsewhere

    def has_members(self, group: str) -> bool:
        return self._members.has_consumers(group) or bool(self._elsewhere.of(group))

    def members(self, group: str) -> Sequence[MemberDescription]:
        known, elsewhere = self._members.consumer_group(group), self._elsewhere.of(group)
        found = []
        for member in known.members.values() if known is not None else ():
            elsewhere.pop(member.client_id, None)
            found.append((member.client_id, member.connection.peer_host))
        return [
            MemberDescription(name, None, name, f"/{host}", b"", b"") for name, host in (*found, *elsewhere.items())
        ]

    def groups(self) -> Iterable[str]:
        return list(dict.fromkeys([*self._members.consumers, *self._elsewhere.groups()]))

    def write_offsets(self, group: str) -> None:
        self._progress.write(group)
