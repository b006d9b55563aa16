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
from halfmoon.kafka_wire.records import Record
from halfmoon.kafka_wire.slices import Slices, release

__all__ = [
    "LARGE_BYTES", "REQUESTS", "RESPONSES", "Slices", "decode_request", "decode_request_slices", "encode_response",
    "encode_response_slices", "is_flexible", "release",
]  # fmt: skip

LARGE_BYTES = 4 << 10
"""A longer request is read in slices: up to here it has elements for a millisecond or two."""


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


def decode_request_slices(api_key: int, api_version: int, body: memoryview) -> Slices[Any]:
    """As `decode_request`, in slices where the body is a large one."""
    if len(body) <= LARGE_BYTES:
        return decode_request(api_key, api_version, body)
    return (yield from REQUESTS[api_key].decode_slices(body, api_version, Elements()))


def encode_response_slices(api_version: int, response: Any) -> Slices[list[bytes]]:
    """As `encode_response`, in slices and pieces. What the response consists of is let go of meanwhile."""
    pieces: list[bytes] = yield from response.encode_slices(api_version)
    if isinstance(response, Record):
        yield from release(response)
    return pieces


def encode_response(api_version: int, response: Any) -> bytes:
    """The body of a response (without its header) in the version of its request."""
    encoded: bytes = response.encode(api_version)
    return encoded
