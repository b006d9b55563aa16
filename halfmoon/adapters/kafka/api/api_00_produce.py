"""Produce (0): append one batch per partition, answer when the log is durable that far.

The records are a writable view into the receive buffer. The broker stamps them there and hands the same bytes to the
write; nothing is copied in user space. One refused partition leaves the others intact.

Versions 3-13 (produce_codec.py). Versions 0-2 carry formats that are not kept; ApiVersions lists them all the same, see
there. acks=0 has no answer, so a refusal closes the connection, as Kafka does: the client would
not learn of it otherwise. The request's timeout is about replicas and means nothing here.

Rules: KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.adapters.kafka.produce_codec import Batches, ProduceBody, Results, Stored, encode, parse
from halfmoon.adapters.kafka.registry import Close, Context, Deferred, api
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.core.append import TransactionalProducer
from halfmoon.core.checking import Checked
from halfmoon.errors import BrokerError, Fault, NotHereYetError, TakesLongError

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.core import Core
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.steps import Slices

logger = logging.getLogger("halfmoon.kafka")

KNOWS_ABORTABLE = 11
ALL = -1
"""acks: of every replica that is in sync."""
REPLICAS = 1
"""Of each partition."""
ADDS_PARTITIONS = 12
"""From this version on a transactional batch adds its partition to the transaction (KIP-890)."""


@api(0, "Produce", 3, 13, raw=True)
def handle(ctx: Context, body: memoryview) -> object:
    version = ctx.api_version
    request = parse(body, version)
    refusal = _refusal(ctx, request)
    if refusal is None:
        name = request.transactional_id
        producer = None if name is None else TransactionalProducer(name, version >= ADDS_PARTITIONS)
        late: list[Late] = []
        results, position = _append_all(ctx, request, producer, late)
        if producer is not None and version < KNOWS_ABORTABLE:
            _translate_abortable(results)
        if late:
            return LateAnswer(ctx, results, position, late, producer, request.acks)
    else:
        results, position = _refuse_all(ctx.core, request.topics, refusal), 0
    if request.acks == 0:
        return _unheard_error(results)
    if position == 0:
        return encode(results, version)
    answer = ProduceAnswer(results, version)
    ctx.core.when_durable(position, answer.durable)
    return answer


class ProduceAnswer(Deferred):
    """The answer to a request whose batches are appended and not yet durable."""

    __slots__ = ("results", "version")

    def __init__(self, results: Results, version: int) -> None:
        super().__init__()
        self.results = results
        self.version = version

    def durable(self, error: BrokerError | None) -> None:
        if error is not None:
            self.results = [(topic, [_lost(stored, error) for stored in parts]) for topic, parts in self.results]
        self.complete(encode(self.results, self.version))


class Late(NamedTuple):
    """A batch that cannot be appended at once."""

    stored: Stored
    partition: Partition
    records: memoryview
    why: NotHereYetError | TakesLongError


class LateAnswer(Deferred):
    """The answer to a request of which some batches are appended later: in their order, and before any batch of a later
    request of the connection (Peer.keep)."""

    __slots__ = ("_acks", "_ctx", "_position", "_producer", "_results")

    def __init__(
        self, ctx: Context, results: Results, position: int, late: list[Late], producer: TransactionalProducer | None,
        acks: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self._ctx = ctx
        self._results = results
        self._position = position
        self._producer = producer
        self._acks = acks
        peer = ctx.peer
        peer.soon(lambda: run_steps(self._append_all(late), peer.in_thread, self._appended, self._failed, peer.soon))

    def _append_all(self, late: list[Late]) -> Slices[None]:
        """One behind the other, so that what one takes in memory is gone before the next."""
        for stored, partition, records, why in late:
            try:
                yield from self._append(stored, partition, records, why)
            except OSError as error:
                _refuse(self._ctx.core, stored, BrokerError(Fault.KAFKA_STORAGE_ERROR, str(error)))
            except BrokerError as error:
                _refuse(self._ctx.core, stored, error)

    def _append(
        self, stored: Stored, partition: Partition, records: memoryview, why: NotHereYetError | TakesLongError
    ) -> Slices[None]:
        """Raises OSError, BrokerError."""
        core = self._ctx.core
        checked: Checked | None = None
        prepared: object = None
        while True:
            if isinstance(why, TakesLongError):
                made = yield from why.steps(records)
                if isinstance(made, Checked):
                    checked = made
                else:
                    prepared = made
            else:
                yield why.load
            if core.log.failed is not None:
                raise _perhaps_stored(core.turn.refusal())
            if core.catalog.partition(partition.topic.number, partition.index) is not partition:
                raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
            try:
                produced = core.append(
                    partition, records, core.clock.wall_ms(), self._producer, True, checked, prepared
                )
            except (NotHereYetError, TakesLongError) as again:
                why = again
                continue
            stored.base_offset, stored.append_time_ms, position, stored.start_offset, _ = produced
            self._position = max(self._position, position)
            return

    def _appended(self, _: None) -> None:
        ctx = self._ctx
        if self._producer is not None and ctx.api_version < KNOWS_ABORTABLE:
            _translate_abortable(self._results)
        if self._acks == 0:
            self.complete(_unheard_error(self._results))
        else:
            ctx.core.when_durable(self._position, self._durable)
        ctx.peer.go_on()

    def _failed(self, error: Exception) -> None:
        """A programmer's error, as one in a handler ends the connection."""
        logger.error("event=request_failed peer=%s", self._ctx.peer.peer_host, exc_info=error)
        self.complete(Close(f"a batch could not be appended: {error!r}"))
        self._ctx.peer.go_on()

    def _durable(self, error: BrokerError | None) -> None:
        answer = ProduceAnswer(self._results, self._ctx.api_version)
        answer.then(self.complete)
        answer.durable(error)


