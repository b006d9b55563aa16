"""What a snapshot tells of many small things, each encoded when it changes and not when the snapshot is taken."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from halfmoon.schema.snapshot import array_head, encode

K = TypeVar("K")


class EncodedArray(Generic[K]):
    """Elements by their keys, in the order in which the keys came. 100,000 of them take 30 ms to encode, and 4 ms to
    put together."""

    def __init__(self) -> None:
        self._elements: dict[K, bytes] = {}

    def set(self, key: K, element: object) -> None:
        self._elements[key] = encode(element)

    def drop(self, key: K) -> None:
        self._elements.pop(key, None)

    def raw(self) -> msgspec.Raw:
        return msgspec.Raw(b"".join((array_head(len(self._elements)), *self._elements.values())))
