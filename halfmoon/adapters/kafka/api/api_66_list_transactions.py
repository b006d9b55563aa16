"""ListTransactions (66): the transactional ids, by state, producer id, how long a transaction takes, or a pattern
(KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.protocol import ListTransactionsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault
from halfmoon.services.common.patterns import InvalidPattern, Pattern
from halfmoon.services.transactions.service import TransactionService

STATES = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)
"""That clients may ask for, whether they occur here or not (TransactionState)."""


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    now_ms = ctx.core.clock.wall_ms()
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    longer_ms = request.duration_filter
    try:
        pattern = Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except InvalidPattern:
        return ListTransactionsResponse(
            throttle_time_ms=0,
            error_code=code(Fault.INVALID_REGULAR_EXPRESSION),
            unknown_state_filters=[],
            transaction_states=[],
        )
    found = []
    for entry in list(ctx.services.get(TransactionService).by_name.values()):
        if (
            (pattern is None or pattern.matches(entry.name))
            and (not states or entry.state.value in states)
            and (not producer_ids or entry.producer_id in producer_ids)
            and (longer_ms < 0 or now_ms - entry.start_ms > longer_ms)
        ):
            found.append(
                ListTransactionsResponse.TransactionState(
                    transactional_id=entry.name, producer_id=entry.producer_id, transaction_state=entry.state.value
                )
            )
        yield
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=NONE,
        unknown_state_filters=sorted(states - STATES),
        transaction_states=found,
    )
