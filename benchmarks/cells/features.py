"""What Kafka has not: filtered views, delays, half messages; and what it costs those who do not use them."""

from __future__ import annotations

from functools import partial

from benchmarks.bench import FEW, HALFMOON, Bench, Cell, Figures, prefixed
from benchmarks.brokers import INTERVAL, Broker

DELAYED = 1_000
TRANSACTIONS = 50_000
LATE = "DELAY=1"
HEADERS = {
    "off": (1_000, 300_000, "none", False, 0, LATE),
    "on": (1_000, 300_000, "none", True, 0, LATE),
    "zstd_off": (1_000, 300_000, "zstd", False, 0, LATE),
    "zstd_on": (1_000, 300_000, "zstd", True, 0, LATE),
    "small_off": (100, 600_000, "none", False, 0, LATE),
    "small_on": (100, 600_000, "none", True, 0, LATE),
    "tagged": (100, 600_000, "none", True, 10, "TAGS=paid"),
    "keyed_off": (100, 600_000, "none", False, 1, "KEYS=order-{}"),
    "keyed": (100, 600_000, "none", True, 1, "KEYS=order-{}"),
}
"""Figure's prefix → bytes a record, records, codec, whether headers act, and one record in how many has which."""
DELAYED_RECORDS = {
    "none": (100, 600_000, "none", False, 0, LATE),
    "one_in_ten": (100, 600_000, "none", True, 10, LATE),
}
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
        return figures
    finally:
        bench.brokers.stop(broker)


Headers = dict[str, tuple[int, int, str, bool, int, str]]


def headers(loads: Headers, bench: Bench, broker: Broker) -> Figures:
    """What looking for headers costs, and what acting on them does: in turn, on topics with and without."""
    found: Figures = {}
    for name, (size, records, codec, enabled, one_in, header) in loads.items():
        bench.settle()
        count = bench.times(records)

        def load(
            size: int = size, count: int = count, codec: str = codec, enabled: bool = enabled, one_in: int = one_in,
            header: str = header, name: str = name,
        ) -> Figures:  # fmt: skip
            return bench.load(
                broker, "produce_headers", topic=bench.topic(name), size=size, count=count, codec=codec,
                enabled=enabled, one_in=one_in, header=header,
            )  # fmt: skip

        figures = bench.cpu_per_mb(broker, count * size / 2**20, load)
        found |= prefixed(name, figures)
    return found


def delays(bench: Bench, broker: Broker) -> Figures:
    """Messages that are due a second after they were sent, a level and a time, and when they come."""
    found: Figures = {}
    for name, header in (("level", "DELAY=1"), ("time", "TIMER_DELAY_MS=1000")):
        count = bench.times(DELAYED, least=100)
        figures = bench.load(
            broker, "delays", topic=bench.topic(name), header=header, delay_ms=1_000, count=count, pause_ms=2.0
        )
        found |= prefixed(name, figures)
    return found


def transactions(bench: Bench, broker: Broker) -> Figures:
    count = bench.times(TRANSACTIONS, least=1_000)
    return bench.load(broker, "transactions", topic=bench.topic("half"), count=count)


CELLS = (
    Cell("headers", "producing to topics where headers act and where they do not", partial(headers, HEADERS),
         on=(INTERVAL,), rounds=FEW),
    Cell("delayed", "producing, none delayed and one in ten", partial(headers, DELAYED_RECORDS), on=(INTERVAL,)),
    Cell("transactions", f"{TRANSACTIONS:,} half messages and their commits", transactions, on=HALFMOON),
    Cell("delays", f"{DELAYED:,} messages delayed by 1 s", delays, on=HALFMOON),
    Cell("view", f"a view of {VIEW_RECORDS:,} records that keeps one in {ONE_IN}: filled, and read by Spark", view,
         on=(INTERVAL,), rounds=FEW),
)  # fmt: skip
