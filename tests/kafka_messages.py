"""Messages as a client sends and receives them: with their headers, and framed."""

from __future__ import annotations

import struct
from typing import Any

from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES
from halfmoon.kafka_wire.primitives import encode_string
from halfmoon.kafka_wire.records import Record

API_VERSIONS = 18


def request_bytes(key: int, version: int, correlation_id: int, client_id: str, /, **fields: Any) -> bytes:
    """A framed request."""
    request = REQUESTS[key]
    header = struct.pack(">hhi", key, version, correlation_id) + encode_string(client_id, False)
    # The header ends with no tagged fields where the version may have some.
    said = header + b"\0" * request.api.is_flexible(version) + request.encoder(version)(request(**fields))
    return struct.pack(">i", len(said)) + said


def struct_of(key: int, path: str) -> Any:
    """A struct inside a request: `struct_of(1, "FetchTopic.FetchPartition")`."""
    found = REQUESTS[key]
    for name in path.split("."):
        found = getattr(found, name)
    return found


def made(key: int, path: str, /, **fields: Any) -> Any:
    """One of those."""
    return struct_of(key, path)(**fields)


def read_request(key: int, version: int, said: bytes) -> Any:
    """A request with its header."""
    (size,) = struct.unpack_from(">h", said, 8)
    start = 10 + max(size, 0) + REQUESTS[key].api.is_flexible(version)
    return read(REQUESTS[key], version, said[start:])


def read_answer(key: int, version: int, frame: bytes) -> Any:
    """A response with its header. ApiVersions' is version 0 where it is an error, and its header never has tagged
    fields (KIP-511)."""
    if key == API_VERSIONS and frame[4:6] != bytes(2):
        version = 0
    return read(RESPONSES[key], version, frame[4 + (RESPONSES[key].api.is_flexible(version) and key != API_VERSIONS) :])


def read(kind: Any, version: int, body: bytes) -> Any:
    """A message without its header, which must be all of the bytes."""
    found, end = kind.decoder(version)(memoryview(body), 0)
    assert end == len(body), f"{len(body) - end} bytes are behind the last field"
    return found


def as_dict(record: Any) -> Any:
    """A record with all that is in it as dicts and lists; fields that were not set have their defaults."""
    if isinstance(record, list):
        return [as_dict(each) for each in record]
    if not isinstance(record, Record):
        return record
    return {field.name: as_dict(getattr(record, field.name)) for field in record.DEFINITION.fields}
