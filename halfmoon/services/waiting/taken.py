"""What interceptors make of a produced batch, before any of it is appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfmoon.core.records.batch_header import HEADER_BYTES, is_plain, is_whole, parse_header
from halfmoon.core.records.batches import batch_body
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.waiting.types import Redirect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from halfmoon.schema.provenance import SentBack
    from halfmoon.services.common.gathering import Outgoing
    from halfmoon.services.waiting.types import Nacked, Redirected

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Appended:
    """What an interceptor is to be told of: where its part of `Taken.redirected` stands."""

    __slots__ = ("call", "first", "last")

    def __init__(self, call: Callable[[tuple[Place, ...]], None], first: int, last: int) -> None:
        self.call = call
        self.first = first
        self.last = last


class Taken:
    """What has become of a batch so far."""

    __slots__ = (
        "appended", "body", "cancel", "complete", "completed", "holds", "kept", "nacked", "redirected", "release",
        "released", "sent_back",
    )  # fmt: skip

    def __init__(self, batch: memoryview, body: memoryview) -> None:
        """A checked batch, and its records, decompressed."""
        self.kept: memoryview | None = batch
        """The records that stay, as one batch that may be written to; None where none does."""
        self.body = body
        """Of what stays."""
        self.redirected: list[Redirected] = []
        self.nacked: Nacked | None = None
        self.release: list[Place] = []
        self.complete: list[Place] = []
        self.cancel: list[bytes] = []
        self.appended: list[Appended] = []
        """To be called then."""
        self.released: Sequence[Outgoing] | None = None
        """What becomes of `release`, if it is worked out already."""
        self.completed: Sequence[tuple[int, int, int]] | None = None
        """Those of `complete` that wait, with their topics' numbers, if it is worked out already."""
        self.sent_back: SentBack | None = None
        """What `nacked` is in a provenance list, if it is worked out already."""
        self.holds: list[Callable[[], bool]] = []
        """Whether it is still so, if time has passed."""

    def add(self, given: memoryview | bytes | Redirect) -> None:
        """What an interceptor gave for what stays. Raises ValueError for what cannot be stored in its place."""
        kept: object = given  # a plugin's: it may be anything
        if isinstance(given, Redirect):
            first = len(self.redirected)
            self.redirected += given.redirected
            if given.nacked is not None:
                self.nacked = given.nacked
            self.release += given.release
            self.complete += given.complete
            self.cancel += given.cancel
            if given.appended is not None:
                self.appended.append(Appended(given.appended, first, len(self.redirected)))
            if given.holds is not None:
                self.holds.append(given.holds)
            if given.kept is None:
                self.kept, self.body = None, memoryview(b"")
                return
            kept = given.kept
        if kept is not self.kept:
            assert self.kept is not None, "nothing stays, so nobody is asked"
            self.keep(_checked(kept, self.kept))

    def keep(self, batch: Buffer) -> None:
        """This is what stays."""
        view = memoryview(batch)
        self.kept = kept = memoryview(bytearray(view)) if view.readonly else view
        self.body = body_of(kept)

    def check_nothing_redirected(self) -> None:
        """Raises BrokerError(INVALID_RECORD) where something of a transactional batch would go elsewhere than its
        transaction: it would wait, or be delivered, whether that commits or not."""
        if self.kept is None or self.redirected or self.release or self.complete or self.cancel or self.nacked:
            raise BrokerError(
                Fault.INVALID_RECORD,
                "a record of a producer's transaction cannot be delayed, retried or cancelled, nor be a half message",
            )


def body_of(batch: memoryview) -> memoryview:
    """The records of a checked batch, decompressed. Raises BrokerError."""
    return batch[HEADER_BYTES:] if is_plain(batch) else batch_body(batch)


def _checked(given: object, taken: memoryview) -> Buffer:
    """What a plugin gave in place of `taken`, which may be anything. Raises ValueError."""
    if not isinstance(given, memoryview | bytes | bytearray):
        raise ValueError(f"{given!r}, expected a batch or a Redirect")
    if len(given) < HEADER_BYTES or not is_whole(given):
        raise ValueError("bytes that are no whole record batch of format 2 with its checksum")
    header, most = parse_header(given), parse_header(taken).last_offset_delta
    if header.record_count < 1 or not header.record_count - 1 <= header.last_offset_delta <= most:
        raise ValueError("records that the batch did not have")
    return given
