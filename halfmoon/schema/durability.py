"""What makes a topic's messages durable before they are acknowledged, as the topic says it: where a cluster has both
kinds of shards (cluster/engine/pieces.Durability). And how many nodes serve its readers."""

from __future__ import annotations

from typing import Final

DURABILITY: Final = "halfmoon.durability"
"""The topic's configuration, which is set when it is made."""
FAST: Final = "fast"
OBJECT: Final = "object"
REPLICATION_FACTOR: Final = "halfmoon.replication.factor"
"""The one that a topic was made with in a cluster: how many nodes are named as replicas, so in how many racks consumers
can read. No message is kept more often."""
