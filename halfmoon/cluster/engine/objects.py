"""The object store: the port.

An object is written once and whole, and never changed. Everything here may be tried again: a name is made for each
object and never used for another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from halfmoon.errors import HalfmoonError

MOST_BYTES: Final = 64 << 20
"""About the most that an object has of messages. It is written by one request, which has its time."""


class StoreUnavailableError(HalfmoonError):
    """The store did not answer, or refused: what was to be changed may have been changed."""


class ObjectExistsError(HalfmoonError):
    """An object of that name is there."""


class ObjectMissingError(HalfmoonError):
    """No object of that name is there."""


class Stored(NamedTuple):
    """An object as a listing tells of it."""

    key: str
    size: int
    modified: datetime


class ObjectStore(Protocol):
    """All raise StoreUnavailableError. None tries again: who calls knows for how long that makes sense."""

    async def put(self, key: str, data: bytes) -> None:
        """Store an object where none of that name is. Raises ObjectExistsError."""
        ...

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Its bytes [start, end); fewer where it ends before. Raises ObjectMissingError."""
        ...

    async def size(self, key: str) -> int:
        """In bytes. Raises ObjectMissingError."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Those that are not there are no error."""
        ...

    def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[Stored]]:
        """Objects whose keys begin so, in the order of their keys, from the first one behind `after`, in parts."""
        ...
