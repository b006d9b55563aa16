"""What a data directory belongs to, so that it is never continued over another cluster's topics.

D/broker/         the broker's own data        D/state.json      this module's
D/spark/flights/  the Parquet table            D/spark/checkpoint/
D/security/       certificates and users (secure.py)
D/broker.log, D/spark.log, D/demo.log          D/lock            held while a demo runs
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from halfmoon.pipeline.errors import PipelineError


@dataclass(slots=True, frozen=True)
class State:
    """`cluster` is whose offsets the checkpoint counts; `summary_of` the checksum of the table last summarised."""

    cluster: str
    summary_of: str = ""


@dataclass(slots=True, frozen=True)
class DataDir:
    root: Path

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def table(self) -> Path:
        return self.root / "spark" / "flights"

    @property
    def checkpoint(self) -> Path:
        return self.root / "spark" / "checkpoint"

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def read_state(self, cluster: str) -> State:
        """The state kept here, or a new one; PipelineError if it is another cluster's."""
        path = self.root / "state.json"
        if not path.exists():
            return State(cluster)
        try:
            state = State(**json.loads(path.read_text()))
        except (ValueError, TypeError) as bad:
            raise PipelineError(f"{path} cannot be understood: {bad}") from None
        if state.cluster != cluster:
            raise PipelineError(
                f"{self.root} was filled from cluster {state.cluster}, not {cluster}: give another --data-dir"
            )
        return state

    def write_state(self, state: State) -> None:
        """Replace the file in one step: a kill leaves the old one or the new one."""
        fresh = self.root / "state.json.new"
        fresh.write_text(json.dumps(asdict(state)) + "\n")
        fresh.replace(self.root / "state.json")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other demos out of this directory; PipelineError if one is in it."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PipelineError(f"another demo is running in {self.root}") from None
            yield
