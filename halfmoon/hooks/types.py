"""What plugins return from hooks: plain objects, made once at start and called directly from then on.

A pluggy call costs over a microsecond even where nobody implements the hook; a loop over a tuple resolved at start
costs a tenth of that. So a hook is called once and gives objects, and the broker calls their functions. When each is
called, what that costs, and what an error does is said at the hook (hooks/specs.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from halfmoon.errors import Fault
from halfmoon.services.common.filters import FilterCompiler as FilterCompiler
from halfmoon.services.common.filters import FilterSyntaxError as FilterSyntaxError
from halfmoon.services.common.filters import MessageFilter as MessageFilter
from halfmoon.services.common.leaving_out import FetchFilter as FetchFilter
from halfmoon.services.following.types import Batch as Batch
from halfmoon.services.following.types import Dispatcher as Dispatcher
from halfmoon.services.waiting.types import Complete as Complete
from halfmoon.services.waiting.types import Deliver as Deliver
from halfmoon.services.waiting.types import Nacked as Nacked
from halfmoon.services.waiting.types import Put as Put
from halfmoon.services.waiting.types import PutInterceptor as PutInterceptor
from halfmoon.services.waiting.types import Redirect as Redirect
from halfmoon.services.waiting.types import Redirected as Redirected
from halfmoon.services.waiting.types import Relay as Relay
from halfmoon.services.waiting.types import Reschedule as Reschedule
from halfmoon.services.waiting.types import Scheduled as Scheduled

if TYPE_CHECKING:
    from halfmoon.core.hold import Arrival, Held

TopicChange = Literal["exists", "created", "deleted", "grown", "configured"]
"""A topic "exists" that was there when the broker started."""


class ConfigSection(Struct, frozen=True):
    """The types of a plugin's settings: its own at `$.plugins.NAME`, and top-level sections it claims (`views`)."""

    settings: type[Struct]
    extensions: Mapping[str, Any] | None = None
    """Section's name → its type, such as `{"views": dict[str, View]}`."""


class HoldPolicy(Struct, frozen=True):
    """Decides which held requests an arrival answers."""

    name: str
    on_park: Callable[[Held], None]
    """With the request that is held."""
    matches: Callable[[Held, Any, Arrival], bool]
    """(held, partition, arrival): False keeps the request held."""
    on_expire: Callable[[Held], None]
    """With the request that has reached its deadline; the broker answers it with the messages that are there."""


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
    on_acknowledged: Callable[[str, str, int, int], None] | None = None
    """(group, topic, partition, messages) that a member of a share group has accepted"""
    on_redelivered: Callable[[str, str, int, int], None] | None = None
    """(group, topic, partition, messages) that the group is to get again"""
    on_dead_lettered: Callable[[str, str, int, int], None] | None = None
    """(group, topic, partition, messages) that went to the group's dead-letter topic"""


class KafkaRequest(Struct, frozen=True):
    """A request of a plugin's own Kafka API."""

    version: int
    body: memoryview
    """Behind the header. Valid until the handler returns."""
    client_id: str | None
    client_host: str


class KafkaApi(Struct, frozen=True):
    """An API with a key of its own on the Kafka listener."""

    key: int
    name: str
    min_version: int
    max_version: int
    handler: Callable[[KafkaRequest], bytes]
    """Gives the answer's body."""
    own: bool = False
    """ApiVersions does not show it: clients conclude from the APIs of a broker which Kafka it is."""
    flexible_since: int = 32_767
    """The first version whose headers end with tagged fields."""


Command = Callable[..., Any]
