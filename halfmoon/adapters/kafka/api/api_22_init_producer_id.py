"""InitProducerId (22): who an idempotent or transactional producer is (KIP-98).

Without a transactional id: a new producer id. It is told only when the block it comes from is durably reserved, so it
is never handed out twice. A producer that names its present id and epoch (version 3+, KIP-360) gets a new id as well,
as it does from Kafka. Where none can be given now it is answered COORDINATOR_LOAD_IN_PROGRESS, as Kafka's
ProducerIdManager does: at the codes by which a coordinator is looked for, Java's client would look for that of no id.

With one: the id that belongs to it, with the next epoch, so that whoever had it before is fenced. What that one left
open is aborted; Kafka answers CONCURRENT_TRANSACTIONS until it is, here it is done at once.

Rules: TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import InitProducerIdResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.transactions import transaction_code
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.transactions.service import TransactionService

KNOWS_FENCING = 4
_LOOK_AGAIN = (code(Fault.COORDINATOR_NOT_AVAILABLE), code(Fault.NOT_COORDINATOR))


def handle(ctx: Context, request: Any) -> object:
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return _refused(code(Fault.INVALID_REQUEST))

    def refused(error: Exception) -> object:
        error_code = transaction_code(error, knows_fencing=ctx.api_version >= KNOWS_FENCING)
        if request.transactional_id is None and error_code in _LOOK_AGAIN:
            error_code = code(Fault.COORDINATOR_LOAD_IN_PROGRESS)
        return _refused(error_code)

    try:
        if request.transactional_id is None:
            (producer_id, position), epoch = ctx.core.allocate_producer_id(), 0
        else:
            transactions = ctx.services.find(TransactionService)
            if transactions is None:
                return _refused(code(Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
            identity, position = transactions.init_producer_id(
                request.transactional_id, request.transaction_timeout_ms, expected
            )
            producer_id, epoch = identity.producer_id, identity.epoch
    except BrokerError as error:
        return refused(error)
    response = InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=epoch)
    return ctx.after(position, response, refused)


def _refused(error_code: int) -> Any:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=error_code, producer_id=-1, producer_epoch=-1)
