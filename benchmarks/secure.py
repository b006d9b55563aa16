"""What TLS costs, beside Kafka's: `python -m benchmarks.secure`.

One Halfmoon (`flush: interval`) and one Kafka run, each with a listener without TLS and one with it, on the same
certificate. librdkafka loads the four in turn, another one first in each round: 1 KB and 100 B records with 1 MB
batches, and one record after the other. Figures are medians and ranges over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peer as peers
from benchmarks import readings
from benchmarks.bench import Bench
from benchmarks.brokers import INTERVAL, Broker, Brokers, free_ports
from benchmarks.peer import ROOT, Peer, PeerError

RECORDS = {"1 KB": (1_000, 600_000), "100 B": (100, 2_000_000)}
ONE_BY_ONE = 10_000
SIDES = ("halfmoon plain", "halfmoon TLS", "kafka plain", "kafka TLS")


@dataclass(frozen=True, slots=True)
class Side:
    """A listener that is measured. Topics are made through the plain one."""

    name: str
    broker: Broker
    over: dict[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secure", description="What TLS costs, beside Kafka's.")
    parser.add_argument("--rounds", type=int, default=5, help="times that each load is run (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full amounts of work (default 1)")
    parser.add_argument("--kafka-peer", metavar="SCRIPT", help="runs a Kafka (else $KAFKA_PEER, else looked for)")
    options = parser.parse_args()
    script = peers.find(options.kafka_peer)
    (ROOT / "out").mkdir(exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="secure-", dir=ROOT / "out"))
    try:
        with sides(work, None if script is None else Peer(script, work), options.scale) as (bench, listeners):
            found = measured(bench, listeners, options.rounds)
    except (PeerError, RuntimeError) as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(table(found))
    print(f"\n{json.dumps(readings.machine())}")
    return 0


@contextmanager
def sides(work: Path, peer: Peer | None, scale: float) -> Iterator[tuple[Bench, list[Side]]]:
    subprocess.run(
        [sys.executable, "-m", "halfmoon", "tls", "init", str(work / "tls")], check=True, capture_output=True
    )
    cert, key = work / "tls" / "broker.crt", work / "tls" / "broker.key"
    trust = {"security.protocol": "ssl", "ssl.ca.location": str(work / "tls" / "ca.crt")}
    brokers = Brokers(work, peer)
    try:
        ports = free_ports(2)
        config = work / "broker.yaml"
        config.write_text(
            "listeners:\n  kafka:\n"
            f"    - {{name: plain, bind: 127.0.0.1:{ports}}}\n"
            f"    - {{name: tls, bind: 127.0.0.1:{ports + 1}, tls: {{cert: {cert}, key: {key}}}}}\n"
        )
        halfmoon = brokers.start_halfmoon(INTERVAL, config=config)
        found = [
            Side(SIDES[0], halfmoon, {}),
            Side(SIDES[1], halfmoon, {"bootstrap.servers": f"127.0.0.1:{ports + 1}", **trust}),
        ]
        if peer is not None:
            pem = work / "tls" / "kafka.pem"
            pem.touch(0o600)
            pem.write_text(pkcs8(key) + cert.read_text())
            kafka = brokers.start_kafka(lambda port: with_tls(port, pem))
            port = int(kafka.bootstrap.rpartition(":")[2])
            found += [
                Side(SIDES[2], kafka, {}),
                Side(SIDES[3], kafka, {"bootstrap.servers": f"127.0.0.1:{port + 2}", **trust}),
            ]
        yield Bench(brokers, peer, None, work, scale), found
    finally:
        brokers.stop_all()


def pkcs8(key: Path) -> str:
    """The key as Kafka reads it."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    read = load_pem_private_key(key.read_bytes(), None)
    return read.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def with_tls(port: int, pem: Path) -> str:
    """server.properties: a second listener, two ports on."""
    names = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{port + 2}"
    return "\n".join((
        f"listeners={names},CONTROLLER://127.0.0.1:{port + 1}",
        f"advertised.listeners={names}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={pem}",
    ))  # fmt: skip


Found = dict[tuple[str, str], list[float]]
"""(side, figure) → a value for each round."""


def measured(bench: Bench, listeners: list[Side], rounds: int) -> Found:
    for side in listeners:  # a JVM compiles what it runs often
        for what in RECORDS:
            loaded(bench, side, what, 0.5)
        one_by_one(bench, side, 0.5)
    found: Found = {}
    for number in range(rounds):
        turn = number % len(listeners)
        for side in listeners[turn:] + listeners[:turn]:
            figures: dict[str, float] = {}
            for what in RECORDS:
                figures |= loaded(bench, side, what)
            figures |= one_by_one(bench, side)
            for name, value in figures.items():
                found.setdefault((side.name, name), []).append(value)
            said = "  ".join(f"{name}={value:.4g}" for name, value in figures.items())
            print(f"round {number + 1}  {side.name:15} {said}", file=sys.stderr, flush=True)
    return found


def loaded(bench: Bench, side: Side, what: str, part: float = 1.0) -> dict[str, float]:
    size, records = RECORDS[what]
    count, topic = bench.times(int(records * part)), bench.topic("secure")
    figures = {}
    for verb in ("produce", "consume"):
        os.sync()
        before_s = side.broker.cpu_s()
        got = bench.load(side.broker, verb, topic=topic, size=size, count=count, over=side.over)
        figures[f"{verb} {what}, MB/s"] = got["mb_s"]
        figures[f"{verb} {what}, broker CPU s/GB"] = (side.broker.cpu_s() - before_s) / (count * size) * 1e9
    return figures


def one_by_one(bench: Bench, side: Side, part: float = 1.0) -> dict[str, float]:
    count = bench.times(int(ONE_BY_ONE * part))
    got = bench.load(side.broker, "sync_one_by_one", topic=bench.topic("secure"), count=count, over=side.over)
    return {"one by one, p50 ms": got["p50_ms"], "one by one, p99 ms": got["p99_ms"]}


def table(found: Found) -> str:
    names = [side for side in SIDES if any(side == measured for measured, _ in found)]
    figures = list(dict.fromkeys(figure for _, figure in found))
    lines = [f"| median (range) | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for figure in figures:
        cells = [found[name, figure] for name in names]
        said = [readings.spread(values) for values in cells]
        lines.append(f"| {figure} | {' | '.join(said)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
