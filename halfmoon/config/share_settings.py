"""`$.groups.share`: what broker.yaml may set for share groups (KIP-932).

What the settings mean, and what a single group may set itself, is services/share/options.py.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta

from halfmoon.config.sections import Section, SettingError
from halfmoon.config.units import PositiveDuration, format_duration

LockDuration = Annotated[PositiveDuration, Meta(ge=1_000, le=3_600_000)]
Reset = Annotated[str, Meta(pattern=r"^(latest|earliest|by_duration:.+)$")]

LATEST_MS, EARLIEST_MS = -1, -2

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?(?:T(?=\d)(?:(?P<hours>\d{1,8})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,10})(?:\.(?P<fraction>\d{1,9}))?S)?)?"
)


class ShareSettings(Section, frozen=True, kw_only=True):
    """`$.groups.share`: what a share group gets that does not say otherwise."""

    session_timeout_ms: PositiveDuration = 45_000
    heartbeat_interval_ms: PositiveDuration = 5_000
    record_lock_duration_ms: LockDuration = 30_000
    delivery_count_limit: Annotated[int, Meta(ge=2, le=100)] = 5
    partition_max_record_locks: Annotated[int, Meta(ge=100, le=100_000)] = 2_000
    auto_offset_reset: Reset = "latest"
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    renew_acknowledge: bool = True
    dead_letters: bool = True
    """Whether what is rejected or exhausted goes to `dlq.<group>`; as in Kafka, it is only finished if not."""
    max_size: Annotated[int, Meta(ge=1)] = 200
    max_sessions: Annotated[int, Meta(ge=1)] = 2_000

    def __post_init__(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise SettingError(
                "heartbeat_interval",
                f"got {format_duration(self.heartbeat_interval_ms)}, expected less than session_timeout "
                f"({format_duration(self.session_timeout_ms)})",
            )
        if reset_ms(self.auto_offset_reset) is None:
            raise SettingError(
                "auto_offset_reset",
                f"got '{self.auto_offset_reset}', expected latest, earliest, or by_duration: and a duration like PT1H",
            )


def reset_ms(reset: str) -> int | None:
    """How long before now a group begins: LATEST_MS, EARLIEST_MS, or ms. None if it says neither of them."""
    if reset == "latest":
        return LATEST_MS
    if reset == "earliest":
        return EARLIEST_MS
    match = (
        _DURATION.fullmatch(reset.removeprefix("by_duration:").upper()) if reset.startswith("by_duration:") else None
    )
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    fraction_ms = int((match["fraction"] or "0").ljust(3, "0")[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000 + fraction_ms
