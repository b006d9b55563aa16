"""What interceptors make of a produced batch, before any of it is appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.provenance import SentBack
from halfmoon.services.common.gathering import Outgoing
from halfmoon.services.waiting.types import Nacked, Redirected

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Appended(NamedTuple):
    """What an interceptor is to be told of: where its part of `Taken.redirected` stands."""

    call: Callable[[tuple[Place, ...]], None]
    first: int
    last: int


class Taken(Struct, frozen=True):
    """What became of a batch."""

    kept: memoryview | None
    """The records that stay, as one batch that may be written to; None where none does."""
    redirected: tuple[Redirected, ...]
    nacked: Nacked | None
    release: tuple[Place, ...]
    complete: tuple[Place, ...]
    cancel: tuple[bytes, ...]
    appended: tuple[Appended, ...]
    """To be called then."""
    released: Sequence[Outgoing] | None = None
    """What becomes of `release`, if it is worked out already."""
    completed: Sequence[tuple[int, int, int]] | None = None
    """Those of `complete` that wait, with their topics' numbers, if it is worked out already."""
    sent_back: SentBack | None = None
    """What `nacked` is in a provenance list, if it is worked out already."""
    holds: tuple[Callable[[], bool], ...] = ()
    """Whether it is still so, if time has passed."""


def check_not_redirected(taken: Taken) -> None:
    """Raises BrokerError(INVALID_RECORD) where something of a transactional batch would go elsewhere than its
    transaction: it would wait, or be delivered, whether that commits or not."""
    if taken.kept is None or taken.redirected or taken.release or taken.complete or taken.cancel or taken.nacked:
        raise BrokerError(
            Fault.INVALID_RECORD,
            "a record of a producer's transaction cannot be delayed, retried or cancelled, nor be a half message",
        )