def _refusal(ctx: Context, request: ProduceBody) -> BrokerError | None:
    """What is wrong with the request as a whole."""
    if ctx.core.log.failed is not None:
        return _perhaps_stored(ctx.core.turn.refusal())
    if request.acks not in (0, 1, -1):
        return BrokerError(Fault.INVALID_REQUIRED_ACKS, f"acks is {request.acks}, and must be 0, 1 or -1")
    if request.transactional_id == "":
        return BrokerError(Fault.INVALID_REQUEST, "the transactional id is empty")
    if ctx.access is not None and request.transactional_id is not None:
        try:
            ctx.check("write", "transactional_id", request.transactional_id)
        except BrokerError as error:
            return error
    return None


def _translate_abortable(results: Results) -> None:
    """For clients that do not know TRANSACTION_ABORTABLE (KIP-890)."""
    for _, stored in results:
        for part in stored:
            if part.error_code == code(Fault.TRANSACTION_ABORTABLE):
                part.error_code = code(Fault.INVALID_TXN_STATE)


def _refuse_all(core: Core, topics: list[tuple[str | bytes, Batches]], error: BrokerError) -> Results:
    core.refused_batches[error.fault] += sum(len(batches) for _, batches in topics)
    return [(topic, [_refused(index, error) for index, _ in batches]) for topic, batches in topics]


def _append_all(
    ctx: Context, request: ProduceBody, producer: TransactionalProducer | None, late: list[Late]
) -> tuple[Results, int]:
    """Append every batch; returns the results and the log position that must be durable (0: nothing was appended).
    What cannot be appended at once is put into `late`."""
    core = ctx.core
    access = ctx.access
    now_ms = core.clock.wall_ms()
    append = core.append
    owner_of, node_id = core.owners.owner_of, core.node_id
    highest = 0
    results: Results = []
    for key, batches in request.topics:
        topic = core.catalog.topic(key) if isinstance(key, str) else core.catalog.topic_by_id(key)
        stored: list[Stored] = []
        for index, records in batches:
            try:
                if access is not None:
                    _check_access(ctx, topic, key)
                partition = _partition(core, topic, key, index)
                if owner_of(partition) != node_id:
                    raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
                if records is None:
                    raise BrokerError(Fault.INVALID_RECORD, "a partition comes without records")
                if request.acks == ALL and partition.topic.rules.min_insync_replicas > REPLICAS:
                    raise _too_few_replicas(partition.topic)
                base_offset, append_time_ms, position, start_offset, _ = append(
                    partition, records, now_ms, producer, True
                )
            except (NotHereYetError, TakesLongError) as error:
                assert records is not None
                stored.append(Stored(index, 0, -1, -1, -1, None))
                late.append(Late(stored[-1], partition, ctx.peer.keep(records), error))
                continue
            except BrokerError as error:
                core.refused_batches[error.fault] += 1
                stored.append(_refused(index, error))
                continue
            if position > highest:
                highest = position
            stored.append(Stored(index, 0, base_offset, append_time_ms, start_offset, None))
        results.append((key, stored))
    return results, highest


def _refuse(core: Core, stored: Stored, error: BrokerError) -> None:
    core.refused_batches[error.fault] += 1
    stored.error_code, stored.message = code(error.fault), error.message


def _check_access(ctx: Context, topic: Topic | None, key: str | bytes) -> None:
    """A refused topic is refused whether it exists or not; an id that nobody has is unknown. Raises BrokerError."""
    name = key if isinstance(key, str) else None if topic is None else topic.name
    if name is not None:
        ctx.check("write", "topic", name)


def _partition(core: Core, topic: Topic | None, key: str | bytes, index: int) -> Partition:
    """The partition to append to. Raises BrokerError."""
    if topic is None:
        if isinstance(key, str) and core.administration.policies.reserves(key):
            raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{key}' is internal")
        raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION if isinstance(key, str) else Fault.UNKNOWN_TOPIC_ID)
    if topic.internal:
        raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{topic.name}' is internal")
    return partition_of(topic, index)


def _too_few_replicas(topic: Topic) -> BrokerError:
    return BrokerError(
        Fault.NOT_ENOUGH_REPLICAS,
        f"{REPLICAS} replica is in sync, fewer than min.insync.replicas of topic '{topic.name}', which is "
        f"{topic.rules.min_insync_replicas}",
    )


def _refused(index: int, error: BrokerError) -> Stored:
    return Stored(index, code(error.fault), -1, -1, -1, error.message)


def _lost(stored: Stored, error: BrokerError) -> Stored:
    """A batch that was appended and did not become durable; what was refused before stays refused for its reason."""
    return stored if stored.error_code else _refused(stored.index, _perhaps_stored(error))


def _perhaps_stored(error: BrokerError) -> BrokerError:
    """What producers are told of a log that has failed.

    What was appended may be on the disk or not: the next start finds out. So no answer may mean "not stored", as
    KAFKA_STORAGE_ERROR does to librdkafka: it sends the batch again under a new epoch, and recovery cannot know that it
    is the same. What comes later is answered alike, before its sequence is looked at: librdkafka begins a new epoch
    at OUT_OF_ORDER_SEQUENCE_NUMBER, too.
    """
    if error.fault is not Fault.KAFKA_STORAGE_ERROR:
        return error
    return BrokerError(Fault.REQUEST_TIMED_OUT, error.message)


def _unheard_error(results: Results) -> Close | None:
    """With acks=0: None if all went well, else the reason to close the connection."""
    for _, stored in results:
        for part in stored:
            if part.error_code:
                return Close(f"acks=0 and error {part.error_code} in partition {part.index}: {part.message}")
    return None
