"""Kafka Connect with its file connectors: standalone, and as a group of workers with exactly-once sources."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.clients.polling import until
from tests.crash.serving import free_port
from tests.interop.committed import committed_values
from tests.interop.connect import CLI, Cluster, worker
from tests.interop.java_programs import Program, jars, properties

MakeTopic = Callable[..., str]
LINES = 100_000

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def write(path: Path, numbers: range) -> None:
    with path.open("a") as file:
        file.writelines(f"line {number:07} of the file\n" for number in numbers)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def file_source(path: Path, topic: str, **more: object) -> dict[str, object]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": 1,
        "file": path, "topic": topic, "batch.size": 1_000, **more,
    }  # fmt: skip


def file_sink(path: Path, topic: str, **more: object) -> dict[str, object]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "tasks.max": 1,
        "file": path, "topics": topic, **more,
    }  # fmt: skip


class Standalone:
    def __init__(self, folder: Path, servers: str, name: str, topic: str) -> None:
        self.source, self.sink = folder / "source.txt", folder / "sink.txt"
        settings = worker(servers, free_port(), offset_storage_file_filename=folder / "offsets")
        self._files = [
            properties(folder / "worker.properties", settings),
            properties(folder / "source.properties", {"name": f"{name}-source", **file_source(self.source, topic)}),
            properties(folder / "sink.properties", {"name": f"{name}-sink", **file_sink(self.sink, topic)}),
        ]
        self._folder = folder
        self.program: Program | None = None

    def start(self) -> None:
        self.program = Program(
            self._folder, "standalone", jars("kafka"), f"{CLI}.ConnectStandalone", *map(str, self._files)
        )

    def wait_for(self, lines: int, deadline_s: float = 120) -> None:
        assert self.program is not None
        end = time.monotonic() + deadline_s
        while len(lines_of(self.sink)) < lines:
            assert self.program.process.poll() is None, self.program.report()
            assert time.monotonic() < end, f"{len(lines_of(self.sink))} of {lines} lines: {self.program.report()}"
            time.sleep(0.2)


@pytest.fixture
def standalone(tmp_path: Path, bootstrap_servers: str, name: str, make_topic: MakeTopic) -> Iterator[Standalone]:
    made = Standalone(tmp_path, bootstrap_servers, name, make_topic(3))
    yield made
    if made.program is not None:
        made.program.kill()


def test_a_file_comes_out_as_it_went_in(standalone: Standalone) -> None:
    """With a restart in the middle, in good order: the worker goes on from its offsets file and the group's offsets."""
    write(standalone.source, range(LINES // 2))
    standalone.start()
    standalone.wait_for(LINES // 10)
    assert standalone.program is not None
    standalone.program.stop()
    write(standalone.source, range(LINES // 2, LINES))
    standalone.start()
    standalone.wait_for(LINES)
    standalone.program.stop()
    assert sorted(lines_of(standalone.sink)) == sorted(lines_of(standalone.source))


@pytest.fixture
def cluster(tmp_path: Path, bootstrap_servers: str, name: str, admin: AdminClient) -> Iterator[Cluster]:
    made = Cluster(tmp_path, bootstrap_servers, name)
    yield made
    made.close()
    for future in admin.delete_topics(list(made.topics.values())).values():
        future.exception(10)


def test_two_workers_of_which_one_is_killed(
    cluster: Cluster, tmp_path: Path, bootstrap_servers: str, make_topic: MakeTopic, admin: AdminClient
) -> None:
    """The worker with the source dies in the middle; the other goes on from the offsets in the last transaction: each
    line is in the topic once."""
    topic, source, sink = make_topic(3), tmp_path / "source.txt", tmp_path / "sink.txt"
    ports = [cluster.start_worker(), cluster.start_worker()]
    cluster.create(
        ports[0], "source", file_source(source, topic, **{"exactly.once.support": "required", "batch.size": 100})
    )
    cluster.create(ports[1], "sink", file_sink(sink, topic))
    write(source, range(LINES // 2))
    until(lambda: len(lines_of(sink)) > LINES // 10, deadline_s=90)
    victim = until(lambda: cluster.task_worker(ports[0], "source"), deadline_s=60)
    write(source, range(LINES // 2, LINES))
    before = len(lines_of(sink))
    until(lambda: len(lines_of(sink)) > before, deadline_s=30)
    cluster.kill(victim)
    (survivor,) = set(ports) - {victim}
    until(lambda: cluster.task_worker(survivor, "source") == survivor, deadline_s=90)
    until(lambda: len(set(lines_of(sink))) >= LINES, deadline_s=120)
    found = Counter(committed_values(bootstrap_servers, topic, 3))
    assert found == Counter(lines_of(source))
    assert set(lines_of(sink)) == set(lines_of(source))

    for internal in cluster.topics.values():
        resource = ConfigResource(ConfigResource.Type.TOPIC, internal)
        assert admin.describe_configs([resource])[resource].result(10)["cleanup.policy"].value == "compact"
    assert cluster.ask(survivor, "DELETE", "/connectors/source") == []
    until(lambda: cluster.ask(survivor, "GET", "/connectors") == ["sink"])
