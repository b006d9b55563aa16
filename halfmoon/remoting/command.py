"""The frame of RocketMQ's remoting protocol, and its two headers.

(org.apache.rocketmq.remoting.protocol.RemotingCommand, RocketMQSerializable.)

    frame:   length of what follows int32 · header's type << 24 | header's length, int32 · header · body
    type 0:  JSON {code, extFields, flag, language, opaque, remark, serializeTypeCurrentRPC, version}
    type 1:  code int16 · language int8 · version int16 · opaque int32 · flag int32 · remark's length int32 · remark
             · length of all fields int32 · { name's length int16 · name · value's length int32 · value }*

All numbers are big-endian, all texts UTF-8, all fields' values text. `flag`: bit 0 marks an answer, bit 1 a request
without one. `opaque` is the request's number, which the answer repeats. Either side may answer in either type; here it
is the request's.

What cannot be read raises MalformedFrame, whatever the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from halfmoon.remoting import lenient_json
from halfmoon.remoting.errors import MalformedFrame, MalformedJson
from halfmoon.remoting.json_header import JsonHeader

JSON, ROCKETMQ = 0, 1
RESPONSE, ONEWAY = 1, 2
VERSION: Final = 479
"""V5_3_3. From a heartbeat's answer clients conclude what a broker can do: below 232 none of them filters by SQL92."""
MAX_FRAME_BYTES: Final = 16 << 20
"""com.rocketmq.remoting.frameMaxLength."""
MAX_HEADER_BYTES: Final = 1 << 20
"""32 KiB of properties, each character escaped, fit several times."""

LANGUAGES: Final[tuple[str, ...]] = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
"""By number (LanguageCode)."""
OWN_LANGUAGE: Final = "PYTHON"

_OWN_LANGUAGE: Final = LANGUAGES.index(OWN_LANGUAGE)
_LENGTHS: Final = struct.Struct(">iI")
_HEAD: Final = struct.Struct(">hBhiii")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")


MOST_FIELDS: Final = 1_000
"""Of a header. A million of them would fit into one, and take a second to read."""


