"""Allocation strategies as kafka-python's `partition_assignment_strategy`."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka
import pytest
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.structs import TopicPartition

import halfmoon.kafka
from halfmoon.errors import StartError
from halfmoon.kafka.consumer_protocol import Assignment
from halfmoon.plugin import Queue
from halfmoon.plugins import BUILT_IN

MODERN = int(kafka.__version__.partition(".")[0]) >= 3
if MODERN:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

    read_metadata, read_assignment = ConsumerProtocolSubscription.decode, ConsumerProtocolAssignment.decode
else:
    protocol = importlib.import_module("kafka.coordinator.protocol")
    names = ("ConsumerProtocolMemberMetadata", "ConsumerProtocolMemberAssignment")
    if not hasattr(protocol, names[0]):  # 2.3 counts their versions
        names = tuple(f"{name}_v0" for name in names)
    read_metadata, read_assignment = (getattr(protocol, name).decode for name in names)

HALFMOON = Path(halfmoon.__file__).parents[1]


def test_the_other_helpers_do_without_kafka_python() -> None:
    """It takes 0.2 s to import. Programs with confluent-kafka or aiokafka have no use for it."""
    program = """
import sys
from halfmoon.kafka import Nack, NotStoredError, Sent, TransactionalOutbox, attempts, original_topic
assert "kafka" not in sys.modules
import halfmoon.kafka
assert all(hasattr(halfmoon.kafka, name) for name in halfmoon.kafka.__all__)
assert "kafka" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=HALFMOON)


class Cluster:
    """The part of kafka-python's ClusterMetadata that assignors look at."""

    def __init__(self, topics: Mapping[str, int], racks: Sequence[str | None] = (None,)) -> None:
        self.topics = topics
        self.racks = racks

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.topics[topic])) if topic in self.topics else None

    def leader_for_partition(self, partition: TopicPartition) -> int:
        return partition.partition % len(self.racks)

    def broker_metadata(self, node_id: int) -> Any:
        return SimpleNamespace(rack=self.racks[node_id])


def member(
    member_id: str, assignor: AbstractPartitionAssignor, topics: Sequence[str] = ("t",), instance: str | None = None
) -> Any:
    """A member as the leader sees it: its metadata went over the wire."""
    return SimpleNamespace(
        member_id=member_id, group_instance_id=instance, metadata=read_metadata(assignor.metadata(set(topics)).encode())
    )


def members(*joined: Any) -> Any:
    """What the kafka-python that is installed gives the leader."""
    if MODERN:
        return list(joined)
    for each in joined:
        each.metadata = InOldForm(each.metadata, each.group_instance_id)
    return {each.member_id: each.metadata for each in joined}


class InOldForm:
    """kafka-python 2.3's Subscription."""

    def __init__(self, metadata: Any, group_instance_id: str | None) -> None:
        self.subscription = metadata.subscription if hasattr(metadata, "subscription") else metadata.topics
        self.user_data = metadata.user_data
        self.group_instance_id = group_instance_id


def partitions(assignment: Mapping[str, Any], topic: str = "t") -> dict[str, list[int]]:
    """Member → its partitions of one topic, after a trip over the wire."""
    return {
        name: [p.partition for p in read_assignment(one.encode()).partitions() if p.topic == topic]
        for name, one in assignment.items()
    }


@pytest.mark.parametrize("strategy", sorted(name for name, module in BUILT_IN.items() if ".allocate." in module))
def test_every_strategy_has_the_form_kafka_python_wants(strategy: str) -> None:
    made = halfmoon.kafka.assignor(strategy)()
    assert isinstance(made, AbstractPartitionAssignor)
    assert made.name == strategy
    if MODERN:
        assert [protocol.name for protocol in made.supported_protocols()] == ["EAGER"]
    assignment = made.assign(Cluster({"t": 6}), members(member("a", made), member("b", made)))
    assert set(assignment) == {"a", "b"}


def test_members_get_what_the_strategy_says() -> None:
    made = halfmoon.kafka.assignor("averagely")()
    joined = members(member("b", made), member("a", made), member("c", made))
    assert partitions(made.assign(Cluster({"t": 7}), joined)) == {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6]}


def test_a_topic_is_shared_by_those_who_subscribe_to_it() -> None:
    made = halfmoon.kafka.assignor("averagely")()
    joined = members(member("a", made, ["t", "u"]), member("b", made, ["u"]), member("c", made, ["gone"]))
    assignment = made.assign(Cluster({"t": 2, "u": 2}), joined)
    assert partitions(assignment, "t") == {"a": [0, 1], "b": [], "c": []}
    assert partitions(assignment, "u") == {"a": [0], "b": [1], "c": []}


