"""How fast something happens: a rate over sliding windows, and a bucket of tokens.

Both measure as Kafka's do (org.apache.kafka.common.metrics.stats.Rate, SampledStat, TokenBucket), since what a quota of
so many bytes a second means to a client is decided by these details: a rate is what was counted in the last
`windows` windows, divided by their time, and by that of `windows - 1` at least. So a client that was silent may at
first have at once what it may have in that time.

Times are monotonic ms.
"""

from __future__ import annotations

MOST_WAIT_MS = 2**31 - 1
"""No wait is longer: an answer has 32 bits to tell it in."""


class _Window:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """Something per second, over windows."""

    __slots__ = ("_most", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._most = windows
        self._window_ms = window_ms
        self._windows: list[_Window] = []

    def record(self, value: float, now_ms: int) -> None:
        """`value` may be negative, to take back what was recorded."""
        windows = self._windows
        if not windows or now_ms - windows[-1].start_ms >= self._window_ms:
            self._drop_old(now_ms)
            windows.append(_Window(now_ms))
        current = windows[-1]
        current.total += value
        current.last_ms = now_ms

    def _drop_old(self, now_ms: int) -> None:
        """Windows in which nothing happened for long enough. One that overlaps the time looked at is kept whole."""
        windows = self._windows
        while windows and now_ms - windows[0].last_ms >= self._most * self._window_ms:
            del windows[0]

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is measured over."""
        self._drop_old(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = self._most - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)

    def per_second(self, now_ms: int) -> float:
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(window.total for window in self._windows) * 1000 / elapsed_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long nothing must happen for the rate to be at `bound` again; 0 if it is not above it."""
        rate = self.per_second(now_ms)
        return round(min((rate - bound) / bound * self.elapsed_ms(now_ms), MOST_WAIT_MS)) if rate > bound else 0

    def idle_since_ms(self) -> int:
        """When anything was recorded last; 0 if nothing is remembered."""
        return self._windows[-1].last_ms if self._windows else 0


class TokenBucket:
    """Tokens that are refilled at so many a second. It may be in debt."""

    __slots__ = ("_burst_s", "_last_ms", "_tokens")

    def __init__(self, burst_s: float) -> None:
        """A full bucket has what is refilled in `burst_s` seconds."""
        self._burst_s = burst_s
        self._tokens: float | None = None
        self._last_ms = 0

    def tokens(self, per_second: float, now_ms: int) -> float:
        full = per_second * self._burst_s
        if self._tokens is None:
            self._tokens = full
        self._tokens = min(full, self._tokens + per_second * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
        return self._tokens

    def take(self, value: float, per_second: float, now_ms: int) -> None:
        self._tokens = self.tokens(per_second, now_ms) - value

    def throttle_ms(self, per_second: float, now_ms: int) -> int:
        """How long until it is out of debt; 0 if it is not in debt."""
        debt = max(0.0, -self.tokens(per_second, now_ms))
        return round(min(debt / per_second * 1000, MOST_WAIT_MS))

    def idle_since_ms(self) -> int:
        return self._last_ms
