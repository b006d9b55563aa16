"""When which waiting message is due: a timing wheel for delays and one for times of the wall clock (due_clock.py).

What is added is as it was written down, by the wall clock of the time when the message came. An entry that comes out is
a time of its wheel, and can be put back as it is.
"""

from __future__ import annotations

from halfmoon.services.waiting.due_clock import DueClock
from halfmoon.services.waiting.due_times import Due, DueTimes


class Schedule:
    def __init__(self, clock: DueClock) -> None:
        self._clock = clock
        self._delays = DueTimes()
        self._times = DueTimes()
        self._by_wall: set[int] = set()
        """Queues whose messages are due at a time of the wall clock."""
        self._shifts: dict[tuple[int, int], int] = {}
        """Queue and offset of a delay that was added while its time was ahead of the wall clock: by how much."""

    def __len__(self) -> int:
        return len(self._delays) + len(self._times)

    @property
    def shifted(self) -> int:
        """Messages whose delays are counted by a time ahead of the wall clock; each takes some memory."""
        return len(self._shifts)

    def is_by_wall(self, queue: int) -> None:
        """The messages of this queue are due at a time of the wall clock."""
        self._by_wall.add(queue)

    def now_ms(self, queue: int) -> int:
        """By the clock of its messages."""
        return self._clock.wall_ms() if queue in self._by_wall else self._clock.now_ms()

    def add(self, due_ms: int, queue: int, offset: int, *, at_start: bool = False) -> None:
        """`due_ms` as it was written down; `at_start`: before this start."""
        if queue in self._by_wall:
            self._times.add(due_ms, queue, offset)
            return
        shift_ms = 0 if at_start else self._clock.ahead_ms()
        if shift_ms:
            self._shifts[queue, offset] = shift_ms
        self._delays.add(due_ms + shift_ms, queue, offset)

    def add_again(self, due_ms: int, queue: int, offset: int) -> None:
        """Some of these messages are due later; `due_ms` as it was written down."""
        self.put_back((due_ms + self._shifts.get((queue, offset), 0), queue, offset))

    def put_back(self, due: Due) -> None:
        """As it came out."""
        (self._times if due[1] in self._by_wall else self._delays).add(*due)

    def put_off(self, due: Due, by_ms: int) -> None:
        """Try it again after so long."""
        _, queue, offset = due
        self.put_back((self.now_ms(queue) + by_ms, queue, offset))

    def written_ms(self, now_ms: int, queue: int, offset: int) -> int:
        """A time of the wheel as it would have been written down for this message."""
        return now_ms - self._shifts.get((queue, offset), 0)

    def done(self, queue: int, offset: int) -> None:
        """It does not come back."""
        self._shifts.pop((queue, offset), None)

    def move_down(self) -> bool:
        """As of DueTimes."""
        return self._delays.move_down(self._clock.now_ms()) or self._times.move_down(self._clock.wall_ms())

    def pop(self, limit: int) -> list[Due]:
        """What is due, the earliest first."""
        found = self._delays.pop(self._clock.now_ms(), limit)
        return found + self._times.pop(self._clock.wall_ms(), limit - len(found))

    def next_mono_ms(self) -> int | None:
        """When to look again, by the monotonic clock; None: nothing waits."""
        left = [
            next_ms - now_ms
            for next_ms, now_ms in (
                (self._delays.next_ms(), self._clock.now_ms()),
                (self._times.next_ms(), self._clock.wall_ms()),
            )
            if next_ms is not None
        ]
        return self._clock.mono_ms(min(left)) if left else None

    def overdue_ms(self) -> int:
        """For how long the earliest of what is due has been due."""
        delays, times = self._delays, self._times
        return max(delays.overdue_ms(self._clock.now_ms()), times.overdue_ms(self._clock.wall_ms()))