def test_equally_partitioned_topics_stay_together() -> None:
    made = halfmoon.kafka.assignor("averagely")()
    assignment = made.assign(
        Cluster({"t": 5, "u": 5}), members(*(member(name, made, ["t", "u"]) for name in ("a", "b")))
    )
    assert partitions(assignment, "t") == partitions(assignment, "u")


def test_static_members_go_by_their_instance_id() -> None:
    made = halfmoon.kafka.assignor("averagely")()
    joined = members(member("x-1", made, instance="two"), member("x-2", made, instance="one"))
    assert partitions(made.assign(Cluster({"t": 2}), joined)) == {"x-2": [0], "x-1": [1]}


def test_an_instance_id_that_is_another_members_id_makes_them_no_single_member() -> None:
    made = halfmoon.kafka.assignor("averagely")()
    joined = members(member("x", made), member("y", made, instance="x"))
    assert partitions(made.assign(Cluster({"t": 2}), joined)) == {"x": [0], "y": [1]}


def test_racks_are_machine_rooms() -> None:
    made = halfmoon.kafka.assignor("machine_room_nearby")()
    joined = members(member("r1-host-uuid", made), member("r2-host-uuid", made))
    assignment = made.assign(Cluster({"t": 6}, racks=["r1", "r2", "r3"]), joined)
    assert partitions(assignment) == {"r1-host-uuid": [0, 3, 2], "r2-host-uuid": [1, 4, 5]}


def test_a_sticky_consumer_keeps_what_it_has() -> None:
    cluster, sticky = Cluster({"t": 6}), halfmoon.kafka.assignor("sticky")
    old, other, new = sticky(), sticky(), sticky()
    first = old.assign(cluster, members(member("m", old), member("n", other)))
    old.on_assignment(first["m"], 1)
    other.on_assignment(first["n"], 1)
    second = partitions(old.assign(cluster, members(member("a", new), member("m", old), member("n", other))))
    assert second == {"a": [2, 5], "m": [0, 1], "n": [3, 4]}


def test_of_two_claims_the_newer_generation_counts() -> None:
    cluster, sticky = Cluster({"t": 2}), halfmoon.kafka.assignor("sticky")
    stale, fresh = sticky(), sticky()
    stale.on_assignment(Assignment({"t": [0]}), 3)
    fresh.on_assignment(Assignment({"t": [0]}), 4)
    assert partitions(stale.assign(cluster, members(member("a", stale), member("b", fresh)))) == {"a": [1], "b": [0]}


def test_members_of_other_clients_may_say_nothing_of_what_they_own() -> None:
    sticky = halfmoon.kafka.assignor("sticky")()
    for said in (b"", b"\xff", b"\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0"):
        plain = b"\0\0" + b"\0\0\0\x01\0\x01t" + len(said).to_bytes(4, "big") + said
        old = SimpleNamespace(member_id="a", group_instance_id=None, metadata=read_metadata(plain))
        joined = members(old, member("b", sticky))
        assert partitions(sticky.assign(Cluster({"t": 2}), joined)) == {"a": [0], "b": [1]}


def test_consumers_do_not_share_what_they_remember() -> None:
    sticky = halfmoon.kafka.assignor("sticky")
    one, other = sticky(), sticky()
    one.on_assignment(Assignment({"t": [0]}), 3)
    assert one.metadata({"t"}).owned
    assert not other.metadata({"t"}).owned


def test_partitions_nobody_reads_are_told(caplog: pytest.LogCaptureFixture) -> None:
    made = halfmoon.kafka.assignor("machine_room", settings={"rooms": ["r1"]})()
    with caplog.at_level(logging.WARNING):
        assignment = made.assign(Cluster({"t": 3}, racks=["r1", "r2"]), members(member("a", made)))
    assert partitions(assignment) == {"a": [0, 2]}
    assert [record.getMessage() for record in caplog.records] == [
        "event=partitions_without_owner assignor=machine_room topic=t partitions=1"
    ]


def test_a_function_will_do() -> None:
    def reversed_order(members: Sequence[str], queues: Sequence[Queue]) -> dict[str, list[Queue]]:
        return {name: list(queues)[::-1] if name == max(members) else [] for name in members}

    made = halfmoon.kafka.assignor(reversed_order)()
    assert made.name == "reversed_order"
    assert halfmoon.kafka.assignor(reversed_order, name="mine").name == "mine"
    assignment = made.assign(Cluster({"t": 3}), members(member("a", made), member("b", made)))
    assert partitions(assignment) == {"a": [], "b": [2, 1, 0]}


