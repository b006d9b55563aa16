"""What interceptors and relays are asked, and what they answer: produced batches, and scheduled messages.

Plugins import these from `halfmoon.plugin`; docs/hooks.md says when each is used. Fields whose comment begins with
"Deprecated" are the names of the version before, and go with the next version.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import force_setattr

from halfmoon.core.append_types import Sender
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.core.records.record_codec import Record


def _renamed(struct: Struct, names: Mapping[str, str]) -> None:
    """Move what was given under old names to the new ones, with a DeprecationWarning."""
    for old, new in names.items():
        if given := getattr(struct, old):
            warnings.warn(f"{type(struct).__name__}.{old} is called {new} now", DeprecationWarning, stacklevel=3)
            force_setattr(struct, new, given)


ANONYMOUS = "User:ANONYMOUS"
"""Kafka's KafkaPrincipal.ANONYMOUS."""


class Put(Struct, frozen=True):
    """A produced batch that has a header of the interceptor's list. `batch` has passed the header-level checks."""

    topic: str
    partition: int
    batch: memoryview
    now_ms: int
    """Wall clock, Unix ms."""
    sender: Sender | None = None
    """What the client may do; None: everything."""

    @property
    def principal(self) -> str:
        """Who sends it; where nobody asks what clients may do, that is not known."""
        return ANONYMOUS if self.sender is None else self.sender.principal

    @property
    def host(self) -> str:
        """From which address; empty where that is not known."""
        return "" if self.sender is None else self.sender.host

    def check(self, operation: str, resource_type: str, name: str) -> None:
        """Whether the client may do what its records ask for; that it may write to the topic is asked before. Raises
        BrokerError."""
        if self.sender is not None and not self.sender.demands(((operation, resource_type, name),)):
            raise BrokerError(_REFUSALS[resource_type], f"not allowed to {operation} {resource_type} '{name}'")


_REFUSALS = {
    "topic": Fault.TOPIC_AUTHORIZATION_FAILED,
    "group": Fault.GROUP_AUTHORIZATION_FAILED,
    "transactional_id": Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "cluster": Fault.CLUSTER_AUTHORIZATION_FAILED,
}


class Redirected(Struct, frozen=True):
    """A batch that goes to another topic instead: to an internal topic until `due_ms` (Unix ms), and from there to the
    topic it was sent to; or, if `due_ms` is 0, to an ordinary topic. The broker creates the topic if need be."""

    topic: str
    partition: int
    batch: bytes
    due_ms: int = 0
    known: bool = False
    """The interceptor learns its place by `Redirect.appended`: `Relay.begin` is not called for it before a restart."""
    own_times: bool = False
    """Each record is due at its own timestamp, the first of them at `due_ms`: so records of many times make one batch.
    Not for a topic that has a relay."""
    configs: tuple[tuple[str, str], ...] = ()
    """Configurations of an ordinary topic, if the broker creates it."""


class Nacked(Struct, frozen=True):
    """Messages that a group negatively acknowledges: (topic, partition, offset) of each, where it was consumed."""

    group: str
    places: tuple[tuple[str, int, int], ...]


class Redirect(Struct, frozen=True):
    """What becomes of a batch that does not go to its topic as a whole."""

    kept: memoryview | bytes | None
    """The records that stay, as one batch; None where none does."""
    redirected: tuple[Redirected, ...] = ()
    nacked: Nacked | None = None
    """Stored together with the batch, so that `PluginContext.was_nacked` knows of it."""
    release: tuple[tuple[str, int, int], ...] = ()
    """Scheduled messages (topic, partition, offset) to deliver now to the topic they were sent to."""
    complete: tuple[tuple[str, int, int], ...] = ()
    """Scheduled messages to complete without a delivery."""
    cancel: tuple[bytes, ...] = ()
    """UNIQ_KEYs of delayed messages to this topic: those that were sent before are not delivered."""
    appended: Callable[[tuple[tuple[str, int, int], ...]], None] | None = None
    """Called once all of it is in the log, with (topic, partition, offset) of the first record of each of `redirected`.
    It is not called if the broker refuses the batch for another reason."""
    holds: Callable[[], bool] | None = None
    """Asked right before the broker appends what was made in slices: False has the batch inspected again, because what
    it depends on has changed meanwhile."""
    diverted: tuple[Redirected, ...] = ()
    """Deprecated: `redirected`."""
    handed_back: Nacked | None = None
    """Deprecated: `nacked`."""
    settle: tuple[tuple[str, int, int], ...] = ()
    """Deprecated: `complete`."""

    def __post_init__(self) -> None:
        if self.diverted or self.handed_back or self.settle:
            _renamed(self, {"diverted": "redirected", "handed_back": "nacked", "settle": "complete"})


