"""A broker for tests of several processes: `halfmoon serve --workers N` as a child, which ends when this process does.

It knows where the child's listeners are, and nothing of what is in it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halfmoon.errors import StartError
from halfmoon.server.workers.plan import FIRST_NODE, Plan
from halfmoon.testing.asked import ask_all
from halfmoon.testing.ports import choose
from halfmoon.testing.serving_process import ServingProcess, kill
from halfmoon.testing.state import State

SHARDS = 16
"""As of workers.shards: so many ports RocketMQ's clients are sent to."""
TRIES = 5
IN_USE = "Address already in use"


class NotInThisProcessError(ValueError):
    """What was asked for is in the broker's process, and this broker has processes of its own."""


class Workers:
    """Use it as often as it is to start, one after the other: it is at the same addresses each time."""

    def __init__(self, count: int, config: Mapping[str, Any]) -> None:
        """`config`: sections as in broker.yaml. Ports that are 0 are chosen here."""
        self._count = count
        self._given = config
        self._config = with_ports(config, count)
        self._process: ServingProcess | None = None
        self.addresses: dict[str, str] = {}
        """`host:port` of kafka, rocketmq, namesrv and http, as far as they are on."""

    def start(self, data_dir: str, state: State) -> None:
        """Returns when it is ready. Raises StartError, TimeoutError."""
        for left in reversed(range(TRIES)):
            try:
                self._start(data_dir, state)
            except StartError as error:
                # Somebody else was given a port of ours, which nobody has been told of yet.
                if self.addresses or not left or IN_USE not in str(error):
                    raise
                self._config = with_ports(self._given, self._count)
            else:
                return

    def _start(self, data_dir: str, state: State) -> None:
        node = {**self._config.get("node", {}), "data_dir": data_dir}
        process = ServingProcess({**self._config, "node": node}, ["--workers", str(self._count)], state)
        process.start()
        self._process, self.addresses = process, process.addresses

    def said(self, lines: int = 20) -> str:
        """The last lines of its log."""
        return "" if self._process is None else self._process.said(lines)

    def admin_sockets(self, data_dir: str) -> list[Path]:
        """The administrator's, of all processes."""
        plan = Plan(data_dir, 0, self._count, 1, {}, {})
        return [plan.socket(worker) for worker in range(self._count)]

    @property
    def instruments(self) -> list[tuple[Path, int]]:
        """Of all processes (`asked.ask_all`)."""
        assert self._process is not None
        return [(self._process.folder, worker) for worker in range(self._count)]

    def write_state(self, state: State) -> None:
        if self._process is not None:
            self._process.write_state(state)

    def stop(self) -> None:
        """Stop cleanly. Raises RuntimeError where it has ended otherwise."""
        process, self._process = self._process, None
        assert process is not None
        process.stop()

    def kill(self, node: int | None = None) -> None:
        """All of it, or one worker by its node id, which is started again at once."""
        if node is None:
            process, self._process = self._process, None
            if process is not None:
                process.kill()
        elif node in range(FIRST_NODE, FIRST_NODE + self._count):
            (pid,) = ask_all([self.instruments[node - FIRST_NODE]], "pid", {})
            kill(pid)
        else:
            raise ValueError(f"there is no node {node}: {self._count} workers, from {FIRST_NODE} on")

    def start_again(self, node: int, state: State) -> None:
        raise ValueError("a worker that was killed is restarted automatically")


def with_ports(config: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """With ports in the place of 0: workers have several, one behind the other."""
    made = copy.deepcopy(dict(config))
    listeners = made.get("listeners") or {}
    kafka = listeners.get("kafka") or []
    for listener in kafka if isinstance(kafka, list) else [kafka]:
        choose(listener, "bind", 1 + workers)
    for name, keys in (("rocketmq", {"bind": SHARDS, "namesrv": 1}), ("http", {"bind": 1})):
        for key, count in keys.items():
            choose(listeners.get(name) or {}, key, count)
    return made
