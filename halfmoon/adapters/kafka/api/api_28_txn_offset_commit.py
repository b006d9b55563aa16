"""TxnOffsetCommit (28): a group's progress that counts if the transaction commits (KIP-98, KIP-447).

From version 3 on the consumer says which member it is, in which generation or with which member epoch; a consumer that
does not is taken at its word. An epoch that the member is beyond is good for what it has held since then; where that is
not so of one partition, nothing is committed, and the transaction is to be aborted. From version 5 on the request adds
the group to the transaction (KIP-890); before, AddOffsetsToTxn must have.

Where another shard coordinates the transaction it is asked first, and the group is looked at again when it has
answered.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from halfmoon.adapters.kafka.commits import Entry, read_entry
from halfmoon.adapters.kafka.durable import when_durable
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.late_produce import failed
from halfmoon.adapters.kafka.protocol import Slices, TxnOffsetCommitResponse
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.transactions import transaction_code
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.core.append_types import TransactionalProducer
from halfmoon.errors import AsksFirstError, BrokerError, Fault
from halfmoon.services.groups.service import GroupService
from halfmoon.services.transactions.service import TransactionService

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.steps import AskingSlices

KNOWS_ABORTABLE = 4
ADDS_GROUP = 5

_TopicResult = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic

AT_ONCE = 1_000
"""So many partitions are written in one record of the log, and in one turn of the loop."""


def handle(ctx: Context, request: Any) -> Slices[object]:
    entries: list[Entry] = []
    results, committed = [], []
    for asked in request.topics:
        result = _TopicResult(name=asked.name, partitions=[])
        results.append(result)
        for part in asked.partitions:
            yield
            part_result = _TopicResult.TxnOffsetCommitResponsePartition(
                partition_index=part.partition_index, error_code=NONE
            )
            result.partitions.append(part_result)
            entry = read_entry(ctx.core.catalog.topic(asked.name), part, part_result)
            if entry is not None:
                committed.append(part_result)
                entries.append(entry)
    response = TxnOffsetCommitResponse(throttle_time_ms=0, topics=results)
    steps = _commit_all(ctx, request, response, entries, committed)
    if ctx.services.get(TransactionService).coordinates(request.transactional_id):
        return (yield from cast(Slices[object], steps))  # nobody is asked
    answer, peer = Deferred(), ctx.peer
    run_steps(
        steps, peer.in_thread, partial(_committed, answer), lambda error: answer.complete(failed(ctx, error)), peer.soon
    )  # fmt: skip
    return answer


def _committed(answer: Deferred, result: object) -> None:
    if isinstance(result, Deferred):
        result.then(answer.complete)
    else:
        answer.complete(result)


def _commit_all(
    ctx: Context, request: Any, response: Any, entries: list[Entry], committed: list[Any]
) -> AskingSlices[object]:
    """`committed`: the result of each entry."""

    def fail(result: Any, error: Exception) -> None:
        result.error_code = _code(ctx, error)

    # What is written together is checked together: the group and the transaction may go on between two slices.
    position = 0
    written: list[Any] = []
    for first in range(0, len(entries), AT_ONCE):
        some = committed[first : first + AT_ONCE]
        try:
            written_to = yield from _commit_when_known(ctx, request, entries[first : first + AT_ONCE])
            position = max(position, written_to)
            written += some
        except BrokerError as error:
            for part_result in some:
                fail(part_result, error)
        yield None
    return when_durable(ctx, position, response, written, fail)


def _commit_when_known(ctx: Context, request: Any, entries: list[Entry]) -> AskingSlices[int]:
    """As `_commit`, once the transaction's coordinator has been asked."""
    while True:
        try:
            return _commit(ctx, request, entries)
        except AsksFirstError as error:
            first = error
        yield first


def _commit(ctx: Context, request: Any, entries: list[Entry]) -> int:
    if not request.group_id:
        raise BrokerError(Fault.INVALID_GROUP_ID)
    producer = TransactionalProducer(request.transactional_id, ctx.api_version >= ADDS_GROUP)
    groups, epoch, member_id = ctx.services.get(GroupService), request.generation_id, request.member_id
    fault = groups.check_commit(request.group_id, epoch, member_id, request.group_instance_id, transactional=True)
    if fault is not None:
        raise BrokerError(fault)
    if groups.stale(request.group_id, epoch, member_id, [entry[0] for entry in entries]):
        raise BrokerError(Fault.ILLEGAL_GENERATION)
    return ctx.services.get(TransactionService).commit_offsets(
        producer, request.producer_id, request.producer_epoch, request.group_id, entries
    )


def _code(ctx: Context, error: Exception) -> int:
    if isinstance(error, BrokerError):
        if error.fault is Fault.TRANSACTION_ABORTABLE and ctx.api_version < KNOWS_ABORTABLE:
            return code(Fault.INVALID_TXN_STATE)
        if error.fault in (Fault.GROUP_ID_NOT_FOUND, Fault.STALE_MEMBER_EPOCH):
            # A generation of a group that is not there, or not the member's. To producers any other code is fatal.
            return code(Fault.ILLEGAL_GENERATION)
    return transaction_code(error, knows_fencing=False)
