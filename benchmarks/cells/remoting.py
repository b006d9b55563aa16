"""RocketMQ's Java client, against a real RocketMQ and against Halfmoon."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks import rocketmq_peer
from benchmarks.bench import FEW, Bench, Cell, CellSkippedError, Figures, prefixed
from benchmarks.brokers import BARE, INTERVAL, ROCKETMQ, SYNC, Broker

EVERYTHING = ".*"
TAKEN_BY_BARE = "sync|async|batch|consume|latency|transaction"
WAITS_FOR_THE_DISK = "sync|async|batch|latency|transaction"
"""What `flush: sync` makes a difference for."""
WARM_UP = "sync|batch|transaction"
"""What comes before: a RocketMQ is half as quick in its first minute as later."""
CONSUMED = 5
"""A million messages, where RocketMQ beside Halfmoon has 200,000."""
LISTENERS = {
    "HALFMOON_LISTENERS_ROCKETMQ_BIND": "127.0.0.1:0",
    "HALFMOON_LISTENERS_ROCKETMQ_NAMESRV": "127.0.0.1:0",
}


def rocketmq(sections: str, bench: Bench, like: Broker) -> Figures:
    """Halfmoon in a broker of its own, so that its memory is what this has left."""
    if bench.rocketmq is None:
        raise CellSkippedError("needs the RocketMQ peer's scripts (--rocketmq-peer, ROCKETMQ_PEER)")
    bench.settle()
    if like.name == ROCKETMQ:
        broker = bench.brokers.start_rocketmq()
    elif like.name == BARE:
        broker, sections = bench.brokers.start_bare_rocketmq(), TAKEN_BY_BARE
    else:
        broker = bench.brokers.start_halfmoon(like.name, LISTENERS)
    try:
        idle_mb = broker.anonymous_mb()
        bench.rocketmq.perf(broker.namesrv, WARM_UP, bench.scale, bench.cell_limit_s)
        found = bench.rocketmq.perf(broker.namesrv, sections, bench.scale, 4 * bench.cell_limit_s)
        memory = {"idle_mb": idle_mb, "loaded_mb": broker.anonymous_mb(), "ready_ms": broker.ready_ms}
        return found | memory
    finally:
        bench.brokers.stop(broker)


def clients(bench: Bench, broker: Broker) -> Figures:
    """The Java client and ours, one after the other, at one broker."""
    if bench.rocketmq is None:
        raise CellSkippedError("needs the RocketMQ peer's scripts (--rocketmq-peer, ROCKETMQ_PEER)")
    bench.settle()
    started = bench.brokers.start_halfmoon(broker.name, LISTENERS)
    try:
        perf, limit_s = bench.rocketmq.perf, 4 * bench.cell_limit_s
        java = perf(started.namesrv, "sync|async", bench.scale, limit_s)
        java |= perf(started.namesrv, "consume", CONSUMED * bench.scale, limit_s)
        ours = bench.load(
            replace(started, bootstrap=started.namesrv), "python_client", topic="python-client",
            seconds=max(1.0, rocketmq_peer.SECONDS * bench.scale),
            messages=bench.times(rocketmq_peer.MESSAGES * CONSUMED, least=10_000),
        )  # fmt: skip
    finally:
        bench.brokers.stop(started)
    return prefixed("java", {name: java[name] for name in ours}) | prefixed("python", ours)


CELLS = (
    Cell("rocketmq", "RocketMQ's Java client: sends, batches, consumes, filters, latency, transactions, delays",
         partial(rocketmq, EVERYTHING), on=(ROCKETMQ, INTERVAL, BARE), rounds=FEW),
    Cell("rocketmq_sync", "RocketMQ's Java client where the broker waits for the disk",
         partial(rocketmq, WAITS_FOR_THE_DISK), on=(SYNC,), rounds=FEW),
    Cell("clients", "RocketMQ's Java client and halfmoon.client at one broker", clients, on=(INTERVAL,), rounds=FEW),
)  # fmt: skip
