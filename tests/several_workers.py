"""HALFMOON_TEST_WORKERS=2: the tests once more, with brokers that are several processes. HALFMOON_TEST_NODES=3: with
brokers that are nodes of a cluster.

`Broker()` and the fixtures over it start so many workers then. Tests that look into the broker's process are skipped.
At the end the run says how many they were, and fails where not all workers had partitions and groups.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import clear_frames
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from halfmoon.cluster.placement import SHARDS
from halfmoon.server.workers.plan import shard_folder
from halfmoon.testing import Broker
from halfmoon.testing.nodes import Nodes
from halfmoon.testing.workers import NotInThisProcessError

VARIABLE = "HALFMOON_TEST_WORKERS"
NODES = int(os.environ.get("HALFMOON_TEST_NODES") or 0)
WORKERS = NODES or int(os.environ.get(VARIABLE) or 0)
KIND = "nodes" if NODES else "workers"
REASON = "looks into the broker's process"
FIRST_NODE = 1
_live: list[Broker] = []
"""Those that run now."""
ENOUGH = 10
"""So many partitions or groups do not all come to one worker by chance."""
METADATA, FIND_COORDINATOR, LIST_GROUPS = 3, 10, 16
GROUP = 0


def nodes_at(servers: str) -> list[str]:
    """The addresses of all nodes of the broker that clients are told of so. Workers have the ports behind it; nodes of
    a cluster have any."""
    if NODES:
        (broker,) = (each for each in _live if each.bootstrap_servers == servers)
        assert isinstance(broker.processes, Nodes)
        return sorted(broker.processes.of("kafka"))
    host, _, port = servers.rpartition(":")
    return [f"{host}:{int(port) + 1 + worker}" for worker in range(WORKERS)] or [servers]


def logs_of(data_dir: str) -> list[str]:
    """The folders of the logs: one for each shard, where there are several."""
    return [str(shard_folder(Path(data_dir), shard)) for shard in range(SHARDS)] if WORKERS else [data_dir]


def first_folder(broker: Broker) -> str:
    """The data directory of the first process, with the administrator's socket."""
    return str(Nodes.folder_of(broker.data_dir, FIRST_NODE)) if NODES else broker.data_dir


def metrics_of(broker: Broker) -> str:
    """What /metrics says: of nodes each has its own."""
    doors = broker.processes.of("http") if isinstance(broker.processes, Nodes) else [broker.http]
    found = []
    for door in doors:
        with urlopen(f"http://{door}/metrics", timeout=30) as answer:
            found.append(answer.read().decode())
    return "".join(found)


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels, in what /metrics says: each worker has its own."""
    samples = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert samples, f"there is no {name} with {labels}"
    return sum(sample.value for sample in samples)


of_one_process = pytest.mark.skipif(WORKERS > 0, reason=REASON)
"""For tests that look into the broker's process by other means than its `app`: what it logs, for instance."""
not_of_nodes = pytest.mark.skipif(NODES > 0, reason="each node has metrics of its own: tests/server/nodes")
"""For tests that look at all that one /metrics says."""
one_broker_of_rocketmq = pytest.mark.xfail(WORKERS > 0, reason="-p is a queue's number, which each broker begins at 0")
"""For tests of commands that name a queue by its number alone."""
of_one_data_directory = pytest.mark.skipif(WORKERS > 0, reason="reads the data directory of one process")
"""For tests of tools that work without a broker."""


class SeveralWorkers:
    """A plugin for pytest."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._begun = 0
        """Brokers, in all."""
        self._homes: dict[str, dict[tuple[str, ...], int]] = {"partitions": {}, "groups": {}}
        """Partition or group of a broker → the node that has it."""
        self._nodes = {what: Counter[int]() for what in self._homes}
        self._counts = Counter[str]()
        self._patch = pytest.MonkeyPatch()

    # -- brokers -------------------------------------------------------------------------------------------------------

    def pytest_configure(self) -> None:
        made, start, stop, kill = Broker.__init__, Broker.start, Broker.stop, Broker.kill

        def make(broker: Broker, **given: Any) -> None:
            made(broker, **({} if "workers" in given else {KIND: self._workers}), **given)

        def started(broker: Broker) -> Broker:
            start(broker)
            _live.append(broker)
            self._begun += 1
            return broker

        def stopped(broker: Broker) -> None:
            if broker in _live:
                _live.remove(broker)
                self._look(broker)
            stop(broker)

        def killed(broker: Broker, node: int | None = None) -> None:
            if node is None and broker in _live:
                _live.remove(broker)
                self._look(broker)
            kill(broker, node)

        for name, method in (("__init__", make), ("start", started), ("stop", stopped), ("kill", killed)):
            self._patch.setattr(Broker, name, method)

    def pytest_unconfigure(self) -> None:
        self._patch.undo()

    # -- tests ---------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._skipped():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._skipped():
            begun = self._begun
            result = yield
            self._counts["ran"] += bool(_live) or self._begun > begun
            return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Before fixtures delete what they have made."""
        for broker in _live:
            self._look(broker)

    @contextmanager
    def _skipped(self) -> Iterator[None]:
        try:
            yield
        except NotInThisProcessError as error:
            self._counts["skipped"] += 1
            with warnings.catch_warnings():  # a test that ends in its midst leaves open what it has opened
                warnings.simplefilter("ignore", ResourceWarning)
                clear_frames(error.__traceback__)
                gc.collect()
            pytest.skip(REASON)
        except pytest.skip.Exception as skipped:
            self._counts["skipped"] += skipped.msg == REASON
            raise

    def _look(self, broker: Broker) -> None:
        try:
            sockets = broker.administrators
            topics = sockets[0].ask(METADATA, topics=None, allow_auto_topic_creation=False).topics
            groups = {each.group_id for socket in sockets for each in socket.ask(LIST_GROUPS).groups}
            found = sockets[0].ask(FIND_COORDINATOR, key_type=GROUP, coordinator_keys=sorted(groups))
        except OSError:  # a test that kills it
            return
        for topic in topics:
            for partition in topic.partitions:
                key = broker.data_dir, str(topic.topic_id), str(partition.partition_index)
                self._homes["partitions"][key] = partition.leader_id
        for each in found.coordinators:
            self._homes["groups"][broker.data_dir, each.key] = each.node_id

    # -- the run -------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """One of the processes of a parallel run has ended."""
        counts, nodes = getattr(node, "workeroutput", {}).get(VARIABLE, ({}, {}))
        self._counts.update(counts)
        for what, found in nodes.items():
            self._nodes[what].update({int(number): count for number, count in found.items()})

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for what, homes in self._homes.items():
            self._nodes[what].update(homes.values())
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            nodes = {what: {str(node): count for node, count in found.items()} for what, found in self._nodes.items()}
            output[VARIABLE] = dict(self._counts), nodes
        elif self._counts["ran"] and self._idle() and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _idle(self) -> list[str]:
        return [
            f"node {node} had no {what}"
            for what, found in self._nodes.items()
            for node in range(FIRST_NODE, FIRST_NODE + self._workers)
            if not found[node] and found.total() >= ENOUGH
        ]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write: Callable[[str], None] = terminalreporter.write_line
        terminalreporter.section(f"brokers of {self._workers} processes")
        write(f"{self._counts['ran']} tests ran with one")
        write(f"{self._counts['skipped']} were skipped: {REASON}")
        for what, found in self._nodes.items():
            write(f"{what}: " + ", ".join(f"{found[node]} on node {node}" for node in sorted(found)))
        for problem in self._idle():
            write(f"FAILED: {problem}")
