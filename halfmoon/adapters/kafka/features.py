"""Features that ApiVersions names (KIP-584): what clients may take for granted beside the versions of APIs.

In Kafka a feature has a level that is finalized for the whole cluster. Here it is what this version does.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    name: str
    min_level: int
    max_level: int

    @property
    def level(self) -> int:
        """The one in force."""
        return self.max_level


FEATURES = (
    # Share groups (KIP-932).
    Feature("share.version", 0, 1),
)

EPOCH = 1
"""How often the levels were changed; they are this program's."""
