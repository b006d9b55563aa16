"""What interceptors and relays are asked, and what they answer: batches on their way in, and messages that wait.

A plugin's author gets these from `halfmoon.plugin`; docs/hooks.md says when each is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from halfmoon.core.records.record_codec import Record


class Put(Struct, frozen=True):
    """A produced batch that carries a header somebody declared. `batch` has passed the header-level checks."""

    topic: str
    partition: int
    batch: memoryview
    now_ms: int
    """Wall clock, Unix ms."""


class Diverted(Struct, frozen=True):
    """A batch that goes elsewhere instead: to wait in an internal topic until `due_ms` (Unix ms), and then to be
    delivered where it was sent; or, where that is 0, to stay in an ordinary topic. Either is made if need be."""

    topic: str
    partition: int
    batch: bytes
    due_ms: int = 0
    known: bool = False
    """Whoever diverts it learns by `Redirect.appended` where it waits: `Relay.begin` is not told before a restart."""


class HandedBack(Struct, frozen=True):
    """Messages that a group hands back: (topic, partition, offset) of each, where it had consumed it."""

    group: str
    places: tuple[tuple[str, int, int], ...]


class Redirect(Struct, frozen=True):
    """What became of a batch that does not go as a whole where it was sent."""

    kept: memoryview | bytes | None
    """The records that stay, as one batch; None where none does."""
    diverted: tuple[Diverted, ...] = ()
    handed_back: HandedBack | None = None
    """Noted together with the batch, so that `PluginContext.was_handed_back` knows of it."""
    release: tuple[tuple[str, int, int], ...] = ()
    """Waiting messages (topic, partition, offset) that are delivered now to where they were sent."""
    settle: tuple[tuple[str, int, int], ...] = ()
    """Waiting messages that are done with, and are delivered nowhere."""
    cancel: tuple[bytes, ...] = ()
    """UNIQ_KEYs of messages to this topic that wait for a time: those that were sent before are not delivered."""
    appended: Callable[[tuple[tuple[str, int, int], ...]], None] | None = None
    """Called once all of it is in the log, with (topic, partition, offset) of the first record of each of `diverted`.
    The batch may be refused for other reasons, and then it is not called."""


class PutInterceptor(Struct, frozen=True):
    """Sees batches on their way in."""

    name: str
    header_names: tuple[str, ...]
    """Batches in whose bytes one of these record headers is found are shown to it, …"""
    before_put: Callable[[Put], memoryview | bytes | Redirect]
    """Gives the batch to store (the same one, or another) or a Redirect; raises BrokerError to refuse."""
    topic_prefixes: tuple[str, ...] = ()
    """… and all that are sent to topics whose names begin so."""
    waiting_topics: tuple[str, ...] = ()
    """Internal topics it diverts to; nobody else makes topics of these names."""


class Waiting(Struct, frozen=True):
    """A message that waits in an internal topic."""

    topic: str
    partition: int
    offset: int
    record: Record
    """As it waits; its offset delta means nothing here."""
    origin: str | None
    """The topic it was sent to; None where that is gone."""
    attempts: int
    """How often it was put off before (`PutOff`)."""
    now_ms: int


class Deliver(Struct, frozen=True):
    """A relay's decision: the message goes where it was sent."""


class Settle(Struct, frozen=True):
    """A relay's decision: the message is done with. It goes to this topic, if one is named, which is made if need be;
    the headers are added to its own there."""

    topic: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class PutOff(Struct, frozen=True):
    """A relay's decision: the message waits on, and is asked about again at `due_ms` (Unix ms). A copy of it goes to
    this topic, if one is named, which is made if need be; the headers are added to its own there."""

    due_ms: int
    topic: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Relay(Struct, frozen=True):
    """Decides what becomes of messages that wait in one internal topic (where interceptors have put them), when they
    are due. Each decision is carried out once, whatever happens (B41). Without a relay they are delivered."""

    name: str
    source: str
    decide: Callable[[Waiting], Deliver | Settle | PutOff]
    begin: Callable[[Waiting], None] | None = None
    """Told of each message that begins to wait, once it is on disk; after a start of all that wait; and of one again
    whose decision could not be carried out."""
    pause_ms: int = 0
    """After a start, messages that were put off before are not asked about for so long."""
