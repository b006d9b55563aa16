"""AddOffsetsToTxn (25): a transaction is going to commit a group's progress (KIP-98).

Producers of Kafka 4 do not ask: TxnOffsetCommit adds the group (KIP-890). As AddPartitionsToTxn, it does not wait for
the disk.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import AddOffsetsToTxnResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.transactions import transaction_code
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.transactions.service import TransactionService

KNOWS_FENCING = 2


def handle(ctx: Context, request: Any) -> object:
    def refused(error: Exception) -> object:
        error_code = transaction_code(error, knows_fencing=ctx.api_version >= KNOWS_FENCING)
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error_code)

    if not request.transactional_id or not request.group_id:
        wrong = Fault.INVALID_REQUEST if not request.transactional_id else Fault.INVALID_GROUP_ID
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code(wrong))
    try:
        position = ctx.services.get(TransactionService).add_group(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
        )
    except BrokerError as error:
        return refused(error)
    response = AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=NONE)
    return ctx.after(position, response, refused, durable=False)
