"""WriteTxnMarkers (27): end a transaction in single partitions.

In Kafka the coordinator's broker asks the leaders for it, which are one and the same here; shards ask each other in
their own words. What is left of it is `Admin.abortTransaction` (`kafka-transactions.sh abort`), for transactions that
hang in a partition: a transaction is aborted where it is open. To commit in single partitions only is refused
(INVALID_REQUEST).

Its errors are a partition's, as a produce request's are: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import NONE, code_of
from halfmoon.adapters.kafka.lookup import changeable, check_owner, partition_of
from halfmoon.adapters.kafka.protocol import Slices, WriteTxnMarkersResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.transactions.service import TransactionService

_Marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = _Marker.WritableTxnMarkerTopicResult


def handle(ctx: Context, request: Any) -> Slices[object]:
    position = 0
    written: list[Any] = []
    results = []
    for asked in request.markers:
        marker = _Marker(producer_id=asked.producer_id, topics=[])
        results.append(marker)
        for topic in asked.topics:
            made = _Topic(name=topic.name, partitions=[])
            marker.topics.append(made)
            for index in topic.partition_indexes:
                yield
                result = _Topic.WritableTxnMarkerPartitionResult(partition_index=index, error_code=NONE)
                made.partitions.append(result)
                try:
                    position = max(position, _write(ctx, asked, topic.name, index))
                    written.append(result)
                except BrokerError as error:
                    result.error_code = code_of(error)
    response = WriteTxnMarkersResponse(markers=results)

    def on_error(error: Exception) -> object:
        for result in written:
            result.error_code = code_of(error)
        return response

    return ctx.after(position, response, on_error) if written else response


def _write(ctx: Context, asked: Any, topic: str, index: int) -> int:
    if asked.transaction_result:
        raise BrokerError(Fault.INVALID_REQUEST, "a transaction is committed as a whole, with EndTxn")
    partition = partition_of(changeable(ctx.core, topic), index)
    check_owner(ctx.core, partition)
    return ctx.services.get(TransactionService).abort_in(partition, asked.producer_id, asked.producer_epoch)
