"""A record, as a test looks at it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """As it stands in its partition. `timestamp_ms`: Unix ms."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def header(self, name: str) -> bytes | None:
        """The last one of this name; None where there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)
