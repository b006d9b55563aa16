"""Time-outs, limits and policies of new consumer groups, and what single groups have of their own."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class GroupOverrides(Struct, frozen=True):
    """What a group's own configuration says (`consumer.session.timeout.ms`, `consumer.heartbeat.interval.ms`); None:
    nothing."""

    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None


NO_OVERRIDES = GroupOverrides()


class ConsumerSettings(Struct):
    """The defaults are for tests; the broker's are in `$.groups`."""

    session_timeout_ms: int = 45_000
    heartbeat_min_ms: int = 200
    heartbeat_max_ms: int = 5_000
    heartbeats_per_second: int = 500
    """Of all groups together: the more members there are, the longer their intervals."""
    max_size: int = 10_000
    default_assignor: str = "averagely"
    broker_name: str = "halfmoon"
    """What strategies are told that queues are on."""
    may_upgrade: bool = True
    may_downgrade: bool = True
    overrides: Callable[[str], GroupOverrides] = lambda group: NO_OVERRIDES
    """Asked for a group's own settings, whenever they matter; may be replaced."""

    def session_timeout(self, group: str) -> int:
        """How long a member may be silent, in ms."""
        return self.overrides(group).session_timeout_ms or self.session_timeout_ms

    def heartbeat_interval(self, group: str, members: int) -> int:
        """When a member is to be heard of again, in ms, with so many members in all groups.

        A member learns what is asked of it by the answer to a heartbeat, so this decides how long a rebalance takes.
        """
        own = self.overrides(group).heartbeat_interval_ms
        if own is not None and own < self.session_timeout(group):
            return own
        interval = members * 1_000 // self.heartbeats_per_second
        interval = min(max(interval, self.heartbeat_min_ms), self.heartbeat_max_ms)
        return max(min(interval, self.session_timeout(group) // 3), 1)
