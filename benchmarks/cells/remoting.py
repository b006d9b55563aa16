"""RocketMQ's Java client, against a real RocketMQ and against Halfmoon."""

from __future__ import annotations

from benchmarks.bench import HALFMOON, Bench, Cell, CellSkippedError, Figures, named
from benchmarks.brokers import ROCKETMQ, SYNC, Broker

EVERYTHING = ".*"
WAITS_FOR_THE_DISK = "sync|async|batch|latency|transaction"
"""What `flush: sync` makes a difference for."""
LISTENERS = {
    "HALFMOON_LISTENERS_ROCKETMQ_BIND": "127.0.0.1:0",
    "HALFMOON_LISTENERS_ROCKETMQ_NAMESRV": "127.0.0.1:0",
}


def rocketmq(bench: Bench, like: Broker) -> Figures:
    """Halfmoon in a broker of its own, so that its memory is what this has left."""
    if bench.rocketmq is None:
        raise CellSkippedError("needs the RocketMQ peer's scripts (--rocketmq-peer, ROCKETMQ_PEER)")
    bench.settle()
    if like.name == ROCKETMQ:
        broker = bench.brokers.start_rocketmq()
    else:
        broker = bench.brokers.start_halfmoon(like.name, LISTENERS)
    try:
        sections = WAITS_FOR_THE_DISK if like.name == SYNC else EVERYTHING
        idle_mb = broker.anonymous_mb()
        found = bench.rocketmq.perf(broker.namesrv, sections, bench.scale, 4 * bench.cell_limit_s)
        memory = {"idle_mb": idle_mb, "loaded_mb": broker.anonymous_mb(), "ready_ms": broker.ready_ms}
        return named("rocketmq", found | memory)
    finally:
        bench.brokers.stop(broker)


CELLS = (
    Cell(
        "rocketmq",
        "RocketMQ's Java client: sends, batches, consumes, filters, latency, delays, transactions",
        rocketmq,
        on=(ROCKETMQ, *HALFMOON),
    ),
)
