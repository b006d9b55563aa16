"""ApiVersions (18): the first thing every client asks, before it knows what it may ask.

Versions 0-4. The answer is the registry itself, so that what is advertised is what works; its bytes are made once per
version. A client newer than us is answered UNSUPPORTED_VERSION in version 0, which everybody can read, with the table
(KIP-511); the connection sees to that, because the request's own version cannot be parsed.

Features, which stand in tagged fields from version 3 on, are those of `features`.

Rules: ApiVersionsRequest.json, ApiVersionsResponse.json, ApiVersionsRequest.isValid.
"""

from __future__ import annotations

import re
import struct

from halfmoon.adapters.kafka import features, wire
from halfmoon.adapters.kafka.errors import NONE, MalformedRequest, code
from halfmoon.adapters.kafka.registry import Context, api, registered
from halfmoon.core.errors import Fault

FLEXIBLE = 3
ZERO_LEVELS = 4

ADVERTISED_MIN = {0: 0}
"""Where more is advertised than works: librdkafka takes its codecs from the lowest Produce version (KAFKA-18659).

Apache Kafka 4 does the same, and closes the connection when such a version is really used.
"""

_ROW = struct.Struct(">hhh")
_LEVELS = struct.Struct(">hhx")
"""Two levels, and no tagged fields of their own."""
_INT64 = struct.Struct(">q")
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

_answers: dict[tuple[int, int, int], bytes] = {}


@api(18, "ApiVersions", 0, 4, raw=True)
def handle(ctx: Context, body: memoryview) -> object:
    version = ctx.api_version
    if version >= FLEXIBLE and not _valid(body):
        # In version 0, like every error here: kafka-python reads all errors so, and Java falls back to it.
        return answer(0, code(Fault.INVALID_REQUEST))
    return answer(version, 0)


def unsupported_version() -> bytes:
    """The answer to a version of this very request that we do not know: version 0, whatever was asked."""
    return answer(0, code(Fault.UNSUPPORTED_VERSION))


def answer(version: int, error_code: int) -> bytes:
    """The response's body. Remembered; the registry does not change once the server runs."""
    key = (version, error_code, len(registered()))
    found = _answers.get(key)
    if found is None:
        found = _answers[key] = _encode(version, error_code)
    return found


def _encode(version: int, error_code: int) -> bytes:
    flexible = version >= FLEXIBLE
    apis = sorted((row for row in registered().values() if not row.own), key=lambda row: row.key)
    out = [wire.INT16.pack(error_code), wire.encode_array_size(len(apis), flexible)]
    for row in apis:
        out.append(_ROW.pack(row.key, ADVERTISED_MIN.get(row.key, row.min_version), row.max_version))
        if flexible:
            out.append(b"\x00")
    if version >= 1:
        out.append(wire.INT32.pack(0))
    if flexible:
        out.append(_features(version) if error_code == NONE else b"\x00")
    return b"".join(out)


def _features(version: int) -> bytes:
    """The tagged fields: supported features, the epoch of those in force, those in force."""
    supported = [
        wire.encode_string(each.name, True) + _LEVELS.pack(each.min_level, each.max_level)
        for each in features.supported(version)
    ]
    finalized = [
        wire.encode_string(each.name, True) + _LEVELS.pack(each.level, each.level) for each in features.FEATURES
    ]
    fields = [
        wire.encode_array_size(len(supported), True) + b"".join(supported),
        _INT64.pack(features.EPOCH),
        wire.encode_array_size(len(finalized), True) + b"".join(finalized),
    ]
    tagged = [wire.encode_uvarint(tag) + wire.encode_uvarint(len(field)) + field for tag, field in enumerate(fields)]
    return wire.encode_uvarint(len(tagged)) + b"".join(tagged)


def _valid(body: memoryview) -> bool:
    """Whether the client's software name and version look as KIP-511 demands. Raises MalformedRequest."""
    try:
        name, pos = wire.string(body, 0, True)
        version, pos = wire.string(body, pos, True)
        wire.skip_tags(body, pos)
    except wire.TRUNCATED:
        raise MalformedRequest("the request ends before its last field") from None
    return _SOFTWARE.fullmatch(name) is not None and _SOFTWARE.fullmatch(version) is not None
