"""Metrics of the key index."""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.metrics import Family, Put


class KeyIndex(Protocol):
    @property
    def behind_bytes(self) -> int: ...
    def entries(self) -> int: ...


FAMILIES = (
    Family("halfmoon_key_index_entries", "gauge", "Keys and moved messages in the key index."),
    Family("halfmoon_key_index_behind_bytes", "gauge", "Bytes of the log that are not indexed yet."),
)


def read(index: KeyIndex, put: Put) -> None:
    put("halfmoon_key_index_entries", index.entries())
    put("halfmoon_key_index_behind_bytes", index.behind_bytes)
