"""Metrics of producers' transactions."""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.metrics import Family, Put


class Transactions(Protocol):
    """What is read (service.TransactionService)."""

    committed: int
    aborted: int
    timed_out: int

    @property
    def ongoing(self) -> int: ...
    @property
    def oldest_ms(self) -> int: ...


FAMILIES = (
    Family("halfmoon_transactions_ongoing", "gauge", "Open transactions of Kafka producers."),
    Family("halfmoon_transaction_oldest_seconds", "gauge", "Age of the oldest open transaction; 0 without one."),
    Family("halfmoon_transactions_ended_total", "counter", "Transactions that have ended, by result.", ("result",)),
    Family("halfmoon_transactional_ids", "gauge", "Known transactional ids."),
)


def read(transactions: Transactions, known_ids: int, put: Put) -> None:
    put("halfmoon_transactions_ongoing", transactions.ongoing)
    put("halfmoon_transaction_oldest_seconds", transactions.oldest_ms / 1000)
    put("halfmoon_transactions_ended_total", transactions.committed, "committed")
    put("halfmoon_transactions_ended_total", transactions.aborted - transactions.timed_out, "aborted")
    put("halfmoon_transactions_ended_total", transactions.timed_out, "timed out")
    put("halfmoon_transactional_ids", known_ids)
