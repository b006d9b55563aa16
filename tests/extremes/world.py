"""What an extreme works with: a broker of its own in a process, connections to it, a witness; and how it is
measured."""

from __future__ import annotations

import os
import re
import signal
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from halfmoon.adapters.kafka.protocol import CreateTopicsRequest
from tests.extremes.broker import FORGOTTEN
from tests.extremes.witness import Witness
from tests.fuzz.peer import ClosedError, Peer, framed
from tests.fuzz.process import BrokerProcess
from tests.fuzz.remoting import Remote

PATIENCE_S = 300.0
"""An answer comes by then, also on a machine that does other things."""

CPU, WALL = "halfmoon_loop_longest_turn_cpu_seconds", "halfmoon_loop_longest_turn_seconds"
_LINE = re.compile(rf'({CPU}|{WALL}){{cause="(\w+)"}} (\S+)')


class Turn(NamedTuple):
    """The longest of a run."""

    cpu_s: float
    wall_s: float
    cause: str


NONE = Turn(0.0, 0.0, "")

Steps = Iterator[None]
"""Prepares until its first yield; each further step is one run of the extreme."""


class Extreme(NamedTuple):
    name: str
    area: str
    what: str
    steps: Callable[[World], Steps]
    settings: Mapping[str, Any]


class World:
    """One broker and who asks it. A context manager."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        sections: dict[str, Any] = {
            "listeners": {
                "http": {"bind": "127.0.0.1:0"},
                "rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"},
            },
            "log": {"flush": "interval"},
            "groups": {"initial_rebalance_delay": "0ms", "share": {"auto_offset_reset": "earliest"}},
        }
        for section, values in settings.items():
            sections[section] = {**sections.get(section, {}), **values}
        self._of_broker = ExitStack()
        self._folder, self._sections = folder, sections

    def __enter__(self) -> World:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._of_broker.close()

    def start(self) -> None:
        """The broker, on the data that is there; and its witness."""
        self.broker = BrokerProcess(self._folder, module="tests.extremes.broker", **self._sections)
        self._of_broker.enter_context(self.broker)
        self.witness = self._of_broker.enter_context(Witness(self.broker.address))
        self.admin = self.peer()

    def kill(self) -> None:
        """The broker ends at once."""
        self._of_broker.close()
        self._of_broker = ExitStack()

    def peer(self) -> Peer:
        return self._of_broker.enter_context(Peer(self.broker.address))

    def remote(self) -> Remote:
        return self._of_broker.enter_context(Remote(self.broker.rocketmq))

    def remote_names(self) -> Remote:
        return self._of_broker.enter_context(Remote(self.broker.names))

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        return self.admin.ask(key, version, PATIENCE_S, **fields)

    def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        self.topics({name: partitions}, **configs)

    def topics(self, wanted: Mapping[str, int], **configs: str) -> None:
        creatable = CreateTopicsRequest.CreatableTopic
        said = [
            creatable.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
        ]
        made = [
            creatable(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=said)
            for name, count in wanted.items()
        ]
        answer = self.ask(19, 5, topics=made, timeout_ms=60_000, validate_only=False)
        errors = {topic.name: topic.error_code for topic in answer.topics if topic.error_code}
        assert not errors, errors

    def produce(self, parts: Mapping[str, Sequence[tuple[int, bytes]]], peer: Peer | None = None) -> set[int]:
        """One request with all of it; the errors in its answer, 0 among them."""
        peer = peer or self.admin
        peer.send(produce_request(parts))
        return produced(peer.frame(PATIENCE_S))

    def stored(self, topic: str, batch: bytes) -> None:
        assert self.produce({topic: [(0, batch)]}) == {0}

    def forget(self) -> None:
        """What was longest up to now."""
        os.kill(self.broker.pid, signal.SIGUSR1)
        assert self.broker.line() == FORGOTTEN
        self.witness.longest_s()

    def longest(self) -> Turn:
        """By its CPU time."""
        with urllib.request.urlopen(f"http://{self.broker.http}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        cpu: dict[str, float] = {}
        wall: dict[str, float] = {}
        for name, cause, value in _LINE.findall(text):
            (cpu if name == CPU else wall)[cause] = float(value)
        return max((Turn(cpu_s, wall[cause], cause) for cause, cpu_s in cpu.items()), default=NONE)

    def checkpoints(self) -> set[int]:
        """Another set after each checkpoint."""
        return {path.stat().st_ino for path in self._folder.rglob("checkpoint")}

    def metric(self, name: str) -> float:
        """Summed over its labels."""
        with urllib.request.urlopen(f"http://{self.broker.http}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}[{{ ]", line))

    def until(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, "it did not come"
            time.sleep(0.02)


class Measured(NamedTuple):
    extreme: Extreme
    best: Turn
    """Of the run whose longest turn was the shortest: others on the machine only add."""
    waited_s: float
    """The witness, at most, in the run in which that was least."""
    runs: int


def measure(extreme: Extreme, runs: int, folder: Path, *, enough_s: float = 0.0) -> Measured:
    """`enough_s`: no further run after one whose longest turn used no more CPU than this."""
    turns: list[Turn] = []
    waits_s: list[float] = []
    with World(folder, extreme.settings) as world:
        steps = extreme.steps(world)
        next(steps)
        for _ in range(runs):
            world.forget()
            try:
                next(steps)
            except ClosedError:
                raise AssertionError(f"a connection was closed: {world.broker.read_log()[-1:]}") from None
            waits_s.append(world.witness.longest_s())
            turns.append(world.longest())
            if turns[-1].cpu_s <= enough_s:
                break
        world.broker.check()
    return Measured(extreme, min(turns), min(waits_s), len(turns))


def produce_request(
    parts: Mapping[str, Sequence[tuple[int, bytes]]], acks: int = 1, transaction: str | None = None
) -> bytes:
    """Produce 7, framed."""
    said = bytearray(struct.pack(">hhih", 0, 7, 1, -1))
    name = None if transaction is None else transaction.encode()
    said += struct.pack(">h", -1) if name is None else struct.pack(">h", len(name)) + name
    said += struct.pack(">hii", acks, 60_000, len(parts))
    for topic, batches in parts.items():
        said += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(batches))
        for index, batch in batches:
            said += struct.pack(">ii", index, len(batch)) + batch
    return framed(bytes(said))


def produced(frame: bytes) -> set[int]:
    """The error codes in an answer to it."""
    (topics,) = struct.unpack_from(">i", frame, 4)
    at = 8
    found = set()
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", frame, at)
        at += 2 + size
        (count,) = struct.unpack_from(">i", frame, at)
        at += 4
        for _ in range(count):
            _, error, _, _, _ = struct.unpack_from(">ihqqq", frame, at)
            found.add(error)
            at += 30
    return found
