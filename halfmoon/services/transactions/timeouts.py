"""When transactions time out: a heap of deadlines. All times are monotonic milliseconds that the caller passes in."""

from __future__ import annotations

import heapq

_SMALL = 64
"""Heaps up to this many entries are never swept."""


class Timeouts:
    """One deadline for each ongoing transaction. A transactional id has at most one of those."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str]] = []
        """(deadline, the transaction's number, transactional id). Entries of transactions that have ended stay until
        they come up, or until a sweep."""
        self._numbers: dict[str, int] = {}
        """Transactional id → the number of its ongoing transaction."""
        self._next_number = 0

    def __len__(self) -> int:
        """Entries of the heap."""
        return len(self._heap)

    def began(self, name: str, deadline_ms: int) -> None:
        self._next_number += 1
        self._numbers[name] = self._next_number
        heapq.heappush(self._heap, (deadline_ms, self._next_number, name))
        if len(self._heap) > _SMALL and len(self._heap) > 4 * len(self._numbers):  # most ended long before their time
            self._heap = [entry for entry in self._heap if self._is_current(entry)]
            heapq.heapify(self._heap)

    def ended(self, name: str) -> None:
        self._numbers.pop(name, None)

    def next_deadline(self) -> int | None:
        """The earliest; None while nothing is ongoing."""
        heap = self._heap
        while heap and not self._is_current(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, mono_ms: int) -> str | None:
        """The transactional id whose transaction has been open for too long, the earliest of them. It is due until it
        has ended, or is put off."""
        deadline_ms = self.next_deadline()
        return None if deadline_ms is None or deadline_ms > mono_ms else self._heap[0][2]

    def retry_at(self, deadline_ms: int) -> None:
        """The one that `due` returned could not be ended: it is due again then."""
        heapq.heapreplace(self._heap, (deadline_ms, *self._heap[0][1:]))

    def _is_current(self, entry: tuple[int, int, str]) -> bool:
        """Whether the transaction that an entry stands for is still the ongoing one of its id."""
        _, number, name = entry
        return self._numbers.get(name) == number
