"""What is measured, in the order in which it is run."""

from __future__ import annotations

from benchmarks.bench import Cell, TogetherCell
from benchmarks.cells import bulk, features, held, kafka_in_full, kills, latency, one_by_one, remoting, store

CELLS: tuple[Cell | TogetherCell, ...] = (
    *bulk.CELLS, *one_by_one.CELLS, *latency.CELLS, *held.CELLS, *store.CELLS, *kills.CELLS, *kafka_in_full.CELLS,
    *features.CELLS, *remoting.CELLS,
)  # fmt: skip
