"""What the server of one shard needs of the other shards, and of what all of them share: the ports.

RocketMQ's broker is a shard. Its queues of a topic are those of the topic's partitions that lie in it (`queues`), and
clients are told of all brokers, so most requests need nothing of this. What is left: routes name other brokers, a
group's progress and its name belong to the shard that coordinates the group, a message that is handed back goes to that
shard too, and topics, users and access rules are everybody's.

A broker that is one process has none of it (`Node.shards` is None).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Topic
    from halfmoon.core.topic_administration import TopicAdministration
    from halfmoon.errors import BrokerError

NONE: Mapping[str, str] = MappingProxyType({})
Place = tuple[int, int]
"""Topic number, partition."""
Offsets = Mapping[Place, int]
"""What a group has committed."""


class Broker(NamedTuple):
    """A shard, as clients reach it."""

    name: str
    host: str
    """"" where it is the host at which the client has reached us."""
    port: int


class Holder(NamedTuple):
    """Who has a partition."""

    broker: "Broker"
    queue_id: int
    """Of the partition, there."""
    queue_number: int
    """Of the partition, among all."""


class Brokers(Protocol):
    """Where everything is, for the name service."""

    def all(self) -> "Sequence[Broker]":
        """All that can be reached, in the order of their names."""
        ...

    def of_topic(self, topic: "Topic") -> "Sequence[tuple[Broker, int]]":
        """Those that have queues of a topic, and how many."""
        ...

    def holder(self, topic: "Topic", index: int) -> "Holder | None":
        """Who has a partition; None where nobody can be reached who has it."""
        ...


class Coordinators(Protocol):
    """Groups, wherever they are coordinated. `told` is called once, with what was asked for or with a BrokerError; one
    of COORDINATOR_NOT_AVAILABLE (nobody knows whether it was done) or COORDINATOR_LOAD_IN_PROGRESS (it was not) says
    that it may be asked again."""

    def is_here(self, group: str) -> bool:
        """Whether this shard coordinates it."""
        ...

    def commit(
        self, group: str, offsets: "Offsets", told: "Callable[[BrokerError | None], None]", *, reset: bool = False
    ) -> None:
        """Commit offsets, or set them from outside. What is asked for one group is done in the order of asking."""
        ...

    def committed(
        self, group: str, places: "Sequence[Place] | None", told: "Callable[[Offsets | BrokerError], None]"
    ) -> None:
        """What is committed there; None: everywhere."""
        ...

    def consumer_seen(
        self, group: str, client_id: str, host: str, told: "Callable[[BrokerError | None], None]"
    ) -> None:
        """A member of the group is connected here. INCONSISTENT_GROUP_PROTOCOL: others speak Kafka's protocol."""
        ...

    def consumer_left(self, group: str, client_id: str) -> None:
        """It is not any more."""
        ...

    def in_order(self, group: str, *, holds_locks: bool) -> None:
        """Whether consumers of the group hold queues to themselves here: then they consume in order."""
        ...

    def consuming(self, topic: "Topic", told: "Callable[[Sequence[str] | BrokerError], None]") -> None:
        """The groups, of all shards, that have committed offsets in a topic."""
        ...


class Stored(NamedTuple):
    """Where a batch stands that another shard has appended: its first message."""

    queue_number: int
    """Broker-wide."""
    offset: int
    due_ms: int
    """0: it does not wait."""


QueueEnd = tuple[int, int, int, int]
"""Topic number, partition, its end, and when the message before the offset that was asked about was stored (Unix ms; 0:
there is none)."""


class Messages(Protocol):
    """Queues that lie in other shards."""

    def append(
        self,
        topic: "Topic",
        index: int,
        batch: bytes,
        told: "Callable[[Stored | BrokerError], None]",
        sender: "tuple[str, str] | None" = None,
    ) -> None:
        """Append a batch, once; told when it is durable. COORDINATOR_NOT_AVAILABLE: nobody knows whether it was.
        `sender`: principal and host of a client who may not do everything with what records ask for."""
        ...

    def ends(self, offsets: "Offsets", told: "Callable[[Sequence[QueueEnd] | BrokerError], None]") -> None:
        """How these partitions stand, each with an offset that a group has come to."""
        ...


class Producers(Protocol):
    """Who ends half messages."""

    def tell(self, group: str) -> None:
        """Have all other shards know that producers of the group are connected here, as far as they can be reached."""
        ...

    def ask(self, shard: int, group: str, messages: bytes, told: "Callable[[bool], None]") -> None:
        """Have a shard ask one of its producers about half messages of ours, as `encode_stored` writes them. Told
        whether there was one."""
        ...

    def end(self, broker: str, batch: bytes, told: "Callable[[BrokerError | None], None]") -> None:
        """Have the broker of this name hear of a batch of ends, or all others where there is no other one of that name.
        Told when it is durable there."""
        ...


class Administered(Protocol):
    """What a change is made of."""

    @property
    def catalog(self) -> "Catalog": ...
    @property
    def administration(self) -> "TopicAdministration": ...


class Changes(Protocol):
    """The catalog that all shards share."""

    def change(self, work: "Callable[[Administered], object]", told: "Callable[[Exception | None], None]") -> None:
        """Have `work` make a change, which sees the catalog as it is. Told once the change is durable and the shards of
        this process know it, or with what `work` has raised, or with a BrokerError where nobody can change anything
        now."""
        ...

    def ask_deletion(self, topics: "Sequence[Topic]", then: "Callable[[], None]") -> None:
        """Ask all shards whether they need these topics, and call `then`: their next deletion knows the answer."""
        ...

    def when_known(self, told: "Callable[[BrokerError | None], None]") -> None:
        """Told once all is durable that is known here of the shared catalog."""
        ...


class Shards(NamedTuple):
    """All of it, of one shard's server."""

    total: int
    """How many there are in all."""
    brokers: "Brokers"
    coordinators: "Coordinators"
    messages: "Messages"
    producers: "Producers"
    changes: "Changes"
    new_topic_id: "Callable[[], bytes]"
    """Of a topic whose first queue lies here."""
    new_topic_configs: "Mapping[str, str]" = NONE
    """Of such a topic."""
    confirm: "Callable[[Callable[[bool], None]], None] | None" = None
    """Tells whether the shards that are here were this process's at some time after the call. None: nobody takes them
    away."""
