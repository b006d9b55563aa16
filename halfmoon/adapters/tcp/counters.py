"""What a listener counts: plain numbers, which whoever serves metrics may read at any time."""

from __future__ import annotations

from collections import defaultdict

from halfmoon.core.durations import REQUEST_BUCKETS_S, Durations


class RequestMetrics:
    """Of one kind of request."""

    __slots__ = ("count", "durations")

    def __init__(self) -> None:
        self.count = 0
        """Those that came."""
        self.durations = Durations(REQUEST_BUCKETS_S)
        """From a request's arrival to its answer, waiting included."""


class Counters:
    """Since the start, but for `connections`."""

    __slots__ = (
        "accepted", "bytes_in", "bytes_out", "connections", "errors", "idle_closed", "malformed", "refused", "requests",
    )  # fmt: skip

    def __init__(self) -> None:
        self.connections = 0
        """Open now."""
        self.accepted = 0
        self.refused = 0
        """Connections over the limit."""
        self.idle_closed = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.malformed = 0
        """Connections closed because a request made no sense."""
        self.errors = 0
        """Requests that a handler failed on, and ones for what is not offered."""
        self.requests: defaultdict[int, RequestMetrics] = defaultdict(RequestMetrics)
        """By API key, or request code."""
