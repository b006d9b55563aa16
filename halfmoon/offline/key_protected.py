"""What of a data directory is worth nothing without its `node.key`, which no backup has: the secrets of RocketMQ's
users, and delegation tokens (services/credentials/node_key.py)."""

from __future__ import annotations

import os
from typing import NamedTuple

from halfmoon.core.catalog import snapshot
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.frame import Kind
from halfmoon.core.storage.scan import Scan
from halfmoon.offline.opening import open_segments
from halfmoon.schema import control
from halfmoon.services.credentials.state import CredentialsState


class KeyProtected(NamedTuple):
    users: list[str]
    """Who have a secret of RocketMQ's signatures, sorted."""
    token_owners: dict[str, int]
    """How many delegation tokens are alive, by owner (User:alice), sorted."""

    def __bool__(self) -> bool:
        return bool(self.users or self.token_owners)


def find(directory: str | os.PathLike[str], now_ms: int) -> KeyProtected:
    """Raises StartError, OSError."""
    state = CredentialsState()
    with open_segments(OsFileSystem(directory, read_only=True)) as segments:
        # From the last snapshot on: it is at the head of a segment.
        heads = ((at, snapshot.at_head(segments[at])) for at in reversed(range(len(segments))))
        first, catalog = next(((at, found) for at, found in heads if found is not None), (0, None))
        if catalog is not None:
            state.restore("users", catalog.users)
            state.restore("tokens", catalog.tokens)
        for segment in segments[first:]:
            for frame, payload in Scan([segment], segment.start, 0, segment.start).frames():
                if frame.kind == Kind.CONTROL and payload is not None:
                    record = control.decode(payload)
                    if isinstance(record, CredentialsState.records):
                        state.apply(record)
    return protected(state, now_ms)


def protected(state: CredentialsState, now_ms: int) -> KeyProtected:
    users = sorted(each.name for each in state.users.values() if each.sealed)
    owners = sorted(each.owner for each in state.tokens.values() if each.expires_ms > now_ms)
    return KeyProtected(users, {owner: owners.count(owner) for owner in owners})
