"""How many requests a rule has met, and how many it still has to: a file, since several processes may meet them."""

from __future__ import annotations

import contextlib
import fcntl
import struct
from pathlib import Path
from typing import Final

_COUNTS: Final = struct.Struct("<qq")
"""How many it has met, and how many it meets in all; −1: any number."""


class Counting:
    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def make(self, most: int | None) -> None:
        self._path.write_bytes(_COUNTS.pack(0, -1 if most is None else most))

    def take(self) -> bool:
        """Whether the rule still meets a request; then it has met one more. A rule that is over meets none."""
        try:
            with self._path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                count, most = _COUNTS.unpack(file.read())
                if 0 <= most <= count:
                    return False
                file.seek(0)
                file.write(_COUNTS.pack(count + 1, most))
                return True
        except FileNotFoundError:
            return False

    @property
    def met(self) -> int:
        try:
            return int(_COUNTS.unpack(self._path.read_bytes())[0])
        except FileNotFoundError:
            return 0

    def end(self) -> None:
        """It meets none any more, and has met what it has."""
        with contextlib.suppress(FileNotFoundError), self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            count, _ = _COUNTS.unpack(file.read())
            file.seek(0)
            file.write(_COUNTS.pack(count, count))
