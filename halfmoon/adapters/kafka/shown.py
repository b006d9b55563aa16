"""A service of processes with several shards: what topics show that other shards know of (`shard_entries`)."""

from __future__ import annotations

from collections.abc import Mapping


class ShownEntries:
    def __init__(self) -> None:
        self.of: dict[int, Mapping[str, str]] = {}
        """Topic number → its entries, as they were when somebody has asked for them last."""