class Command(Struct):
    """A request or an answer. `body` is what follows the header; a view, if it was decoded from one."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = VERSION
    language: str = OWN_LANGUAGE
    remark: str | None = None
    fields: dict[str, str] = {}
    body: memoryview | bytes = b""
    kind: int = JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY)


_decode_json: Final = msgspec.json.Decoder(JsonHeader).decode
_encode_json: Final = msgspec.json.Encoder().encode


def decode(frame: memoryview) -> Command:
    """A frame without its first four bytes. Raises MalformedFrame."""
    if len(frame) < 4:
        raise MalformedFrame(f"a frame of {len(frame)} bytes")
    (mark,) = _INT32.unpack_from(frame)
    kind, length = mark >> 24 & 0xFF, mark & 0xFFFFFF
    end = 4 + length
    if end > len(frame):
        raise MalformedFrame(f"a header of {length} bytes in a frame of {len(frame)}")
    if length > MAX_HEADER_BYTES:
        raise MalformedFrame(f"a header of {length} bytes; at most {MAX_HEADER_BYTES} are read")
    if kind == JSON:
        try:
            header = _decode_json(frame[4:end])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            header = _lenient_header(frame[4:end])
        fields = header.extFields or {}
        if len(fields) > MOST_FIELDS:
            raise MalformedFrame(f"a header of {len(fields)} fields")
        if None in fields.values():
            fields = {name: value for name, value in fields.items() if value is not None}
        return Command(
            header.code, header.opaque, header.flag, header.version, header.language, header.remark,
            fields, frame[end:], JSON,  # type: ignore[arg-type]  # none is None any more
        )  # fmt: skip
    if kind == ROCKETMQ:
        return _decode_rocketmq(frame[4:end], frame[end:])
    raise MalformedFrame(f"a header of type {kind}")


def _lenient_header(text: memoryview) -> JsonHeader:
    """Of a client that writes fields as numbers, for instance."""
    try:
        return lenient_json.decode(text, JsonHeader)
    except MalformedJson as error:
        raise MalformedFrame(f"a JSON header that is none: {error}") from None


def _decode_rocketmq(header: memoryview, body: memoryview) -> Command:
    try:
        code, language, version, opaque, flag, remark_length = _HEAD.unpack_from(header)
        at = _HEAD.size
        remark, at = _text(header, at, remark_length)
        (size,) = _INT32.unpack_from(header, at)
        at += 4
        if size != len(header) - at:
            raise MalformedFrame(f"fields of {size} bytes where {len(header) - at} are")
        fields: dict[str, str] = {}
        while at < len(header):
            (name_length,) = _INT16.unpack_from(header, at)
            name, at = _text(header, at + 2, name_length)
            (value_length,) = _INT32.unpack_from(header, at)
            value, at = _text(header, at + 4, value_length)
            fields[name] = value
            if len(fields) > MOST_FIELDS:
                raise MalformedFrame(f"a header of more than {MOST_FIELDS} fields")
    except struct.error:
        raise MalformedFrame("the header ends within a field") from None
    except UnicodeDecodeError:
        raise MalformedFrame("a text in the header is not UTF-8") from None
    spoken = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, opaque, flag, version, spoken, remark or None, fields, body, ROCKETMQ)


def _text(header: memoryview, at: int, length: int) -> tuple[str, int]:
    end = at + length
    if length < 0 or end > len(header):
        raise MalformedFrame(f"a text of {length} bytes where {len(header) - at} are left")
    return str(header[at:end], "utf-8"), end


def encode(command: Command) -> bytes:
    """A whole frame."""
    if command.kind == ROCKETMQ:
        header = rocketmq_header(
            command.code, command.opaque, command.flag, command.fields, command.remark,
            command.version, LANGUAGES.index(command.language),
        )  # fmt: skip
    else:
        header = _json_header(command)
    return frame_head(command.kind, header, len(command.body)) + bytes(command.body)


def request(code: int, opaque: int, flag: int, fields: Mapping[str, str], body: bytes) -> bytes:
    """A whole frame, with a JSON header: `encode` of such a command, in half the time."""
    header = _encode_json(
        {
            "code": code, "extFields": fields, "flag": flag, "language": OWN_LANGUAGE, "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON", "version": VERSION,
        }
    )  # fmt: skip
    length = len(header)
    return b"".join((_LENGTHS.pack(4 + length + len(body), length), header, body))


def frame_head(kind: int, header: bytes, body_length: int) -> bytes:
    """A frame's lengths and header; the body follows."""
    length = len(header)
    return _LENGTHS.pack(4 + length + body_length, kind << 24 | length) + header


def _json_header(command: Command) -> bytes:
    fields: dict[str, object] = {"code": command.code}
    if command.fields or not command.is_response:
        fields["extFields"] = command.fields
    fields |= {"flag": command.flag, "language": command.language, "opaque": command.opaque}
    if command.remark is not None:
        fields["remark"] = command.remark
    fields |= {"serializeTypeCurrentRPC": "JSON", "version": command.version}
    return _encode_json(fields)


def rocketmq_header(
    code: int,
    opaque: int,
    flag: int,
    fields: Mapping[str, str],
    remark: str | None,
    version: int = VERSION,
    language: int = _OWN_LANGUAGE,
) -> bytes:
    said = b"" if remark is None else remark.encode()
    parts = []
    for name, value in fields.items():
        named, content = name.encode(), value.encode()
        parts += [_INT16.pack(len(named)), named, _INT32.pack(len(content)), content]
    packed = b"".join(parts)
    return b"".join(
        [_HEAD.pack(code, language, version, opaque, flag, len(said)), said, _INT32.pack(len(packed)), packed]
    )


def answer(kind: int, code: int, opaque: int, fields: Mapping[str, str], remark: str | None, body_length: int) -> bytes:
    """The lengths and header of an answer; `body_length` bytes of body are to follow."""
    if kind == ROCKETMQ:
        header = rocketmq_header(code, opaque, RESPONSE, fields, remark)
    else:
        made: dict[str, object] = {"code": code}
        if fields:
            made["extFields"] = fields
        made |= {"flag": RESPONSE, "language": OWN_LANGUAGE, "opaque": opaque}
        if remark is not None:
            made["remark"] = remark
        made |= {"serializeTypeCurrentRPC": "JSON", "version": VERSION}
        header = _encode_json(made)
    return frame_head(kind, header, body_length)