def test_a_strategy_that_gives_a_partition_twice_is_refused() -> None:
    made = halfmoon.kafka.assignor(lambda members, queues: {name: list(queues) for name in members}, name="greedy")()
    with pytest.raises(ValueError, match="was given to a and to b"):
        made.assign(Cluster({"t": 1}), members(member("a", made), member("b", made)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "averagly"}, "no plugin offers the allocator averagly; did you mean averagely?"),
        (
            {"strategy": "consistent_hash", "settings": {"virtual_node": 1}},
            "$.plugins.consistent_hash.virtual_node: no such setting; did you mean virtual_nodes?",
        ),
        (
            {"strategy": "x", "settings": {"a": 1}, "plugin": "stickly"},
            "no plugin is called stickly; did you mean sticky?",
        ),
    ],
)
def test_a_wrong_name_or_setting_is_said_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(StartError) as caught:
        halfmoon.kafka.assignor(**arguments)
    assert str(caught.value) == message


# ------------------------------------------------------------------------------- a strategy from a package of its own

PYPROJECT = """
[build-system]
requires = []
build-backend = "build"
backend-path = ["."]
"""

BUILD = '''
"""A build backend (PEP 517) of the standard library alone, so that pip needs neither a network nor wheel."""

from pathlib import Path
from zipfile import ZipFile

NAME = "halfmoon_allocate_backwards"
INFO = f"{NAME}-1.2.3.dist-info"
FILES = {
    f"{NAME}.py": Path(f"{NAME}.py").read_text(encoding="utf-8"),
    f"{INFO}/METADATA": "Metadata-Version: 2.1\\nName: halfmoon-allocate-backwards\\nVersion: 1.2.3\\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    f"{INFO}/entry_points.txt": f"[halfmoon]\\nbackwards = {NAME}\\n",
}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"{NAME}-1.2.3-py3-none-any.whl"
    with ZipFile(Path(wheel_directory, name), "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{INFO}/RECORD", "".join(f"{path},,\\n" for path in [*FILES, f"{INFO}/RECORD"]))
    return name
'''

MODULE = '''
"""An allocation strategy that does not ship with Halfmoon: the last members get the first queues."""

from halfmoon.plugin import ConfigSection, Section, hookimpl, sorted_members, sorted_queues

api_version = 1


class Settings(Section, frozen=True, kw_only=True):
    at_most: int = 1_000


@hookimpl
def halfmoon_config():
    return ConfigSection(Settings)


@hookimpl
def halfmoon_allocators(ctx):
    def backwards(members, queues):
        ordered, all_queues = sorted_members(members)[::-1], sorted_queues(queues)
        return {m: all_queues[at :: len(ordered)][: ctx.settings.at_most] for at, m in enumerate(ordered)}

    return {"backwards": backwards}
'''


@pytest.fixture(scope="module")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package, built and installed by pip into a directory of its own, and that directory on sys.path."""
    source = tmp_path_factory.mktemp("package")
    target = tmp_path_factory.mktemp("site")
    (source / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (source / "build.py").write_text(BUILD, encoding="utf-8")
    (source / "halfmoon_allocate_backwards.py").write_text(MODULE, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    offline = ["--no-build-isolation", "--no-deps", "--no-index"]
    run = subprocess.run(
        [*pip, *offline, "--target", str(target), str(source)], capture_output=True, text=True, timeout=50, check=False
    )
    assert run.returncode == 0, run.stderr
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    yield target
    sys.path.remove(str(target))
    sys.modules.pop("halfmoon_allocate_backwards", None)
    importlib.invalidate_caches()


@pytest.mark.usefixtures("installed_package")
def test_a_strategy_of_an_installed_package() -> None:
    made = halfmoon.kafka.assignor("backwards")()
    joined = members(*(member(name, made) for name in ("a", "b", "c")))
    assert partitions(made.assign(Cluster({"t": 4}), joined)) == {"a": [2], "b": [1], "c": [0, 3]}
    few = halfmoon.kafka.assignor("backwards", settings={"at_most": 1})()
    assert partitions(few.assign(Cluster({"t": 4}), joined)) == {"a": [2], "b": [1], "c": [0]}


@pytest.mark.usefixtures("installed_package")
def test_an_installed_package_does_not_disturb_the_others() -> None:
    assert halfmoon.kafka.assignor("sticky").name == "sticky"
    with pytest.raises(StartError, match="no plugin offers the allocator backward; did you mean backwards"):
        halfmoon.kafka.assignor("backward")


def test_it_works_in_a_process_that_never_saw_the_tests(installed_package: Path) -> None:
    code = "import halfmoon.kafka; print(halfmoon.kafka.assignor('backwards')().name)"
    env = {"PYTHONPATH": f"{installed_package}:{HALFMOON}", "PATH": ""}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=50, check=False)
    assert run.stdout == "backwards\n", run.stderr
