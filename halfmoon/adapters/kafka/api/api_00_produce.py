"""Produce (0): append one batch per partition, answer when the log is durable that far.

The records are a writable view into the receive buffer. The broker stamps them there and hands the same bytes to the
write; nothing is copied in user space. One refused partition leaves the others intact.

Versions 3-13 (produce_codec.py). Versions 0-2 carry formats that are not kept; ApiVersions lists them all the same, see
there. acks=0 has no answer, so a refusal closes the connection, as Kafka does: the client would
not learn of it otherwise. The request's timeout is about replicas and means nothing here.

Here is what is done in one turn of the loop, as nearly all requests are; the others go on in late_produce.py.

Rules: KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

from halfmoon.adapters.kafka.current_leader import current_leader
from halfmoon.adapters.kafka.late_produce import Late, LateAnswer
from halfmoon.adapters.kafka.produce_checks import (
    lost,
    no_records,
    partition_for,
    producer_of,
    refusal_of,
    refusal_without_id,
    refuse_all,
    refused,
    topic_of,
    translate_abortable,
    unheard_error,
)
from halfmoon.adapters.kafka.produce_codec import FEW, ManyBatchesError, ProduceBody, Results, Stored, encode, parse
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.core.append_types import TransactionalProducer
from halfmoon.errors import AsksFirstError, BrokerError, Fault, NotHereYetError, TakesLongError


def handle(ctx: Context, body: memoryview) -> object:
    version = ctx.api_version
    try:
        request = parse(body, version, FEW)
    except ManyBatchesError:
        return LateAnswer(ctx, [], 0, None, 0).take(ctx.peer.keep(body))
    return answer(ctx, request)


def answer(ctx: Context, request: ProduceBody, *, encoded: bool = True) -> object:
    """What is answered to a parsed request. Not `encoded`: Results, now or later, for who puts them together with
    others."""
    version = ctx.api_version
    refusal = refusal_of(ctx, request)
    if refusal is None:
        producer = producer_of(ctx, request)
        late: list[Late] = []
        results, position = _append_all(ctx, request, producer, late)
        if producer is not None:
            translate_abortable(version, results)
        if late:
            return LateAnswer(ctx, results, position, producer, request.acks, encoded=encoded).append(late)
    else:
        results, position = refuse_all(ctx.core, request.topics, refusal), 0
    if request.acks == 0:
        return unheard_error(results)
    if position == 0:
        return encode(results, version) if encoded else results
    later = ProduceAnswer(results, version if encoded else -1)
    ctx.core.when_durable(position, later.durable)
    return later


class ProduceAnswer(Deferred):
    """The answer to a request whose batches are appended and not yet durable."""

    __slots__ = ("results", "version")

    def __init__(self, results: Results, version: int) -> None:
        """`version` −1: it is not encoded."""
        super().__init__()
        self.results = results
        self.version = version

    def durable(self, error: BrokerError | None) -> None:
        results = self.results if error is None else lost(self.results, error)
        self.complete(results if self.version < 0 else encode(results, self.version))


def _append_all(
    ctx: Context, request: ProduceBody, producer: TransactionalProducer | None, late: list[Late]
) -> tuple[Results, int]:
    """Append every batch; returns the results and the log position that must be durable (0: nothing was appended).
    What cannot be appended at once is put into `late`."""
    core = ctx.core
    acks = request.acks
    now_ms = core.clock.wall_ms()
    append, sender = core.append, ctx.rights
    highest = 0
    results: Results = []
    for key, batches in request.topics:
        topic = topic_of(core, key)
        stored: list[Stored] = []
        for index, records in batches:
            try:
                partition = partition_for(ctx, topic, key, index, acks)
                if records is None:
                    raise no_records()
                produced = append(partition, records, now_ms, producer, True, sender=sender)
            except (NotHereYetError, TakesLongError, AsksFirstError) as error:
                refusal = refusal_without_id(ctx, request)
                if refusal is None:
                    assert records is not None
                    stored.append(Stored(index, 0, -1, -1, -1, None))
                    late.append(Late(stored[-1], partition, ctx.peer.keep(records), error))
                    continue
            except BrokerError as error:
                refusal = refusal_without_id(ctx, request) or error
            else:
                if produced.position > highest:
                    highest = produced.position
                stored.append(Stored(index, 0, produced.base_offset, produced.append_ms, produced.start_offset, None))
                continue
            core.refused_batches[refusal.fault] += 1
            stored.append(refused(index, refusal))
            if refusal.fault is Fault.NOT_LEADER_OR_FOLLOWER:
                stored[-1].leader = current_leader(ctx, topic, index)
        results.append((key, stored))
    return results, highest