class PutInterceptor(Struct, frozen=True):
    """Sees batches on their way in."""

    name: str
    header_names: tuple[str, ...]
    """Batches in whose bytes one of these record headers is found are shown to it, …"""
    before_put: Callable[[Put], memoryview | bytes | Redirect]
    """Gives the batch to store (the same one, or another) or a Redirect; raises BrokerError to refuse."""
    topic_prefixes: tuple[str, ...] = ()
    """… and all that are sent to topics whose names begin so."""
    scheduled_topics: tuple[str, ...] = ()
    """Internal topics that it redirects to; the broker refuses to create topics of these names for anyone else.
    Messages of internal topics that no plugin lists stay scheduled until one does."""
    clock_queues: tuple[tuple[str, int], ...] = ()
    """Of these topics, the queues (topic, partition) whose messages are due when the wall clock says so. Those of the
    others wait for as long as was left when they came, whatever is done to the clock meanwhile."""
    in_slices: Callable[[Put], Generator[Callable[[], Any] | None, Any, memoryview | bytes | Redirect]] | None = None
    """The same as `before_put`, for a batch of many records: a generator that works for a millisecond or so between two
    yields. It yields None to let others have their turn, or a function for a thread, whose result it is sent. Without
    it such a batch holds up every client for as long as `before_put` takes."""
    waiting_topics: tuple[str, ...] = ()
    """Deprecated: `scheduled_topics`."""
    own_topics: Mapping[str, Mapping[str, str]] = {}
    """Internal topics in which it keeps records of its own, and their configurations: `Redirected` with `due_ms` 0 may
    name them. Each has one partition; where several processes share the topics, each shard has one for itself."""
    heard_by_all: bool = False
    """Where several processes share the topics, a batch to a topic that is called as one of `topic_prefixes` is shown
    to the plugin in every shard, whichever partition it was sent to; and again where its client sends it again."""
    max_delay_ms: int | None = None
    """An administrator may not reschedule its messages further ahead than that; None: as far as he likes."""

    def __post_init__(self) -> None:
        if self.waiting_topics:
            _renamed(self, {"waiting_topics": "scheduled_topics"})


class Scheduled(Struct, frozen=True):
    """A scheduled message, in an internal topic."""

    topic: str
    partition: int
    offset: int
    record: Record
    """As it is stored there; its offset delta means nothing here."""
    origin: str | None
    """The topic it was sent to; None where that is gone."""
    attempts: int
    """How often it was rescheduled before (`Reschedule`)."""
    now_ms: int


class Deliver(Struct, frozen=True):
    """A relay's decision: deliver the message to the topic it was sent to."""


class Complete(Struct, frozen=True):
    """A relay's decision: complete the message. If a topic is named, the message goes there, with these headers added;
    the broker creates the topic if need be."""

    topic: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Reschedule(Struct, frozen=True):
    """A relay's decision: ask again at `due_ms` (Unix ms). If a topic is named, a copy of the message goes there, with
    these headers added; the broker creates the topic if need be."""

    due_ms: int
    topic: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Relay(Struct, frozen=True):
    """Decides what becomes of the scheduled messages of one internal topic, when they are due. The broker carries out
    each decision exactly once (B41). It delivers the messages of internal topics without a relay."""

    name: str
    source: str
    decide: Callable[[Scheduled], Deliver | Complete | Reschedule]
    begin: Callable[[Scheduled], None] | None = None
    """Called with each message once it is scheduled and on disk; after a start with all scheduled messages; and again
    with one whose decision the broker could not carry out."""
    pause_ms: int = 0
    """After a start, time without `decide` for messages that were rescheduled before."""
