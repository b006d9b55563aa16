"""Who is there: producers and consumers of each group, as their heartbeats say (B24, B25).

A member is a connection. It is one until it says goodbye, its connection closes, or it has been silent for
`timeout_ms`; whenever the members or subscriptions of a group of consumers change, all of them are told. What a group
subscribes to is what its members said last (org.apache.rocketmq.broker.client.ConsumerManager, ConsumerGroupInfo,
ProducerManager).

No clock: times are monotonic milliseconds that the caller passes in.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from halfmoon.adapters.rocketmq.to_messages import MessageWriter
from halfmoon.auth.principals import Principal
from halfmoon.remoting.command import Command
from halfmoon.services.groups.allocation import Assignment

log = logging.getLogger("halfmoon.rocketmq")

CONSUMER, PRODUCER = "consumer", "producer"
BROADCASTING, CLUSTERING = "BROADCASTING", "CLUSTERING"

Reply = Callable[[Command | None], None]
"""Called with a client's answer, or None if there is none."""


class Client(Protocol):
    """A client's connection, as the node uses it. Each is one key of the tables below."""

    host: str
    """The address the client has reached us at."""
    peer_host: str
    peer: str
    """The client's address, for people."""
    principal: Principal
    writer: MessageWriter | None
    """See `Node.writer_for`."""

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """A request to the client that it does not answer; dropped where it does not read."""

    def ask(self, code: int, fields: Mapping[str, str], body: bytes, reply: Reply) -> None:
        """A request to the client; `reply` is called once."""

    def abort(self, reason: str) -> None:
        """Close at once; what was not sent is lost."""


class Member(Struct):
    client_id: str
    connection: Client
    language: str
    version: int
    seen_ms: int


class Subscription(NamedTuple):
    """What a group wants of a topic. `version` grows when it changes."""

    topic: str
    expression: str
    kind: str
    """TAG or SQL92."""
    version: int
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    said_by: str = ""
    """Client id."""


