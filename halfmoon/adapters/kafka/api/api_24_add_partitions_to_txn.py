"""AddPartitionsToTxn (24): a transaction is going to write to these partitions (KIP-98).

Versions 0 to 3 are for clients; from version 4 on several transactions come in one request, of brokers in Kafka, and
some only ask whether a partition is there (KIP-890). Producers of Kafka 4 do not ask at all: their batches add their
partition.

One partition that does not exist leaves the others out too: OPERATION_NOT_ATTEMPTED.

The answer waits for the write alone, not for the disk. What counts comes later in the same log, the batches and the
end, and is answered when all before it is on the disk, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import AddPartitionsToTxnResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.transactions import known_partition, transaction_code
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.transactions.service import TransactionService

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition

KNOWS_FENCING = 2
BATCHED = 4
AT_ONCE = 1_000
"""So many partitions are written in one record of the log, and in one turn of the loop. Where one of the later records
is refused, all partitions are, and those of the records before get markers that nobody needs."""

_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = _TopicResult.AddPartitionsToTxnPartitionResult


def handle(ctx: Context, request: Any) -> Slices[object]:
    position = 0
    changed: list[Any] = []

    def added(name: str, producer_id: int, epoch: int, asked: Any, *, verify: bool) -> Slices[list[Any]]:
        nonlocal position
        wanted, results = yield from _results(ctx, asked)
        if len(wanted) == sum(len(topic.partitions) for topic in asked):
            try:
                if verify:
                    yield from _verify(ctx, name, producer_id, epoch, wanted)
                else:
                    for first in range(0, max(1, len(wanted)), AT_ONCE):
                        partitions = [partition for partition, _ in wanted[first : first + AT_ONCE]]
                        position = ctx.services.get(TransactionService).add_partitions(
                            name, producer_id, epoch, partitions
                        )
                        yield
                    changed.extend(result for _, result in wanted)
            except BrokerError as error:
                fail = _fail(ctx)
                for _, result in wanted:
                    fail(result, error)
                    yield
        else:
            for _, result in wanted:
                result.partition_error_code = code(Fault.OPERATION_NOT_ATTEMPTED)
                yield
        return results

    response = AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=NONE)
    if ctx.api_version < BATCHED:
        response.results_by_topic_v3_and_below = yield from added(
            request.v3_and_below_transactional_id, request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch, request.v3_and_below_topics, verify=False,
        )  # fmt: skip
    else:
        found = []
        for each in request.transactions:
            results = yield from added(
                each.transactional_id, each.producer_id, each.producer_epoch, each.topics, verify=each.verify_only
            )
            found.append(
                AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=results
                )
            )
            yield
        response.results_by_transaction = found

    def on_error(error: Exception) -> object:
        for result in changed:
            _fail(ctx)(result, error)
        return response

    return ctx.after(position, response, on_error, durable=False) if changed else response


def _results(ctx: Context, asked: Any) -> Slices[tuple[list[tuple[Partition, Any]], list[Any]]]:
    """The partitions that exist, each with its result; and the results of all, by topic."""
    wanted = []
    results = []
    for topic in asked:
        made = _TopicResult(name=topic.name, results_by_partition=[])
        results.append(made)
        for index in topic.partitions:
            yield
            partition = known_partition(ctx.core, topic.name, index)
            missing = NONE if partition is not None else code(Fault.UNKNOWN_TOPIC_OR_PARTITION)
            result = _PartitionResult(partition_index=index, partition_error_code=missing)
            made.results_by_partition.append(result)
            if partition is not None:
                wanted.append((partition, result))
    return wanted, results


def _verify(ctx: Context, name: str, producer_id: int, epoch: int, wanted: list[tuple[Partition, Any]]) -> Slices[None]:
    """Raises BrokerError where that goes for all of them."""
    for partition, result in wanted:
        yield
        try:
            ctx.services.get(TransactionService).verify_partition(name, producer_id, epoch, partition)
        except BrokerError as error:
            if error.fault is not Fault.TRANSACTION_ABORTABLE:
                raise
            _fail(ctx)(result, error)


def _fail(ctx: Context) -> Callable[[Any, Exception], None]:
    def fail(result: Any, error: Exception) -> None:
        result.partition_error_code = transaction_code(error, knows_fencing=ctx.api_version >= KNOWS_FENCING)

    return fail
