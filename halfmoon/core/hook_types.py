"""What plugins hand over: plain objects, made once at start and called directly from then on.

A pluggy call costs over a microsecond even where nobody implements the hook; a loop over a tuple resolved at start
costs a tenth of that. So a hook is called once and gives objects, and the broker calls their functions. When each is
called, what that costs, and what an error does is said at the hook (core/hookspecs.py).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from halfmoon.core.errors import Fault, HalfmoonError

if TYPE_CHECKING:
    from halfmoon.core.frame import Frame
    from halfmoon.core.hold import Held
    from halfmoon.core.record_codec import Record

TopicChange = Literal["created", "deleted", "grown", "configured"]


class ConfigSection(Struct, frozen=True):
    """The types of a plugin's settings: its own at `$.plugins.NAME`, and top-level sections it claims (`views`)."""

    settings: type[Struct]
    extensions: Mapping[str, Any] | None = None
    """Section's name → its type, such as `{"views": dict[str, View]}`."""


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


class Dispatcher(Struct, frozen=True):
    """Follows the log behind the appends and builds something from it that can be thrown away and rebuilt."""

    name: str
    on_frames: Callable[[Sequence[Frame]], None]
    """Gets frames in log order; after a crash, those behind the checkpoint again."""
    checkpoint: Callable[[], int]
    """The log position up to which its work is durable."""


class HoldPolicy(Struct, frozen=True):
    """Has a say in which waiting requests an arrival answers."""

    name: str
    on_park: Callable[[Held], None]
    """Gets the request that is about to wait."""
    matches: Callable[[Held, Any, Any], bool]
    """(held, partition, arrival): False leaves the request waiting."""
    on_expire: Callable[[Held], None]


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


class MessageFilter(Protocol):
    """A compiled filter expression. It keeps nothing from one record to the next."""

    needle: re.Pattern[bytes] | None
    """Something that occurs in the bytes of every record that matches, as core/record_codec.py draws them; records
    without it are passed over unread. None if there is no such thing."""

    def match(self, record: Any) -> bool:
        """Whether this record matches."""
        ...


class FilterSyntaxError(HalfmoonError):
    """An expression that cannot be compiled: what is wrong or was expected, and where.

    `position` counts characters from 0, `line` and `column` from 1.
    """

    def __init__(self, message: str, position: int, expression: str) -> None:
        self.position = position
        self.line = expression.count("\n", 0, position) + 1
        self.column = position - (expression.rfind("\n", 0, position) + 1) + 1
        super().__init__(f"{message} (line {self.line}, column {self.column})")


class Service(Struct, frozen=True):
    """Something that runs beside the broker, in its event loop, from start to stop."""

    name: str
    run: Callable[[], Awaitable[None]]
    """Runs until it is cancelled; returning or raising counts as a failure."""


class Observer(Struct, frozen=True):
    """Counters: told of every batch, in the loop. What is None is not called and costs nothing."""

    name: str
    on_produced: Callable[[str, int, int, int], None] | None = None
    """(topic, partition, records, bytes)"""
    on_fetched: Callable[[str, int, int], None] | None = None
    """(topic, partition, bytes)"""
    on_refused: Callable[[str, int, Fault], None] | None = None
    """(topic, partition, fault)"""


FilterCompiler = Callable[[str], MessageFilter]
Command = Callable[..., Any]
