"""By which headers and topic configurations a message ends to be of use (docs/ttl.md)."""

from __future__ import annotations

from typing import Final

TTL: Final = "halfmoon.ttl.ms"
"""Header and topic configuration: how long a message is of use, in ms since its timestamp."""
EXPIRES: Final = "halfmoon.expires.ms"
"""Header, the broker's: until when a redelivered message is of use, Unix ms."""
ACTION: Final = "halfmoon.ttl.action"
"""Topic configuration: what becomes of an expired message."""
DROP: Final = "drop"
DEAD_LETTER: Final = "dead-letter"

CARRIED: Final = frozenset((TTL, EXPIRES))
"""The headers that stay with a message while it waits, though their names are the broker's."""
FIRST_TOPIC: Final = "RETRY_TOPIC"
"""Header of a redelivered message: where it was consumed first."""
CONSUMED_TIMESTAMP: Final = "RETRY_TIMESTAMP"
"""Header of a negative acknowledgement: the timestamp of the record that was consumed, Unix ms."""
EXPIRED: Final = "expired: its TTL was over"
"""How the reason of a dead letter begins."""
