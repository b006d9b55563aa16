"""ListTransactions (66): the transactional ids, by state, producer id, or how long a transaction takes (KIP-664,
KIP-994)."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import NONE
from halfmoon.adapters.kafka.protocol import ListTransactionsResponse
from halfmoon.adapters.kafka.registry import Context, api

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


@api(66, "ListTransactions", 0, 1)
def list_transactions(ctx: Context, request: Any) -> object:
    now_ms = ctx.broker.clock.wall_ms()
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    longer_ms = request.duration_filter
    found = [
        entry
        for entry in ctx.broker.catalog.transactions.by_name.values()
        if (not states or entry.state.value in states)
        and (not producer_ids or entry.producer_id in producer_ids)
        and (longer_ms < 0 or now_ms - entry.start_ms > longer_ms)
    ]
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=NONE,
        unknown_state_filters=sorted(states - STATES),
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=entry.name, producer_id=entry.producer_id, transaction_state=entry.state.value
            )
            for entry in found
        ],
    )
