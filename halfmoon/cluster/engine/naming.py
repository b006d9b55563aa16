"""Names of objects.

    CLUSTER/o/…     what shards of objects have committed: it may have been stored and not committed
    CLUSTER/g/…     what was committed before, brought together
    CLUSTER/f/…     a file beside a log; its name says whose, and which

A name is made once and never used again. Its beginning is spread, since stores divide by it; then comes the hour, for
listings.
"""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from typing import Final, NamedTuple

COMMITTED, MERGED, FILE = "o", "g", "f"
ALL_SHARDS: Final = -1


class FileName(NamedTuple):
    shard: int
    """ALL_SHARDS: each has it."""
    epoch: int
    """In which it was written."""
    path: str
    """In the shard's directory."""


def make(cluster_id: str, kind: str, node: int, file: FileName | None = None) -> str:
    """`file`: of a file beside a log."""
    name = uuid.uuid4().hex
    spread = hashlib.blake2b(name.encode(), digest_size=1).hexdigest()
    suffix = "" if file is None else f".{file.shard}.{file.epoch}.{file.path.replace('/', '_')}"
    return f"{cluster_id}/{kind}/{spread}/{datetime.now(UTC):%Y%m%d%H}/{node}-{name}{suffix}"


def kind_of(key: str) -> str:
    """ "" where this is no name of an object."""
    parts = key.split("/")
    return parts[1] if len(parts) > 2 else ""


def file_of(key: str) -> FileName | None:
    """None where the name does not say it."""
    parts = key.rpartition("/")[2].split(".", 3)
    if kind_of(key) != FILE or len(parts) != 4:
        return None
    try:
        return FileName(int(parts[1]), int(parts[2]), parts[3].replace("_", "/"))
    except ValueError:
        return None