class ConsumerGroup(Struct):
    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    model: str = CLUSTERING
    from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[Client, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    assignments: dict[tuple[str, str], Assignment] = field(default_factory=dict)
    """(Topic, strategy) → the last one that was worked out here, for strategies that want to know."""

    def client_ids(self) -> list[str]:
        return [member.client_id for member in self.members.values()]

    def member(self, client_id: str) -> Member | None:
        return next((member for member in self.members.values() if member.client_id == client_id), None)


class Members:
    """Of all groups."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Client, Member]] = {}
        self._memberships: dict[Client, set[tuple[str, str]]] = {}
        self._turn: Counter[str] = Counter()
        self.conflicts: Counter[tuple[str, str, str, str]] = Counter()
        """(group, topic, client id, client id) → how often these members were found to subscribe to it differently."""

    # -- consumers ---------------------------------------------------------------------------------------------------

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        return self.consumers.get(group)

    def has_consumers(self, group: str) -> bool:
        return group in self.consumers

    def consumer_seen(
        self,
        group: str,
        member: Member,
        consume_type: str,
        model: str,
        from_where: str,
        subscriptions: Sequence[Subscription],
    ) -> bool:
        """A consumer's heartbeat; whether the group is not what it was."""
        known = self.consumers.get(group)
        if known is None:
            known = self.consumers[group] = ConsumerGroup(group)
        known.consume_type, known.model, known.from_where = consume_type, model, from_where
        before = known.members.get(member.connection)
        changed = before is None or before.client_id != member.client_id
        known.members[member.connection] = member
        self._memberships.setdefault(member.connection, set()).add((CONSUMER, group))
        return self._subscribe(known, subscriptions) or changed

    def _subscribe(self, group: ConsumerGroup, subscriptions: Sequence[Subscription]) -> bool:
        changed = False
        for new in subscriptions:
            old = group.subscriptions.get(new.topic)
            if old is not None and (old.kind, old.expression) != (new.kind, new.expression):
                self._conflict(group, old, new)
            if old is None or old.version < new.version:
                changed |= old is None or (old.kind, old.expression) != (new.kind, new.expression)
                group.subscriptions[new.topic] = new
        gone = set(group.subscriptions) - {each.topic for each in subscriptions}
        for topic in gone:
            del group.subscriptions[topic]
        return changed or bool(gone)

    def _conflict(self, group: ConsumerGroup, old: Subscription, new: Subscription) -> None:
        """Members that want different things of a topic lose messages: each pulls what the last one said (B25)."""
        if old.said_by == new.said_by or group.member(old.said_by) is None:
            return
        key = (group.name, new.topic, min(old.said_by, new.said_by), max(old.said_by, new.said_by))
        if key not in self.conflicts:
            log.warning(
                "event=subscriptions_differ group=%s topic=%s client=%s wants=%r client=%s wants=%r",
                group.name, new.topic, old.said_by, old.expression, new.said_by, new.expression,
            )  # fmt: skip
        self.conflicts[key] += 1

    def consumer_left(self, group: str, connection: Client) -> Member | None:
        """Who it was; None if it had not been a member."""
        known = self.consumers.get(group)
        member = None if known is None else known.members.pop(connection, None)
        if known is None or member is None:
            return None
        self._leave(connection, CONSUMER, group)
        if not known.members:
            del self.consumers[group]
            for key in [key for key in self.conflicts if key[0] == group]:
                del self.conflicts[key]
        return member

    def consumer_ids(self, connection: Client) -> dict[str, str]:
        """The groups that a connection consumes for → its client id there."""
        groups = [group for role, group in self.memberships(connection) if role == CONSUMER]
        return {group: self.consumers[group].members[connection].client_id for group in groups}

    def has_consumer(self, group: str, client_id: str) -> bool:
        known = self.consumers.get(group)
        return known is not None and known.member(client_id) is not None

    def groups_of(self, topic: str) -> Iterator[ConsumerGroup]:
        """Groups with members that subscribe to a topic."""
        for group in self.consumers.values():
            if topic in group.subscriptions:
                yield group

    # -- producers ---------------------------------------------------------------------------------------------------

    def producer_seen(self, group: str, member: Member) -> bool:
        """Whether it is new."""
        members = self._producers.setdefault(group, {})
        is_new = member.connection not in members
        members[member.connection] = member
        self._memberships.setdefault(member.connection, set()).add((PRODUCER, group))
        return is_new

    def producer_left(self, group: str, connection: Client) -> None:
        members = self._producers.get(group)
        self._leave(connection, PRODUCER, group)
        if members is not None:
            members.pop(connection, None)
            if not members:
                del self._producers[group]
                self._turn.pop(group, None)

    def producer(self, group: str) -> Client | None:
        """A live producer of the group, each in turn."""
        members = self._producers.get(group)
        if not members:
            return None
        self._turn[group] += 1
        return list(members)[self._turn[group] % len(members)]

    def has_producers(self, group: str) -> bool:
        return group in self._producers

    def producer_groups(self) -> Mapping[str, Mapping[Client, Member]]:
        return self._producers

    def producer_members(self, group: str) -> list[Member]:
        return list(self._producers.get(group, {}).values())

    # -- ends --------------------------------------------------------------------------------------------------------

    def memberships(self, connection: Client) -> Set[tuple[str, str]]:
        """(role, group) of all groups that it is a member of; roles are `consumer` and `producer`."""
        return self._memberships.get(connection, frozenset())

    def _leave(self, connection: Client, role: str, group: str) -> None:
        mine = self._memberships.get(connection)
        if mine is not None:
            mine.discard((role, group))
            if not mine:
                del self._memberships[connection]

    def closed(self, connection: Client) -> list[str]:
        """A connection is gone; the groups of consumers that it was a member of."""
        left = []
        for role, group in sorted(self.memberships(connection)):
            if role == PRODUCER:
                self.producer_left(group, connection)
            else:
                self.consumer_left(group, connection)
                left.append(group)
        return left

    def put_off(self, by_ms: int) -> None:
        """The clock has leapt, which is nobody's silence."""
        for members in [group.members for group in self.consumers.values()] + list(self._producers.values()):
            for member in members.values():
                member.seen_ms += by_ms

    def silent(self, mono_ms: int) -> list[Client]:
        """Connections that have not sent a heartbeat for too long."""
        found: dict[Client, None] = {}
        tables = [group.members for group in self.consumers.values()] + list(self._producers.values())
        for members in tables:
            for connection, member in members.items():
                if mono_ms - member.seen_ms >= self._timeout_ms:
                    found[connection] = None
        return list(found)
