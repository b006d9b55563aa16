"""The script that runs a real Kafka: `KAFKA_PEER=path/to/kafka`.

It is not part of this repository. What is expected of it:

    kafka up PORT                      starts one Kafka node on 127.0.0.1:PORT, with Kafka's default settings; prints
                                       "first metadata with a broker N ms" and "pid N"
    kafka down                         stops it
    environment                        PEER_DIR (state of the node), KAFKA_LIB (Kafka's jars, fetched where missing),
                                       EXTRA_PROPS (lines at the end of server.properties), PYTHON
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BESIDE_THE_REPOSITORY = ROOT.parent / "shared" / "peers" / "kafka" / "kafka"
KAFKA_UP_LIMIT_S = 300.0
"""With the first start Kafka's jars may have to be fetched."""


class PeerError(Exception):
    """The script failed; the message is what it said last."""


@dataclass(slots=True)
class Started:
    pid: int
    ready_ms: float


class Peer:
    def __init__(self, script: Path, work: Path) -> None:
        """`work`: where its nodes keep their state."""
        self.script = script
        self.work = work
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        # The jars are kept beside the user's other nodes, so that they are fetched once and not for every run.
        peer_dir = Path(os.environ.get("PEER_DIR") or cache / "peers" / "kafka")
        self.jars = os.environ.get("KAFKA_LIB") or str(peer_dir / "lib")

    def up(self, name: str, port: int, properties: str = "") -> Started:
        """Start a node. `properties`: lines at the end of its server.properties. Raises PeerError."""
        env = {"PEER_DIR": str(self.work / name), "EXTRA_PROPS": properties}
        said = self._call(["up", str(port)], env, KAFKA_UP_LIMIT_S)
        pid = re.search(r"^pid (\d+)", said, re.MULTILINE)
        ready = re.search(r"first metadata with a broker (\d+) ms", said)
        if pid is None or ready is None:
            raise PeerError(f"the peer's `up` said neither its pid nor when it was ready: {said[-300:]!r}")
        return Started(int(pid[1]), float(ready[1]))

    def down(self, name: str) -> None:
        self._call(["down"], {"PEER_DIR": str(self.work / name)}, 60)

    def kafka_version(self) -> str:
        """Read off the name of the jar; it is there once a node was up."""
        names = [path.name for path in Path(self.jars).glob("kafka_2*.jar")]
        found = re.search(r"kafka_[\d.]+-(.+)\.jar", names[0]) if names else None
        return found[1] if found else "unknown"

    def _call(self, arguments: list[str], env: dict[str, str], limit_s: float) -> str:
        # Only the node started here is meant, whatever else the environment says.
        kept = {k: v for k, v in os.environ.items() if k not in ("EXTRA_PROPS", "TRACED_PORT")}
        env = {**kept, "KAFKA_LIB": self.jars, "PYTHON": sys.executable, **env}
        return run_script(self.script, arguments, env, self.work / "peer.log", limit_s)


def run_script(script: Path, arguments: Sequence[str], env: Mapping[str, str], log: Path, limit_s: float) -> str:
    """What a script prints; what it says besides is in `log`. Raises PeerError."""
    said = " ".join([script.name, *arguments])
    try:
        with log.open("w") as errors:
            ran = subprocess.run(
                [str(script), *arguments], env=env, text=True, check=False, timeout=limit_s,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PeerError(f"`{said}` took longer than {limit_s:.0f} s") from None
    if ran.returncode:
        raise PeerError(f"`{said}` failed: {(log.read_text() or ran.stdout)[-400:].strip()}")
    return ran.stdout


def find(given: str | None) -> Path | None:
    """The script: as given, as `KAFKA_PEER` says, or beside the repository. PeerError: a named one is missing."""
    named = given or os.environ.get("KAFKA_PEER")
    if named:
        path = Path(named).resolve()
        if not path.is_file():
            raise PeerError(f"no peer script at {path}")
        return path
    return BESIDE_THE_REPOSITORY if BESIDE_THE_REPOSITORY.is_file() else None
