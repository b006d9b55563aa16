"""What the kit's brokers have otherwise than others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

DEFAULTS: Mapping[str, Any] = {
    "listeners": {"kafka": {"bind": "127.0.0.1:0"}},
    "log": {"segment_bytes": "16MiB", "flush": "interval"},
    "topics": {"partitions": 1},
    "groups": {"initial_rebalance_delay": "0ms"},
}
"""What a test wants otherwise than a production broker: small files, no waiting for the disk or for group members."""


def laid_over(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`more` laid over `base`, section by section."""
    merged = copy.deepcopy(dict(base))
    for key, value in more.items():
        below = merged.get(key)
        merged[key] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
