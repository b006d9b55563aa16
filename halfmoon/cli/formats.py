"""How `consume` prints a record: kcat's format language, or JSON.

    %t topic   %p partition   %o offset   %T timestamp, ms   %k key   %K key size   %s value   %S value size
    %h headers as name=value,…   %n a line break   %% a percent sign   and \\n \\r \\t \\\\ \\xHH

Sizes are -1 and texts empty for null, as with kcat. Keys and values are written as the bytes they are.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

DEFAULT_FORMAT = "%s%n"
SHOWN_CHARACTERS = 60
"""Of a value, in a table."""

_TOKEN = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


class ReadRecord(Protocol):
    """What of kafka-python's ConsumerRecord is printed; a message that was found has the same."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Iterable[tuple[str, bytes | None]]: ...


Formatter = Callable[[ReadRecord], bytes]


def _headers(record: ReadRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


_FIELDS: dict[str, Formatter] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "k": lambda record: record.key or b"",
    "K": lambda record: _size(record.key),
    "s": lambda record: record.value or b"",
    "S": lambda record: _size(record.value),
    "h": _headers,
    "n": lambda _: b"\n",
    "%": lambda _: b"%",
}


def compile_format(text: str) -> Formatter:
    """A function that prints a record as `text` says. Raises ValueError naming what it does not know."""
    parts: list[Formatter | bytes] = []
    end = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[end : token.start()].encode())
        end = token.end()
        parts.append(_field(token[1]) if token[1] is not None else _escape(token[2]))
    parts.append(text[end:].encode())
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def _field(letter: str) -> Formatter:
    try:
        return _FIELDS[letter]
    except KeyError:
        raise ValueError(f"%{letter} is not a field; there are {' '.join('%' + known for known in _FIELDS)}") from None


def _escape(code: str) -> bytes:
    if code.startswith("x") and len(code) == 3:
        return bytes.fromhex(code[1:])
    try:
        return _ESCAPES[code]
    except KeyError:
        raise ValueError(f"\\{code} is not an escape; there are \\n \\r \\t \\0 \\\\ \\xHH") from None


def as_json(record: ReadRecord) -> dict[str, Any]:
    """A record as plain values. Bytes that are no UTF-8 stand in `key_base64`, `value_base64` instead."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type == 1 else "CreateTime",
        **text_or_base64("key", record.key),
        **text_or_base64("value", record.value),
        "headers": [{"name": name, **text_or_base64("value", value)} for name, value in record.headers],
    }


def as_text(content: bytes | None) -> str | None:
    """On one line, for people."""
    return None if content is None else " ".join(content.decode("utf-8", "backslashreplace").splitlines())


def in_short(content: bytes | None) -> str | None:
    """`as_text`, for a cell of a table."""
    text = as_text(content)
    return text if text is None or len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """As text under this name; bytes that are no UTF-8 stand in `…_base64` instead."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def from_json(values: dict[str, Any], name: str) -> bytes | None:
    """The bytes that `as_json` wrote under `name`. Raises ValueError for anything else."""
    encoded = values.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    text = values.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{name} is not a string")
    return text.encode("utf-8")
