"""The file `scrub`: how far a pass has come, when the last one ended, and what it has found.

It is a note and no state: without it, the next pass begins at the beginning of the log, and finds again what is
corrupt. What it says is corrupt is looked at anew at each start, since somebody may have brought a file back from a
backup.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from halfmoon.core.storage.files import FileSystem, read_file, write_file

PATH = "scrub"
NO_PASS = -1


class Lost(Struct):
    """Offsets [low, high) of a partition."""

    topic_number: int
    partition: int
    low: int
    high: int


class Stretch(Struct):
    """Log positions [low, high) in which no whole frame stands, and the records that stood there."""

    low: int
    high: int
    lost: list[Lost] = field(default_factory=list)


class Saved(Struct):
    """Times are Unix ms, 0: never."""

    position: int = NO_PASS
    """The log position where the pass goes on that is under way, if one is."""
    began_ms: int = 0
    ended_ms: int = 0
    corrupt: list[Stretch] = field(default_factory=list)


def load(fs: FileSystem) -> Saved:
    """Raises OSError."""
    data = read_file(fs, PATH)
    try:
        return Saved() if data is None else msgspec.json.decode(data, type=Saved)
    except msgspec.DecodeError:
        return Saved()


def save(fs: FileSystem, saved: Saved) -> None:
    """Durably; for a thread. Raises OSError."""
    write_file(fs, PATH, [msgspec.json.encode(saved)])
