"""Which member of a group may consume a queue, where messages are consumed in order (B21).

A member that asks gets a queue nobody else holds; it keeps it by asking again, and loses it when it has not asked for
`expire_ms`. Nothing of it is written down: after a restart whoever asks first has the queue, and the members, which
trust their lock for half as long, ask again at once (org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager).

A lock is not given up when a connection closes: its client may be consuming still, and another must not begin. It is
when the client says that it leaves. A request to lock that another of the client's threads had under way then is not
heard: RocketMQ's Java client renews by a timer that it does not wait for when it stops.

No clock: times are monotonic milliseconds that the caller passes in.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

MOST_LOCKS = 100_000
"""Of all groups: each takes some 300 bytes."""
LATE_MS = 10_000
"""For so long a member that has left gets no locks, if it does not come back; clients wait 1 s for their answer."""

Queue = TypeVar("Queue", bound=Hashable)


class Lock(NamedTuple):
    member: str
    until_ms: int


class QueueLocks:
    """The locks of all groups, by any hashable that names a queue."""

    def __init__(self, expire_ms: int) -> None:
        self._expire_ms = expire_ms
        self._groups: dict[str, dict[Hashable, Lock]] = {}
        self._count = 0
        self._left: dict[tuple[str, str], int] = {}
        """(Group, member) → until when its requests are late ones."""

    def put_off(self, by_ms: int) -> None:
        """The clock has leapt, which is nobody's silence."""
        for locks in self._groups.values():
            for queue, lock in locks.items():
                locks[queue] = Lock(lock.member, lock.until_ms + by_ms)

    def lock(self, group: str, member: str, queues: Iterable[Queue], mono_ms: int) -> list[Queue]:
        """Those of the queues that the member holds now, newly or still. None is given out while `MOST_LOCKS` are."""
        if self._left and mono_ms < self._left.get((group, member), mono_ms):
            return []
        locks = self._groups.setdefault(group, {})
        given = Lock(member, mono_ms + self._expire_ms)
        held = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= MOST_LOCKS:
                    continue
                self._count += 1
            if lock is None or lock.member == member or lock.until_ms <= mono_ms:
                locks[queue] = given
                held.append(queue)
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, member: str, queues: Sequence[Hashable]) -> None:
        """Give up queues; those that others hold are left alone."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.member == member:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def left(self, group: str, member: str, mono_ms: int) -> None:
        """The member has said that it leaves the group: it gives up all queues."""
        held = [queue for queue, lock in self._groups.get(group, {}).items() if lock.member == member]
        self.unlock(group, member, held)
        self._left[group, member] = mono_ms + LATE_MS

    def is_there(self, group: str, member: str) -> None:
        """The member has said so; it may have left before."""
        self._left.pop((group, member), None)

    def is_ordered(self, group: str, mono_ms: int) -> bool:
        """Whether the group holds any lock: then it consumes in order."""
        return any(lock.until_ms > mono_ms for lock in self._groups.get(group, {}).values())

    def holder(self, group: str, queue: Hashable, mono_ms: int) -> str | None:
        lock = self._groups.get(group, {}).get(queue)
        return lock.member if lock is not None and lock.until_ms > mono_ms else None

    def held(self, mono_ms: int) -> int:
        """How many queues are locked, of all groups."""
        return sum(lock.until_ms > mono_ms for locks in self._groups.values() for lock in locks.values())

    def expire(self, mono_ms: int) -> None:
        """Forget what has expired; now and then, so that groups that are gone leave nothing."""
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if lock.until_ms <= mono_ms]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._groups[group]
        for who in [who for who, until_ms in self._left.items() if until_ms <= mono_ms]:
            del self._left[who]
