"""The scripts that run a real RocketMQ and measure any server of its protocol: `ROCKETMQ_PEER=path/to/folder`.

They are not part of this repository. What is expected of the folder:

    up --fresh                         starts a name server and a broker on 127.0.0.1, with default settings but for
                                       paths and ports; prints "… ready in N ms, broker … in N ms" and, for each of
                                       the two, "NAME pid N …"
    down                               stops them
    perf HOST:PORT REGEX               measures what is at that name server; the last line is JSON: figure → value
    conformance/run HOST:PORT [REGEX]  scenarios through the Java client: "PASS name", "FAIL name: why", and a count
    environment                        PEER_DIR (state, and jars, fetched where missing), NAMESRV_PORT, BROKER_PORT,
                                       JAVA_ARGS (-Dseconds and -Dn scale perf, -Drocketmq.serialize.type), AUTOCREATE
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer import ROOT, PeerError, run_script

BESIDE_THE_REPOSITORY = ROOT.parent / "shared" / "peers" / "rocketmq"
UP_LIMIT_S = 300.0
"""With the first start the jars may have to be fetched."""
REGISTERED_LIMIT_S = 60.0
SECONDS = 4
MESSAGES = 200_000
FIGURES = {
    "send sync, 1 thread(s), 100 B": "sync_1_rec_s",
    "send sync, 8 thread(s), 100 B": "sync_8_rec_s",
    "send sync, 1 thread(s), 1024 B": "sync_1_1k_rec_s",
    "send sync, 8 thread(s), 1024 B": "sync_8_1k_rec_s",
    "send async (2000 in flight), 100 B": "async_rec_s",
    "send async (2000 in flight), 1024 B": "async_1k_rec_s",
    "send batch of 100, 1 thread(s), 100 B": "batch_1_rec_s",
    "send batch of 100, 8 thread(s), 100 B": "batch_8_rec_s",
    "push consume, pull 32, listener 1, 100 B": "consume_1_rec_s",
    "push consume, pull 32, listener 32, 100 B": "consume_32_rec_s",
    "push consume, pull 32, listener 1, 1024 B": "consume_1_1k_rec_s",
    "push consume, pull 32, listener 32, 1024 B": "consume_32_1k_rec_s",
    "tag filter 1 in 10: matches": "tag_rec_s",
    "SQL92 region = 'HZ' 1 in 10: matches": "sql_rec_s",
    "SQL92 three conditions 1 in 10: matches": "sql_three_rec_s",
    "end to end at 200/s p50": "e2e_200_p50_ms",
    "end to end at 200/s p99": "e2e_200_p99_ms",
    "end to end at 2000/s p50": "e2e_2000_p50_ms",
    "end to end at 2000/s p99": "e2e_2000_p99_ms",
    "delay level 1 (1 s), lateness p50": "level_p50_ms",
    "delay level 1 (1 s), lateness p99": "level_p99_ms",
    "delayTimeMs 2000, lateness p50": "time_p50_ms",
    "delayTimeMs 2000, lateness p99": "time_p99_ms",
    "transactions (half + commit), 1 thread(s)": "tx_1_s",
    "transactions (half + commit), 8 thread(s)": "tx_8_s",
}
"""What `perf` calls its figures, and what they are called here."""


@dataclass(slots=True)
class Started:
    namesrv: str
    pids: tuple[int, int]
    """The broker's, and the name server's."""
    ready_ms: float
    """Of both, one after the other, as they are started."""


class RocketmqPeer:
    def __init__(self, folder: Path, work: Path) -> None:
        """`work`: where its store lies. Jars are kept in PEER_DIR, by default in the user's cache."""
        self.folder = folder
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        kept = Path(os.environ.get("PEER_DIR") or cache / "peers") / "rocketmq"
        self._jars = kept / "lib"
        self._state = work / "rocketmq"
        (self._state / "rocketmq").mkdir(parents=True)
        for name in "lib", "conformance":
            (kept / name).mkdir(parents=True, exist_ok=True)
            (self._state / "rocketmq" / name).symlink_to(kept / name)

    def up(self, namesrv_port: int, broker_port: int) -> Started:
        """Start it. Raises PeerError."""
        env = {"NAMESRV_PORT": str(namesrv_port), "BROKER_PORT": str(broker_port)}
        said = self._call(["up", "--fresh"], env, UP_LIMIT_S)
        pids = dict(re.findall(r"^(\w+) pid (\d+)", said, re.MULTILINE))
        took = re.findall(r"in (\d+) ms", said)
        if len(took) != 2 or not {"broker", "namesrv"} <= pids.keys():
            raise PeerError(f"the peer's `up` said neither its pids nor when it was ready: {said[-300:]!r}")
        ready_ms = float(took[0]) + float(took[1])
        _wait_until_registered(namesrv_port)
        return Started(f"127.0.0.1:{namesrv_port}", (int(pids["broker"]), int(pids["namesrv"])), ready_ms)

    def down(self) -> None:
        self._call(["down"], {}, 90)

    def perf(self, namesrv: str, sections: str, scale: float, limit_s: float) -> dict[str, float]:
        """Measure; `sections` is a regular expression. Raises PeerError."""
        seconds, messages = max(1, round(SECONDS * scale)), max(10_000, int(MESSAGES * scale))
        java = {"JAVA_ARGS": f"-Dseconds={seconds} -Dn={messages}"}
        lines = self._call(["perf", namesrv, sections], java, limit_s).splitlines()
        faults = [line.strip() for line in lines if line.startswith("  ") and "earliest" not in line]
        if faults:
            raise PeerError("; ".join(faults))
        found = json.loads(lines[-1])
        return {FIGURES[name]: value for name, value in found.items() if name in FIGURES}

    def version(self) -> str:
        """Read off the name of the jar; it is there once it was up."""
        names = [path.name for path in self._jars.glob("rocketmq-broker-*.jar")]
        found = re.search(r"rocketmq-broker-(.+)\.jar", names[0]) if names else None
        return found[1] if found else "unknown"

    def _call(self, arguments: list[str], env: dict[str, str], limit_s: float) -> str:
        own = {**os.environ, "PEER_DIR": str(self._state), **env}
        return run_script(self.folder / arguments[0], arguments[1:], own, self._state / "peer.log", limit_s)


def _wait_until_registered(namesrv_port: int) -> None:
    """A broker that has started is not yet known to its name server. Raises PeerError."""
    header = b'{"code":106,"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}'
    request = struct.pack(">ii", 4 + len(header), len(header)) + header
    end = time.monotonic() + REGISTERED_LIMIT_S
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", namesrv_port), 5) as connection, connection.makefile("rb") as said:
            connection.sendall(request)
            (size,) = struct.unpack(">i", said.read(4))
            if b'"brokerName"' in said.read(size):
                return
        time.sleep(0.1)
    raise PeerError(f"RocketMQ's broker has not registered within {REGISTERED_LIMIT_S:.0f} s")


def find(given: str | None) -> Path | None:
    """The folder: as given, as ROCKETMQ_PEER says, or beside the repository. PeerError: a named one is missing."""
    named = given or os.environ.get("ROCKETMQ_PEER")
    if named:
        path = Path(named).resolve()
        if not (path / "perf").is_file():
            raise PeerError(f"no peer scripts in {path}")
        return path
    return BESIDE_THE_REPOSITORY if (BESIDE_THE_REPOSITORY / "perf").is_file() else None
