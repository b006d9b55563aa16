"""What the APIs of share groups have in common: the partitions that are named, and what acknowledgements become of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from halfmoon.adapters.kafka.current_leader import CurrentLeader, current_leader
from halfmoon.adapters.kafka.errors import TOPIC_AUTHORIZATION_FAILED, code, code_of
from halfmoon.adapters.kafka.lookup import check_owner, partition_of
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.shards import Confirm
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.steps import Pauses
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.common.leaving_out import LeavingOut
from halfmoon.services.share.delivery import ShareDelivery
from halfmoon.services.share.options import Options
from halfmoon.services.share.parts import Part
from halfmoon.services.share.reading import Found
from halfmoon.services.share.service import ShareService
from halfmoon.services.share.sessions import Key
from halfmoon.services.share.share_partition import READ_AT_ONCE, RENEW, Acknowledgement, Stretch, stretches_of

NO_ID = bytes(16)


class Outcome(NamedTuple):
    """What became of something that was asked of one partition; code 0 if all is well."""

    error_code: int
    message: str | None

    @staticmethod
    def of(error: Exception) -> Outcome:
        return Outcome(code_of(error), str(error))


DONE = Outcome(0, None)
NOT_LEADER = code(Fault.NOT_LEADER_OR_FOLLOWER)


class Ledger(NamedTuple):
    """Where it stands what groups do with a partition: the log, and what gives its records out."""

    core: Core
    delivery: ShareDelivery


class Ledgers(Protocol):
    """Those of all partitions that a session may be about."""

    confirm: Confirm | None
    """As of shards.Homes."""

    def of(self, partition: Partition) -> Ledger:
        """Of a partition that this node owns."""
        ...

    def check_name(self, group: str) -> None:
        """Raises BrokerError if it is known here that a group of another kind has the name."""
        ...


class OneLedger:
    """This broker has one log."""

    confirm: Confirm | None = None

    def __init__(self, core: Core, shares: ShareService) -> None:
        self._ledger = Ledger(core, shares.delivery)
        self.check_name = shares.check_name

    def of(self, _partition: Partition) -> Ledger:
        return self._ledger


def id_of(field: Any) -> bytes:
    """A topic id, which kafka-python reads as a UUID, or None for zeroes."""
    return NO_ID if field is None else bytes(field.bytes)


def find(core: Core, key: Key) -> Partition:
    """Raises BrokerError."""
    topic = core.catalog.topic_by_id(key[0])
    if topic is None:
        raise BrokerError(Fault.UNKNOWN_TOPIC_ID)
    return partition_of(topic, key[1])


def refusal(ctx: Context, partition: Partition) -> Outcome | None:
    """Internal topics are closed to clients, and others to those to whom plugins close them."""
    topic = partition.topic
    if topic.internal or (ctx.rights is not None and not ctx.demands(("read", "topic", topic.name))):
        return Outcome(TOPIC_AUTHORIZATION_FAILED, None)
    return None


def leaders_of(ctx: Context, keys: Iterable[Key]) -> dict[Key, CurrentLeader]:
    """Who leads these partitions, which other nodes own."""
    found = {key: current_leader(ctx, ctx.core.catalog.topic_by_id(key[0]), key[1]) for key in keys}
    return {key: leader for key, leader in found.items() if leader is not None}


def hand_out(ctx: Context, given: Mapping[Key, Found]) -> None:
    """What a member is told to have acquired leaves now, without what readers are not to get: that it acknowledges as a
    gap, as what compaction has removed."""
    leaving_out = ctx.services.find(LeavingOut)
    catalog = ctx.core.catalog
    for (topic_id, index), found in given.items():
        topic = catalog.topic_by_id(topic_id)
        if topic is None:
            continue
        if leaving_out is not None:
            found.slices = leaving_out.batches(topic.name, found.slices)
        if found.size:
            catalog.traffic.sent(topic, found.size)
            for told in ctx.core.on_fetched:
                told(topic.name, index, found.size)


class Acknowledging:
    """The acknowledgements of one request: what became of them, and which logs to wait for before saying so."""

    def __init__(
        self, ctx: Context, ledgers: Ledgers, group: str, member: str, options: Options, *, may_renew: bool
    ) -> None:
        self._ctx = ctx
        self._core = ctx.core
        self._ledgers = ledgers
        self._group = group
        self._member = member
        self._options = options
        self._may_renew = may_renew
        self.outcomes: dict[Key, Outcome] = {}
        self._awaited: dict[int, tuple[Core, int, list[Key]]] = {}
        """By log: up to where it is waited for, and what rests on that."""
        self._unwritten: list[tuple[Key, Partition, ShareDelivery]] = []
        """What is in no log, and whose it was then."""

    def take(self, topics: Any) -> Pauses[None]:
        """Acknowledge what is said of each partition, in slices: all of one partition at one moment, or nothing."""
        for topic in topics:
            topic_id = id_of(topic.topic_id)
            for part in topic.partitions:
                if part.acknowledgement_batches:
                    key = topic_id, part.partition_index
                    self.outcomes[key] = yield from self._part(key, part.acknowledgement_batches)
                    yield

    def _part(self, key: Key, batches: Any) -> Pauses[Outcome]:
        try:
            self._known(key)
            said = yield from self._said(batches)
            part, (core, delivery) = self._known(key)
            position = delivery.acknowledge(part, self._member, said, self._options)
        except BrokerError as error:
            return Outcome.of(error)
        if not position:
            self._unwritten.append((key, part.place.partition, delivery))
            if any(kind != RENEW for _, _, kind in said):
                # What was finished before, perhaps a moment ago, is so once that is durable. A lock is in no log.
                position = core.turn.state_position
        if position:
            _, _, keys = self._awaited.get(id(core), (core, 0, []))
            keys.append(key)
            self._awaited[id(core)] = core, position, keys
        return DONE

    def check_here(self) -> None:
        """Just before a look is begun, which says nothing of a shard that has gone to another node between two slices:
        what is in no log has become of nothing there."""
        unwritten, self._unwritten = self._unwritten, []
        for key, partition, delivery in unwritten:
            if self._ledgers.of(partition).delivery is not delivery:
                self.outcomes[key] = Outcome(NOT_LEADER, None)

    def _known(self, key: Key) -> tuple[Part, Ledger]:
        """Raises BrokerError."""
        partition = find(self._core, key)
        self._ctx.check("read", "topic", partition.topic.name)
        check_owner(self._core, partition)
        ledger = self._ledgers.of(partition)
        part = ledger.delivery.parts.known(self._group, partition)
        if part is None:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        return part, ledger

    def _said(self, batches: Any) -> Pauses[list[Stretch]]:
        """Raises BrokerError."""
        given = []
        for at, each in enumerate(batches, 1):
            if not self._may_renew and RENEW in each.acknowledge_types:
                raise BrokerError(Fault.INVALID_REQUEST, "lock renewal needs is_renew_ack=true")
            given.append(Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types))
            if not at % READ_AT_ONCE:
                yield
        return (yield from stretches_of(given, self._options.terms))

    @property
    def waits(self) -> bool:
        """Whether something is to be durable before the outcomes are told."""
        return bool(self._awaited)

    def when_durable(self, told: Callable[[], None]) -> None:
        """Call back once the outcomes say what is durable: each log may fail for itself."""
        waiting = set(self._awaited)

        def durable(log: int, keys: list[Key], error: BrokerError | None) -> None:
            if error is not None:
                self.outcomes.update(dict.fromkeys(keys, Outcome.of(error)))
            waiting.remove(log)
            if not waiting:
                told()

        for log, (core, position, keys) in list(self._awaited.items()):
            core.when_durable(position, partial(durable, log, keys))


def has_acknowledgements(topics: Any) -> bool:
    return any(part.acknowledgement_batches for topic in topics for part in topic.partitions)
