"""DescribeTransactions (65): how the transactions of transactional ids stand (KIP-664)."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import DescribeTransactionsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault
from halfmoon.services.transactions.service import TransactionService

_State = DescribeTransactionsResponse.TransactionState


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    states = []
    for name in request.transactional_ids:
        states.append(_state(ctx, name))
        yield
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _state(ctx: Context, name: str) -> object:
    catalog = ctx.core.catalog
    entry = ctx.services.get(TransactionService).by_name.get(name)
    if entry is None:
        wrong = Fault.TRANSACTIONAL_ID_NOT_FOUND if name else Fault.INVALID_REQUEST
        return _State(
            error_code=code(wrong), transactional_id=name, transaction_state="", transaction_timeout_ms=0,
            transaction_start_time_ms=0, producer_id=0, producer_epoch=0, topics=[],
        )  # fmt: skip
    topics: dict[str, list[int]] = {}
    for number, index in entry.partitions:
        topic = catalog.by_number.get(number)
        if topic is not None:
            topics.setdefault(topic.name, []).append(index)
    return _State(
        error_code=NONE,
        transactional_id=name,
        transaction_state=entry.state.value,
        transaction_timeout_ms=entry.timeout_ms,
        transaction_start_time_ms=entry.start_ms,
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        topics=[_State.TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
