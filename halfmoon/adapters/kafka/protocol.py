"""Kafka's messages as objects, as handlers know them; `halfmoon/kafka_wire` defines, reads and writes them.

Handlers take their messages from here by name and never see bytes:

    from halfmoon.adapters.kafka.protocol import MetadataResponse
    MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(node_id=0, host="h", port=1, rack=None)], ...)

A field outside the message's version reads as its default and is left out when encoding, so one handler serves all
versions. Defaults that are lists are shared, so never append to one that you did not set; a uuid field is a `uuid.UUID`
and None when all zeroes; a bitfield (`authorized_operations`) takes None for "not asked".
"""

from __future__ import annotations

from typing import Any

from halfmoon.kafka_wire.decoding import Elements
from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES, message
from halfmoon.kafka_wire.primitives import MAX_ELEMENTS

__all__ = ["REQUESTS", "RESPONSES", "decode_request", "encode_response", "is_flexible"]


def __getattr__(name: str) -> Any:
    """A message by its name."""
    if not name.endswith(("Request", "Response")):
        raise AttributeError(name)
    return message(name)


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version's messages carry compact strings and tagged fields (KIP-482)."""
    return REQUESTS[api_key].api.is_flexible(api_version)


def decode_request(api_key: int, api_version: int, body: memoryview) -> Any:
    """The request object of a body (what follows the request header). Raises MalformedRequest."""
    return REQUESTS[api_key].decode(body, api_version, Elements() if len(body) > MAX_ELEMENTS else None)


def encode_response(api_version: int, response: Any) -> bytes:
    """The body of a response (without its header) in the version of its request."""
    encoded: bytes = response.encode(api_version)
    return encoded
