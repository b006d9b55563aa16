"""What a consumer said it subscribes to, read out of the metadata it joined with.

The metadata is written by one client and read by another; the coordinator passes it on unread, but two questions need
its topics: may offsets of a topic be deleted (the group must not be subscribed to it), and has a static member come
back with another subscription. Every version of the format starts like version 0 (Kafka's
ConsumerProtocolSubscription):

    0        2              6
    +--------+--------------+---------------------------------+----
    | version| topic count  | topic: length (int16) and UTF-8 | …    what follows is user data and newer fields
    | int16  | int32        |                                 |
    +--------+--------------+---------------------------------+----
"""

from __future__ import annotations

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type whose metadata has this form; Kafka Connect and others bring their own."""

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topic names in `metadata`; None if it does not have this form (a peer may send anything here)."""
    try:
        _, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        topics = set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if count >= 0 else None
