r"""A message's properties as one text: `name \x01 value \x02 …`, UTF-8 (MessageDecoder.messageProperties2String).

Reading leaves out what RocketMQ leaves out: pairs without a name or without a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

BETWEEN, AFTER = b"\x01", b"\x02"
MAX_BYTES = 32_767
"""The length is an int16."""


def decode(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and values, in order."""
    for pair in text.split(AFTER):
        name, between, value = pair.partition(BETWEEN)
        if between and name and value:
            yield name, value


def encode(properties: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([name + BETWEEN + value + AFTER for name, value in properties])


def is_writable(name: bytes, value: bytes) -> bool:
    """Whether a reader would get them as they are."""
    return bool(name and value) and not any(mark in part for mark in (BETWEEN, AFTER) for part in (name, value))
