"""InitProducerId (22): a new id for an idempotent producer (KIP-98).

An id is told only when the block it comes from is durably reserved, so it is never handed out twice. A producer that
names its present id and epoch (version 3+, KIP-360) gets a new id as well, as it does from Kafka without a
transactional id.

Transactions do not exist yet: a transactional id is refused with an error that every client reports as fatal.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code, code_of
from halfmoon.adapters.kafka.protocol import InitProducerIdResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.core.errors import BrokerError, Fault


@api(22, "InitProducerId", 0, 5)
def init_producer_id(ctx: Context, request: Any) -> object:
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return _refused(code(Fault.INVALID_REQUEST))
    if request.transactional_id is not None:
        return _refused(code(Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    try:
        producer_id, position = ctx.broker.allocate_producer_id()
    except BrokerError as error:
        return _refused(code_of(error))
    response = InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)
    return ctx.after(position, response, lambda error: _refused(code_of(error)))


def _refused(error_code: int) -> Any:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=error_code, producer_id=-1, producer_epoch=-1)
