"""EndTxn (26): commit or abort a transaction (KIP-98).

From version 5 on the producer's epoch is raised with it and told in the answer (KIP-890). The answer waits until the
markers and the record of the end are durable. For most transactions they are one frame group, and there is no time
between; while a large one ends, others who use its transactional id are answered CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import EndTxnResponse
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.transactions import transaction_code
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.transactions.service import TransactionService

KNOWS_FENCING = 2
BUMPS_EPOCH = 5


def handle(ctx: Context, request: Any) -> object:
    version = ctx.api_version

    def refused(error: Exception) -> object:
        error_code = transaction_code(error, knows_fencing=version >= KNOWS_FENCING)
        return EndTxnResponse(throttle_time_ms=0, error_code=error_code, producer_id=-1, producer_epoch=-1)

    if not request.transactional_id:
        return EndTxnResponse(
            throttle_time_ms=0, error_code=code(Fault.INVALID_REQUEST), producer_id=-1, producer_epoch=-1
        )
    transactions = ctx.services.get(TransactionService)
    try:
        identity, position = transactions.end(
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
    if position is not None:
        return ctx.after(position, response, refused)
    answer = Deferred()

    def told(end: int | BrokerError) -> None:
        if isinstance(end, BrokerError):
            answer.complete(refused(end))
        else:
            ctx.core.when_durable(end, lambda error: answer.complete(response if error is None else refused(error)))

    transactions.when_ended(request.transactional_id, told)
    return answer
