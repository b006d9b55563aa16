"""Features of the cluster, as ApiVersions tells them (KIP-584): what a client may rely on beside the APIs themselves.

One line for each. A feature is listed once everything that its level promises is here: clients choose their protocol by
it, and do not look back.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """Levels that this broker can do, and the one that is in force. The lowest is 0 where it can be switched off."""

    name: str
    min_level: int
    max_level: int
    level: int


FEATURES: tuple[Feature, ...] = (
    Feature("group.version", 0, 1, 1),  # consumer groups where the broker assigns (KIP-848)
    Feature("share.version", 0, 1, 1),  # share groups (KIP-932)
    Feature("transaction.version", 0, 2, 2),  # each end raises the epoch, batches add their partition (KIP-890)
)

EPOCH = 0
"""Of the list of levels in force; it would move if they could be changed."""


def supported(api_version: int) -> list[Feature]:
    """What a request of this version is told of: before version 4 no feature with level 0, which clients could not
    take (KIP-1022)."""
    return [feature for feature in FEATURES if api_version >= 4 or feature.min_level > 0]
