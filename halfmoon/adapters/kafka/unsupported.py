"""What of Kafka's protocol is not offered, and why: every API of Kafka 4.3.1 that ApiVersions does not list here.

docs/compatibility.md shows this table. A test compares it with Kafka's own list and with what is registered.
"""

from __future__ import annotations

from typing import NamedTuple


class Unsupported(NamedTuple):
    key: int
    name: str
    why: str


_NO_CONTROLLERS = "there is no quorum of controllers"
_BETWEEN_BROKERS = "brokers of Kafka ask it of each other; here it is kept in the log of the partition itself"
_NO_STREAMS_GROUPS = "there are no Streams groups (KIP-1071); Kafka Streams works with `group.protocol=classic`"

UNSUPPORTED = (
    Unsupported(64, "UnregisterBroker", _NO_CONTROLLERS),
    Unsupported(80, "AddRaftVoter", _NO_CONTROLLERS),
    Unsupported(81, "RemoveRaftVoter", _NO_CONTROLLERS),
    Unsupported(83, "InitializeShareGroupState", _BETWEEN_BROKERS),
    Unsupported(84, "ReadShareGroupState", _BETWEEN_BROKERS),
    Unsupported(85, "WriteShareGroupState", _BETWEEN_BROKERS),
    Unsupported(86, "DeleteShareGroupState", _BETWEEN_BROKERS),
    Unsupported(87, "ReadShareGroupStateSummary", _BETWEEN_BROKERS),
    Unsupported(88, "StreamsGroupHeartbeat", _NO_STREAMS_GROUPS),
    Unsupported(89, "StreamsGroupDescribe", _NO_STREAMS_GROUPS),
)
"""By key."""


def table() -> str:
    """As Markdown, for the documentation."""
    rows = [f"| {each.key} | {each.name} | {each.why} |" for each in UNSUPPORTED]
    return "\n".join(["| key | API | why not |", "|---|---|---|", *rows])
