"""What the APIs of share groups have in common: the partitions that are named, and what acknowledgements become of."""

from __future__ import annotations

from typing import Any, NamedTuple

from halfmoon.adapters.kafka.errors import TOPIC_AUTHORIZATION_FAILED, code_of
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.steps import Pauses
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.options import Options
from halfmoon.services.share.parts import Part
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


class Acknowledging:
    """The acknowledgements of one request: what became of them, and the log position to wait for before saying so."""

    def __init__(
        self, ctx: Context, shares: ShareService, group: str, member: str, options: Options, *, may_renew: bool
    ) -> None:
        self._ctx = ctx
        self._core = ctx.core
        self._shares = shares
        self._group = group
        self._member = member
        self._options = options
        self._may_renew = may_renew
        self.position: int | None = None
        self.outcomes: dict[Key, Outcome] = {}
        self.written: list[Key] = []

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
            position = self._shares.delivery.acknowledge(self._known(key), self._member, said, self._options)
        except BrokerError as error:
            return Outcome.of(error)
        if position:
            self.position = position
            self.written.append(key)
        return DONE

    def _known(self, key: Key) -> Part:
        """Raises BrokerError."""
        partition = find(self._core, key)
        self._ctx.check("read", "topic", partition.topic.name)
        part = self._shares.delivery.parts.known(self._group, partition)
        if part is None:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        return part

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

    def failed(self, error: Exception) -> None:
        """What was written is not in the log."""
        for key in self.written:
            self.outcomes[key] = Outcome.of(error)


def has_acknowledgements(topics: Any) -> bool:
    return any(part.acknowledgement_batches for topic in topics for part in topic.partitions)
