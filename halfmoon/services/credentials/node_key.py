"""The secret of this node, `node.key` in its data directory: 32 random bytes in hex, made when they are first needed.

What it protects is lost with it: delegation tokens, and the secrets of RocketMQ's users. It is in no backup, because a
backup has what it protects.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable

from halfmoon.core.storage.files import FileSystem, read_file, write_file
from halfmoon.errors import BrokerError, Fault, StartError

PATH = "node.key"
_SIZE = 32
_CONTENT = re.compile(b"([0-9a-f]{%d})\n?" % (2 * _SIZE))


class NodeKey:
    def __init__(self, fs: FileSystem, random_bytes: Callable[[int], bytes]) -> None:
        self._fs = fs
        self._random_bytes = random_bytes
        self._key: bytes | None = None
        self._derived: dict[str, bytes] = {}

    def load(self) -> None:
        """Read it, if it is there. Raises StartError where it is not what it was, OSError."""
        found = read_file(self._fs, PATH)
        if found is None:
            return
        match = _CONTENT.fullmatch(found)
        if match is None:
            raise StartError(
                f"{PATH} in the data directory is damaged: put it back, or remove it and set RocketMQ's secrets anew"
            )
        self._key = bytes.fromhex(match[1].decode())

    def make(self) -> None:
        """Make it, if it is not there: for a node of several processes, which must not each make one. Raises
        StartError, BrokerError, OSError."""
        self.load()
        self._made()

    def of(self, purpose: str) -> bytes:
        """32 bytes for one purpose: what is done with these says nothing of those for another. The first call makes the
        file, and waits for the disk. Raises BrokerError."""
        derived = self._derived.get(purpose)
        if derived is None:
            derived = self._derived[purpose] = hmac.digest(self._made(), purpose.encode(), "sha256")
        return derived

    def _made(self) -> bytes:
        if self._key is None:
            key = self._random_bytes(_SIZE)
            try:
                write_file(self._fs, PATH, [key.hex().encode() + b"\n"])
            except OSError as error:
                raise BrokerError(Fault.KAFKA_STORAGE_ERROR, f"{PATH} cannot be written: {error.strerror}") from error
            self._key = key
        return self._key
