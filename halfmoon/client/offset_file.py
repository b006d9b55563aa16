"""The progress of a broadcasting consumer, in a file of its own: JSON, replaced as a whole.

    {"offsets": [{"topic": …, "broker": …, "queue_id": …, "offset": …}, …]}

Without an `instance_name` it is DEFAULT's. Members of a group on one machine need a name each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from halfmoon.client.errors import ConfigError
from halfmoon.plugin import Queue

DEFAULT_DIR = "~/.halfmoon/offsets"


class _Row(msgspec.Struct):
    topic: str
    broker: str
    queue_id: int
    offset: int


class _File(msgspec.Struct):
    offsets: list[_Row] = []


class JsonOffsetFile:
    """`DIR/INSTANCE/GROUP.json`."""

    def __init__(self, directory: str | os.PathLike[str] | None, instance_name: str, group: str) -> None:
        base = Path(DEFAULT_DIR).expanduser() if directory is None else Path(directory)
        self._path = base / quote(instance_name, safe="#") / f"{quote(group, safe='')}.json"

    def load(self) -> Mapping[Queue, int]:
        """Raises ConfigError where the file is there and cannot be read."""
        try:
            rows = msgspec.json.decode(self._path.read_bytes(), type=_File).offsets
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self._path}: {error}") from None
        return {Queue(row.topic, row.broker, row.queue_id): row.offset for row in rows}

    def save(self, offsets: Mapping[Queue, int]) -> None:
        rows = [_Row(*queue, offset) for queue, offset in sorted(offsets.items())]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(msgspec.json.encode(_File(rows)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
