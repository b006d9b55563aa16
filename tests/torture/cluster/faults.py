"""What happens to a cluster: each fault is begun, and has an end."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from halfmoon.testing.proxies import DOWN, UP
from tests.torture.cluster.serving import NODES, ServingCluster

LEASE_S = 3.0
WAKES_WITHIN_S = 12.0
"""A node that is paused has lost its shards by then."""

KINDS = {
    "kill": 18, "two": 4, "all": 2, "pause": 12, "wake": 7, "stop": 6, "client": 8,
    "database restarted": 5, "database slow": 4, "database mute": 5, "database refuses": 3, "database answers lost": 6,
    "store slow": 3, "store mute": 4, "store refuses": 3, "store answers lost": 5, "store down": 3,
    "deaf": 3, "apart": 2,
}  # fmt: skip
"""How often what happens, of about 100."""


class Fault(Struct, frozen=True):
    at_ns: int
    kind: str
    nodes: tuple[int, ...]
    """Those whom it struck; all, where it struck a server."""
    for_s: float


class Striking(Struct):
    """A fault that has begun."""

    fault: Fault
    undo: Callable[[], None]


class Faults:
    def __init__(self, serving: ServingCluster, dice: random.Random) -> None:
        self._serving = serving
        self._dice = dice
        self.done: list[Fault] = []
        self._striking: list[Striking] = []
        self._spoiled: set[str] = set()
        """Names of proxies."""
        self.wakes_late = 0
        """So many nodes woke when their shards were another's."""

    def begin(self, kind: str) -> None:
        """Raises nothing but what is a fault of the rig."""
        busy = {node for one in self._striking for node in one.fault.nodes}
        free = [number for number in self._serving.running() if number not in busy]
        if kind in ("all", "database restarted", "store down", "apart"):
            nodes = tuple(range(1, NODES + 1))
            if kind == "apart" and len(free) < NODES:
                return
        else:
            count = 2 if kind == "two" else 1
            if len(free) < count:
                return
            nodes = tuple(sorted(self._dice.sample(free, count)))
        strike = getattr(self, "_" + kind.partition(" ")[0])
        for_s, undo = strike(kind, nodes)
        fault = Fault(time.monotonic_ns(), kind, nodes, round(for_s, 1))
        self.done.append(fault)
        if undo is not None:
            self._striking.append(Striking(fault, undo))

    def turn(self) -> None:
        """What is over ends."""
        now_ns = time.monotonic_ns()
        for one in list(self._striking):
            if now_ns >= one.fault.at_ns + one.fault.for_s * 1e9:
                self._striking.remove(one)
                one.undo()

    def end(self) -> None:
        """All of it."""
        for one in self._striking:
            one.undo()
        self._striking = []

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _kill(self, _kind: str, nodes: Sequence[int]) -> tuple[float, None]:
        self._serving.kill(nodes, away_s := self._dice.choice([0.0, self._dice.uniform(0.0, 6.0)]))
        return away_s, None

    _two = _kill

    def _all(self, _kind: str, nodes: Sequence[int]) -> tuple[float, None]:
        self.end()
        self._serving.kill(nodes)
        return 0.0, None

    def _stop(self, _kind: str, nodes: Sequence[int]) -> tuple[float, None]:
        (number,) = nodes
        self._serving.nodes[number].signal(signal.SIGTERM)
        self._serving.stopping.add(number)
        self._serving.away[number] = time.monotonic() + (away_s := self._dice.uniform(1.0, 8.0))
        return away_s, None

    def _pause(self, _kind: str, nodes: Sequence[int]) -> tuple[float, Callable[[], None]]:
        (number,) = nodes
        node, process = self._serving.nodes[number], self._serving.nodes[number].process
        node.signal(signal.SIGSTOP)
        for_s = self._dice.choice([self._dice.uniform(0.3, LEASE_S), self._dice.uniform(LEASE_S, 3 * LEASE_S)])

        def wake() -> None:
            if node.process is process:
                node.signal(signal.SIGCONT)

        return for_s, wake

    def _wake(self, _kind: str, nodes: Sequence[int]) -> tuple[float, None]:
        """Just when somebody else has its shards: what it had in the air then is to be refused."""
        (number,) = nodes
        serving, begun_s = self._serving, time.monotonic()
        try:
            mine = serving.tables.epochs_of(number)
            if not mine:
                return 0.0, None
            serving.nodes[number].signal(signal.SIGSTOP)
            while time.monotonic() < begun_s + WAKES_WITHIN_S:
                time.sleep(0.05)
                now = dict(serving.tables.ask("select shard, epoch from shard"))
                if any(now[shard] > epoch for shard, epoch in mine.items()):
                    self.wakes_late += 1
                    break
        except OSError:  # the database is just restarting
            pass
        serving.nodes[number].signal(signal.SIGCONT)
        return time.monotonic() - begun_s, None

    # -- what they talk to -------------------------------------------------------------------------------------------

    def _database(self, kind: str, nodes: Sequence[int]) -> tuple[float, Callable[[], None] | None]:
        if kind == "database restarted":
            server = self._serving.database
            server.stop()
            time.sleep(for_s := self._dice.choice([0.0, self._dice.uniform(0.0, 3.0)]))
            server.start()
            return for_s, None
        return self._spoil("database", kind, nodes)

    def _store(self, kind: str, nodes: Sequence[int]) -> tuple[float, Callable[[], None] | None]:
        if kind == "store down":
            store = self._serving.store
            store.stop()
            return self._dice.uniform(0.5, 6.0), store.start
        if self._dice.random() < 0.5:
            nodes = range(1, NODES + 1)
        return self._spoil("store", kind, nodes)

    def _deaf(self, _kind: str, nodes: Sequence[int]) -> tuple[float, Callable[[], None]]:
        """The others cannot reach it."""
        return self._spoil("others", self._dice.choice(["others mute", "others refuses"]), nodes)

    _apart = _deaf

    def _spoil(self, what: str, kind: str, nodes: Sequence[int]) -> tuple[float, Callable[[], None]]:
        proxies, dice = self._serving.proxies, self._dice
        names = [name for number in nodes if (name := f"{what}-{number}") not in self._spoiled]
        self._spoiled.update(names)
        how = kind.removeprefix(f"{what} ")
        resets = dice.random() < 0.5
        latency_ms = dice.choice([60, 300, 1_200])
        for name in names:
            if how == "slow":
                for stream in (DOWN, UP):
                    proxies.spoil(name, "latency", stream, latency=latency_ms // 2, jitter=latency_ms // 4)
            elif how == "mute":
                for stream in (DOWN, UP):
                    proxies.spoil(name, "timeout", stream, timeout=0)
            elif how == "refuses":
                proxies.refuse(name)
            elif resets:
                proxies.spoil(name, "limit_data", DOWN, bytes=0)
            else:
                proxies.spoil(name, "timeout", DOWN, timeout=0)
        for_s = dice.choice([dice.uniform(0.2, LEASE_S), dice.uniform(LEASE_S, 3 * LEASE_S)])

        def heal() -> None:
            for name in names:
                proxies.heal(name)
            self._spoiled.difference_update(names)

        return for_s, heal
