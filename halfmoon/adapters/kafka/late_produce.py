"""Produce requests that are not done in one turn: some of their batches take long to check, or depend on what another
shard says of their transaction, or there are very many.

They go on in slices, and in threads, after their handler has returned. Batches are appended in their order, and before
any batch of a later request of the connection (Peer.keep).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from halfmoon.adapters.kafka.current_leader import current_leader
from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.produce_checks import (
    lost,
    no_records,
    partition_for,
    perhaps_stored,
    producer_of,
    refusal_of,
    refuse,
    refuse_all,
    refused,
    topic_of,
    translate_abortable,
    unheard_error,
)
from halfmoon.adapters.kafka.produce_codec import (
    ProduceBody,
    Results,
    Stored,
    encode,
    encode_in_slices,
    parse_in_slices,
)
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.core.append_types import TransactionalProducer
from halfmoon.core.checking import Checked
from halfmoon.core.records.batch_header import parse_header
from halfmoon.errors import AsksFirstError, BrokerError, Fault, NotHereYetError, TakesLongError

if TYPE_CHECKING:
    from collections.abc import Callable

    from halfmoon.adapters.tcp.steps import AskingSlices
    from halfmoon.core.catalog.topics import Partition

logger: Final = logging.getLogger("halfmoon.kafka")

APPENDED_AT_ONCE: Final = 100
"""Batches of a request of very many: two milliseconds."""


class Late(NamedTuple):
    """A batch that cannot be appended at once."""

    stored: Stored
    partition: "Partition"
    records: "memoryview"
    why: NotHereYetError | TakesLongError | AsksFirstError


class LateAnswer(Deferred):
    """The answer to a request of which some batches are appended later."""

    __slots__ = ("_acks", "_ctx", "_encoded", "_encodes", "_position", "_producer", "_results", "go_on")

    def __init__(
        self,
        ctx: Context,
        results: Results,
        position: int,
        producer: TransactionalProducer | None,
        acks: int,
        *,
        encoded: bool = True,
    ) -> None:
        """Not `encoded`: it becomes Results, for who puts them together with others."""
        super().__init__()
        self._encodes = encoded
        self._ctx = ctx
        self._results = results
        self._position = position
        self._producer = producer
        self._acks = acks
        self._encoded: bytes | None = None
        self.go_on: Callable[[], None] = ctx.peer.go_on
        """Called when all is appended: what was kept of the request is not needed any more."""

    def append(self, late: list[Late]) -> LateAnswer:
        """These are what is left."""
        return self._begin(self._append_all(late))

    def take(self, body: memoryview) -> LateAnswer:
        """All of it is left."""
        return self._begin(self._take(body))

    def _begin(self, steps: AskingSlices[None]) -> LateAnswer:
        peer = self._ctx.peer
        peer.soon(lambda: run_steps(steps, peer.in_thread, self._appended, self._failed, peer.soon))
        return self

    def _append_all(self, late: list[Late]) -> AskingSlices[None]:
        """One behind the other, so that what one takes in memory is gone before the next."""
        for stored, partition, records, why in late:
            yield from self._append_late(stored, partition, records, why)
        translate_abortable(self._ctx.api_version, self._results)

    def _take(self, body: memoryview) -> AskingSlices[None]:
        """Raises MalformedRequest."""
        yield from self.take_request((yield from parse_in_slices(body, self._ctx.api_version)))

    def take_request(self, request: ProduceBody) -> AskingSlices[None]:
        """Append its batches. Then `wait`."""
        ctx = self._ctx
        refusal = refusal_of(ctx, request)
        self._acks = request.acks
        if refusal is not None:
            self._results = refuse_all(ctx.core, request.topics, refusal)
        else:
            self._producer = producer_of(ctx, request)
            left = APPENDED_AT_ONCE
            for key, batches in request.topics:
                results: list[Stored] = []
                self._results.append((key, results))
                for index, records in batches:
                    yield from self._append(results, key, index, records)
                    left -= 1
                    if not left:
                        yield None
                        left = APPENDED_AT_ONCE
            translate_abortable(ctx.api_version, self._results)
        if self._acks and self._encodes:
            self._encoded = yield from encode_in_slices(self._results, ctx.api_version)

    def _append(
        self, results: list[Stored], key: str | bytes, index: int, records: memoryview | None
    ) -> AskingSlices[None]:
        core = self._ctx.core
        try:
            partition = partition_for(self._ctx, topic_of(core, key), key, index, self._acks)
            if records is None:
                raise no_records()
            if core.log.failed is not None:
                raise perhaps_stored(core.turn.refusal())
            stored = Stored(index, 0, -1, -1, -1, None)
            try:
                produced = core.append(
                    partition, records, core.clock.wall_ms(), self._producer, True, sender=self._ctx.rights
                )
            except (NotHereYetError, TakesLongError, AsksFirstError) as why:
                results.append(stored)
                late = why
            else:
                stored.take(produced)
                self._position = max(self._position, produced.position)
                results.append(stored)
                return
        except BrokerError as error:
            core.refused_batches[error.fault] += 1
            results.append(refused(index, error))
            if error.fault is Fault.NOT_LEADER_OR_FOLLOWER:
                results[-1].leader = current_leader(self._ctx, topic_of(core, key), index)
            return
        yield from self._append_late(stored, partition, records, late)

    def _append_late(
        self,
        stored: Stored,
        partition: Partition,
        records: memoryview,
        why: NotHereYetError | TakesLongError | AsksFirstError,
    ) -> AskingSlices[None]:
        try:
            yield from self._append_when_ready(stored, partition, records, why)
        except OSError as error:
            refuse(self._ctx.core, stored, BrokerError(Fault.KAFKA_STORAGE_ERROR, str(error)))
        except BrokerError as error:
            refuse(self._ctx.core, stored, error)

    def _append_when_ready(
        self,
        stored: Stored,
        partition: Partition,
        records: memoryview,
        why: NotHereYetError | TakesLongError | AsksFirstError,
    ) -> AskingSlices[None]:
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
            elif isinstance(why, AsksFirstError):
                try:
                    yield why
                except BrokerError as error:
                    if error.fault is Fault.NOT_ENOUGH_REPLICAS:  # else it may not even be the producer
                        _holds_its_place(partition, records, core.clock.wall_ms())
                    raise
            else:
                yield why.load
            if core.log.failed is not None:
                raise perhaps_stored(core.turn.refusal())
            if core.catalog.partition(partition.topic.number, partition.index) is not partition:
                raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
            try:
                produced = core.append(
                    partition, records, core.clock.wall_ms(), self._producer, True, checked, prepared, self._ctx.rights
                )
            except (NotHereYetError, TakesLongError, AsksFirstError) as again:
                why = again
                continue
            stored.take(produced)
            self._position = max(self._position, produced.position)
            return

    def _appended(self, _: None) -> None:
        self.wait()
        self.go_on()

    def wait(self) -> None:
        """All is appended: it is answered when it is durable."""
        if self._acks == 0:
            self.complete(unheard_error(self._results))
        else:
            self._ctx.core.when_durable(self._position, self._durable)

    def _failed(self, error: Exception) -> None:
        self.complete(failed(self._ctx, error))
        self.go_on()

    def _durable(self, error: BrokerError | None) -> None:
        if not self._encodes:
            self.complete(self._results if error is None else lost(self._results, error))
        elif error is not None:
            self.complete(encode(lost(self._results, error), self._ctx.api_version))
        elif self._encoded is not None:
            self.complete(self._encoded)
        else:
            self.complete(encode(self._results, self._ctx.api_version))


def _holds_its_place(partition: Partition, records: memoryview, now_ms: int) -> None:
    """The batch was refused for now, and its producer sends it again: those behind it must not be the first."""
    header = parse_header(records)
    if partition.producers is not None:
        partition.saved = None
        partition.producers.refused(header.producer_id, header.producer_epoch, header.base_sequence, now_ms)


def failed(ctx: Context, error: Exception) -> Close:
    """What becomes of a connection whose request could not be carried out to its end."""
    if isinstance(error, MalformedRequest):
        return Close(str(error))
    # A programmer's error, as one in a handler ends the connection.
    logger.error("event=request_failed peer=%s", ctx.peer.peer_host, exc_info=error)
    return Close(f"a batch could not be appended: {error!r}")
