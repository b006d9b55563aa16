"""What Kafka has not: filtered views."""

from __future__ import annotations

from benchmarks.bench import Bench, Cell, Figures, named
from benchmarks.brokers import INTERVAL, Broker

VIEW_RECORDS = 2_000_000
ONE_IN = 100
"""So many records of the source are looked at for one in the view."""


def view(bench: Bench, _: Broker) -> Figures:
    """In a broker of its own, which tells how many bytes it sends: a view is filled, then Spark reads it, and reads
    and filters the whole topic."""
    broker = bench.brokers.start_halfmoon(INTERVAL, {"HALFMOON_LISTENERS_HTTP_BIND": "127.0.0.1:0"})
    try:
        records = bench.times(VIEW_RECORDS, least=10_000)
        topic = bench.topic("view")
        figures = bench.load(broker, "spark_view", http=broker.http, topic=topic, records=records, one_in=ONE_IN)
        return named("view", figures)
    finally:
        bench.brokers.stop(broker)


CELLS = (
    Cell("view", f"a view of {VIEW_RECORDS:,} records that keeps one in {ONE_IN}: filled, and read by Spark", view,
         on=(INTERVAL,)),
)  # fmt: skip
