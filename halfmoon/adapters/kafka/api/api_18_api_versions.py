"""ApiVersions (18): the first thing every client asks, before it knows what it may ask.

Versions 0-4. The answer is the registry itself, so that what is advertised is what works; its bytes are made once per
version. A client newer than us is answered UNSUPPORTED_VERSION in version 0, which everybody can read, with the table
(KIP-511); the connection sees to that, because the request's own version cannot be parsed.

Features (KIP-584) come in tagged fields, from version 3 on: `features`. Those supported from level 0 on are left out of
the supported ones below version 4, whose readers would refuse them (KIP-1022).

Rules: ApiVersionsRequest.json, ApiVersionsResponse.json, ApiVersionsRequest.isValid.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from halfmoon.adapters.kafka.errors import MalformedRequest, code
from halfmoon.adapters.kafka.features import Feature
from halfmoon.adapters.kafka.registry import ApiTable, Context
from halfmoon.errors import Fault
from halfmoon.kafka_wire import primitives as wire

FLEXIBLE = 3
LEVEL_0 = 4
"""From this version on, features may be supported from level 0."""

ADVERTISED_MIN = {0: 0}
"""Where more is advertised than works: librdkafka takes its codecs from the lowest Produce version (KAFKA-18659).

Apache Kafka 4 does the same, and closes the connection when such a version is really used.
"""

_ROW = struct.Struct(">hhh")
_RANGE = struct.Struct(">hh")
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: Context, body: memoryview) -> object:
    version = ctx.api_version
    if version >= FLEXIBLE:
        software = _software(body)
        if software is None:
            # In version 0, like every error here: kafka-python reads all errors so, and Java falls back to it.
            return answer(ctx.peer.apis, 0, code(Fault.INVALID_REQUEST))
        ctx.peer.software = software
    if ctx.peer.login is not None:
        ctx.peer.login.told_versions()
    return answer(ctx.peer.apis, version, 0)


def unsupported_version(apis: ApiTable) -> bytes:
    """The answer to a version of this very request that we do not know: version 0, whatever was asked."""
    return answer(apis, 0, code(Fault.UNSUPPORTED_VERSION))


def answer(apis: ApiTable, version: int, error_code: int) -> bytes:
    """The response's body. Remembered; the table does not change once the server runs."""
    found = apis.answers.get((version, error_code))
    if found is None:
        found = apis.answers[version, error_code] = _encode(apis, version, error_code)
    return found


def _encode(table: ApiTable, version: int, error_code: int) -> bytes:
    flexible = version >= FLEXIBLE
    apis = sorted((row for row in table.by_key.values() if not row.own), key=lambda row: row.key)
    out = [wire.INT16.pack(error_code), wire.encode_array_size(len(apis), flexible)]
    for row in apis:
        out.append(_ROW.pack(row.key, ADVERTISED_MIN.get(row.key, row.min_version), row.max_version))
        if flexible:
            out.append(b"\x00")
    if version >= 1:
        out.append(wire.INT32.pack(0))
    if flexible:
        out.append(_features(table.features, version))
    return b"".join(out)


def _features(found: Sequence[Feature], version: int) -> bytes:
    """The tagged fields: 0 supported features, 1 the epoch of the finalized ones, 2 those."""
    if not found:
        return b"\x00"
    supported = [each for each in found if each.least > 0 or version >= LEVEL_0]
    tags = {
        0: _ranges([(each.name, each.least, each.level) for each in supported]),
        1: wire.INT64.pack(0),
        2: _ranges([(each.name, each.level, each.level) for each in found if each.level > 0]),
    }
    out = [wire.encode_uvarint(len(tags))]
    for tag, data in tags.items():
        out += [wire.encode_uvarint(tag), wire.encode_uvarint(len(data)), data]
    return b"".join(out)


def _ranges(rows: list[tuple[str, int, int]]) -> bytes:
    """Names with two numbers each."""
    out = [wire.encode_array_size(len(rows), True)]
    for name, first, second in rows:
        out += [wire.encode_string(name, True), _RANGE.pack(first, second), b"\x00"]
    return b"".join(out)


def _software(body: memoryview) -> str | None:
    """The client's name; None where name or version do not look as KIP-511 demands. Raises MalformedRequest."""
    try:
        name, pos = wire.string(body, 0, True)
        version, pos = wire.string(body, pos, True)
        wire.skip_tags(body, pos)
    except wire.TRUNCATED:
        raise MalformedRequest("the request ends before its last field") from None
    return name if _SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version) else None
