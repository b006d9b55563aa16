"""EndTxn (26): commit or abort a transaction (KIP-98).

From version 5 on the producer's epoch is raised with it and told in the answer (KIP-890). The answer waits until the
markers and the record of the end are durable, which are one frame group; there is no time between in which the next
transaction would be answered CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import EndTxnResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.adapters.kafka.transactions import transaction_code
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.transactions.service import TransactionService

KNOWS_FENCING = 2
BUMPS_EPOCH = 5


@api(26, "EndTxn", 0, 5, service=TransactionService)
def end_txn(ctx: Context, request: Any) -> object:
    version = ctx.api_version

    def refused(error: Exception) -> object:
        error_code = transaction_code(error, knows_fencing=version >= KNOWS_FENCING)
        return EndTxnResponse(throttle_time_ms=0, error_code=error_code, producer_id=-1, producer_epoch=-1)

    if not request.transactional_id:
        return EndTxnResponse(
            throttle_time_ms=0, error_code=code(Fault.INVALID_REQUEST), producer_id=-1, producer_epoch=-1
        )
    try:
        identity, position = ctx.services.get(TransactionService).end(
            request.transactional_id, request.producer_id, request.producer_epoch,
            commit=request.committed, bumps=version >= BUMPS_EPOCH,
        )  # fmt: skip
    except BrokerError as error:
        if error.fault is not Fault.INVALID_TXN_STATE:
            return refused(error)
        # It says how the transaction ended: once that end is durable.
        return ctx.after(ctx.core.turn.state_position, refused(error), refused)
    response = EndTxnResponse(
        throttle_time_ms=0, error_code=NONE, producer_id=identity.producer_id, producer_epoch=identity.epoch
    )
    return ctx.after(position, response, refused)
