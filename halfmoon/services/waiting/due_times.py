"""When which waiting message is due: a timing wheel of three levels (Varghese and Lauck, 1987), packed.

    hours → seconds → milliseconds

A message enters at the level that its distance allows and moves down as its time comes near, so that adding and moving
cost the same whatever is there. An entry takes 12 bytes far away, 8 bytes near. The wheel is made from the consume
queues of the waiting messages, whose entries hold their due times (B29), and can be made again from them.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush

HOUR_MS = 3_600_000
SECOND_MS = 1_000
QUEUE_BITS, OFFSET_BITS = 14, 40
MAX_QUEUES = 1 << QUEUE_BITS
_OFFSET_MASK = (1 << OFFSET_BITS) - 1
_KEY_BITS = QUEUE_BITS + OFFSET_BITS
_KEY_MASK = (1 << _KEY_BITS) - 1

MOVED = 2_000
"""Entries that move down at once: 0.5 ms."""

SORTED = 20_000
"""So many that are due in one millisecond are given in the order of their queues; more would take too long to sort."""

Due = tuple[int, int, int]
"""Due time (ms), queue, offset."""


class DueTimes:
    """`queue` is a small number that the caller knows a queue by (below MAX_QUEUES)."""

    def __init__(self) -> None:
        self._count = 0
        self._hours: dict[int, tuple[array[int], array[int]]] = {}
        """Hour → ms within it, and key."""
        self._seconds: dict[int, array[int]] = {}
        """Second → ms within it << 54 | key."""
        self._millis: dict[int, array[int]] = {}
        """Millisecond → key."""
        self._next_hours: list[int] = []
        self._next_seconds: list[int] = []
        self._next_millis: list[int] = []
        """Heaps of the keys of the three dicts."""
        self._hours_upto = 0
        """Hours below it have moved down; and so on."""
        self._seconds_upto = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, queue: int, offset: int) -> None:
        self._count += 1
        self._add(max(due_ms, 0), queue << OFFSET_BITS | offset)

    def _add(self, due_ms: int, key: int) -> None:
        hour = due_ms // HOUR_MS
        if hour >= self._hours_upto:
            far = self._hours.get(hour)
            if far is None:
                far = self._hours[hour] = array("I"), array("Q")
                heappush(self._next_hours, hour)
            far[0].append(due_ms - hour * HOUR_MS)
            far[1].append(key)
            return
        second = due_ms // SECOND_MS
        if second >= self._seconds_upto:
            near = self._seconds.get(second)
            if near is None:
                near = self._seconds[second] = array("Q")
                heappush(self._next_seconds, second)
            near.append((due_ms - second * SECOND_MS) << _KEY_BITS | key)
            return
        now = self._millis.get(due_ms)
        if now is None:
            now = self._millis[due_ms] = array("Q")
            heappush(self._next_millis, due_ms)
        now.append(key)

    def next_ms(self) -> int | None:
        """No message is due before; the caller should come back then. None: none waits."""
        nearest = []
        if self._next_millis:
            nearest.append(self._next_millis[0])
        if self._next_seconds:
            nearest.append((self._next_seconds[0] - 1) * SECOND_MS)
        if self._next_hours:
            nearest.append((self._next_hours[0] - 1) * HOUR_MS)
        return min(nearest, default=None)

    def overdue_ms(self, now_ms: int) -> int:
        """For how long the earliest of what is due has been due."""
        return max(0, now_ms - self._next_millis[0]) if self._next_millis else 0

    def move_down(self, now_ms: int) -> bool:
        """Move what comes near, at most `MOVED` entries; whether there is more to move.

        Hours move down an hour ahead, seconds a second ahead, so that nothing is late for it.
        """
        left = MOVED
        while self._next_hours and self._next_hours[0] <= now_ms // HOUR_MS + 1:
            hour = self._next_hours[0]
            self._hours_upto = max(self._hours_upto, hour + 1)
            within, keys = self._hours[hour]
            while keys and left:
                self._add(hour * HOUR_MS + within.pop(), keys.pop())
                left -= 1
            if keys:
                return True
            heappop(self._next_hours)
            del self._hours[hour]
        while self._next_seconds and self._next_seconds[0] <= now_ms // SECOND_MS + 1:
            second = self._next_seconds[0]
            self._seconds_upto = max(self._seconds_upto, second + 1)
            packed = self._seconds[second]
            while packed and left:
                entry = packed.pop()
                self._add(second * SECOND_MS + (entry >> _KEY_BITS), entry & _KEY_MASK)
                left -= 1
            if packed:
                return True
            heappop(self._next_seconds)
            del self._seconds[second]
        return False

    def pop(self, now_ms: int, limit: int) -> list[Due]:
        """Take out up to `limit` messages that are due, the earliest first; what has moved down counts."""
        found: list[Due] = []
        while self._next_millis and self._next_millis[0] <= now_ms and len(found) < limit:
            due_ms = self._next_millis[0]
            keys = self._millis[due_ms]
            wanted = limit - len(found)
            if len(keys) <= SORTED:
                keys = self._millis[due_ms] = array("Q", sorted(keys, reverse=True))
            taken = keys[-wanted:]
            del keys[-wanted:]
            if not keys:
                heappop(self._next_millis)
                del self._millis[due_ms]
            found += [(due_ms, key >> OFFSET_BITS, key & _OFFSET_MASK) for key in reversed(taken)]
        self._count -= len(found)
        return found
