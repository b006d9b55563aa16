"""The longest turn of the loop that one request causes: CPU time of the loop's thread, for each API at the limits.

    python -m benchmarks.longest_turns [--partitions N] [NAME …]

The broker runs in a thread of this process, with asyncio's own loop, which lets each turn be measured (uvloop's turns
cannot be looked into). Clients are sockets of another thread, whose CPU does not count. Each case is asked three times,
where it can be, and the best one counts; beside it the number of turns that took over 5 ms, and what the request took.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from halfmoon.config.settings import load_settings
from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.server.app import App
from halfmoon.server.garbage import collect_rarely
from tests.kafka_messages import read_answer, request_bytes

LIMIT_S = 0.020
LONG_S = 0.005
ELEMENTS = 49_000
"""Just below the most array elements of a request (halfmoon/kafka_wire/primitives.py)."""


class MeasuredLoop(asyncio.SelectorEventLoop):
    """Notes the CPU time of its thread for each turn."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[float] = []
        self.collections: list[float] = []
        """Of the garbage collector, of its second and third generation."""
        gc.callbacks.append(self._collected)
        self._begun = 0.0

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.thread_time()
        elif info["generation"]:
            self.collections.append(time.thread_time() - self._begun)

    def _run_once(self) -> None:
        begun = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        took = time.thread_time() - begun
        if took > 0.001:
            self.turns.append(took)


class Bench:
    """A broker in a thread, and a client."""

    def __init__(self) -> None:
        self.loop = MeasuredLoop()
        self.app: App
        self._started = threading.Event()
        self._dir = tempfile.TemporaryDirectory(prefix="halfmoon-turns-")
        threading.Thread(target=self._run, daemon=True).start()
        self._started.wait()
        self.socket = self.connect()
        self._id = 0

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._start())
        self.loop.run_forever()

    async def _start(self) -> None:
        given = {
            "node.data_dir": self._dir.name, "listeners.kafka.bind": "127.0.0.1:0",
            "listeners.rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"},
            "listeners.http": {"bind": "127.0.0.1:0"}, "log.flush": "interval", "log.low_disk_bytes": 0,
            "groups.initial_rebalance_delay": "0ms",
        }  # fmt: skip
        self.app = App(load_settings(None, {}, given))
        await self.app.start()
        collect_rarely()
        self._started.set()

    @property
    def node(self) -> Any:
        return self.app.node

    @property
    def kernel(self) -> Any:
        return self.app.node.kernel

    def connect(self) -> socket.socket:
        assert self.app.kafka_address is not None
        host, port = str(self.app.kafka_address).split(":")
        made = socket.create_connection((host, int(port)))
        made.settimeout(300)
        return made

    def in_loop(self, work: Callable[[], Any]) -> Any:
        done = threading.Event()
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(work())
            except BaseException:
                traceback.print_exc()
                found.append(None)
            done.set()

        self.loop.call_soon_threadsafe(run)
        done.wait()
        return found[0]

    def ask(self, key: int, version: int, /, **fields: Any) -> tuple[bytes, int]:
        self._id += 1
        return self.ask_bytes(request_bytes(key, version, self._id, "turns", **fields))

    def ask_bytes(self, said: bytes) -> bytes:
        self.socket.sendall(said)
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            part = self.socket.recv(min(left, 1 << 20))
            if not part:
                raise EOFError("the broker has closed the connection")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def element(key: int, kind_path: str, /, **fields: Any) -> Any:
    kind: Any = REQUESTS[key]
    for name in kind_path.split("."):
        kind = getattr(kind, name)
    return kind(**fields)


class Case:
    def __init__(
        self, name: str, key: int, version: int, make: Callable[[Bench, int], dict[str, Any]], times: int
    ) -> None:
        self.name, self.key, self.version, self.make, self.times = name, key, version, make, times


CASES: list[Case] = []


def case(name: str, key: int, version: int, times: int = 2) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        CASES.append(Case(name, key, version, make, times))
        return make

    return add


def create_topics_in_loop(bench: Bench, prefix: str, count: int, partitions: int) -> None:
    at = 0
    while at < count:
        upto = min(count, at + 50)

        def some(low: int = at, high: int = upto) -> None:
            for each in range(low, high):
                if f"{prefix}{each:05}" not in bench.kernel.catalog.by_name:
                    bench.kernel.administration.create_topic(f"{prefix}{each:05}", partitions)

        bench.in_loop(some)
        at = upto


# -- topics ------------------------------------------------------------------------------------------------------------


def _new(count: int, partitions: int, prefix: str) -> dict[str, Any]:
    return {
        "topics": [
            element(19, "CreatableTopic", name=f"{prefix}{each}", num_partitions=partitions, replication_factor=1,
                    assignments=[], configs=[])
            for each in range(count)
        ],
        "timeout_ms": 60_000, "validate_only": False,
    }  # fmt: skip


@case("CreateTopics, 5,000 topics", 19, 7)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return _new(5_000, 1, f"c{turn}-")


@case("CreateTopics, 5,000 topics v1", 19, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return _new(5_000, 1, f"cc{turn}-")


@case("CreateTopics, 5,000 topics, validate only", 19, 7)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return _new(5_000, 1, f"v{turn}-") | {"validate_only": True}


@case("CreateTopics, one of 10,000 partitions", 19, 7)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return _new(1, 10_000, f"large{turn}-")


@case("CreateTopics, 20,000 that exist", 19, 7)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    made = _new(20_000, 1, "c0-")
    return made


@case("CreatePartitions, one to 10,000", 37, 3)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topic = element(37, "CreatePartitionsTopic", name=f"c1-{turn}", count=10_000, assignments=None)
    return {"topics": [topic], "timeout_ms": 1000, "validate_only": False}


@case("CreatePartitions, 5,000 to 2", 37, 3)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(37, "CreatePartitionsTopic", name=f"c0-{each}", count=2 + turn, assignments=None)
        for each in range(5_000)
    ]
    return {"topics": topics, "timeout_ms": 1000, "validate_only": False}


@case("DeleteTopics, one of 10,000 partitions", 20, 6)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"topics": [element(20, "DeleteTopicState", name=f"large{turn}-0", topic_id=None)], "timeout_ms": 1000}


@case("DeleteTopics, 5,000", 20, 6)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {
        "topics": [element(20, "DeleteTopicState", name=f"c{turn}-{each}", topic_id=None) for each in range(5_000)],
        "timeout_ms": 1000,
    }


def full(bench: Bench) -> None:
    """100,000 partitions: 10 topics of 8,000, and 5,000 of 4; producers, groups, offsets."""
    create_topics_in_loop(bench, "wide", 10, 8_000)
    create_topics_in_loop(bench, "many", 5_000, 4)


def wide(count: int = ELEMENTS) -> Iterator[tuple[str, list[int]]]:
    """Partitions of wide topics."""
    for topic in range(10):
        some = min(8_000, count)
        if some:
            yield f"wide{topic:05}", list(range(some))
        count -= some


@case("Metadata, all", 3, 12)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": True}


@case("Metadata, all, v1", 3, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"topics": None}


@case("Metadata, 49,000 unknown", 3, 12)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [element(3, "MetadataRequestTopic", name=f"no{each}", topic_id=None) for each in range(ELEMENTS)]
    return {"topics": topics, "allow_auto_topic_creation": False}


@case("Metadata, 5,000 to be made", 3, 12)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [element(3, "MetadataRequestTopic", name=f"new{turn}-{each}", topic_id=None) for each in range(5_000)]
    return {"topics": topics, "allow_auto_topic_creation": True}


@case("Metadata, 5,000 topics by name", 3, 12)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [element(3, "MetadataRequestTopic", name=f"many{each:05}", topic_id=None) for each in range(5_000)]
    return {"topics": topics, "allow_auto_topic_creation": False}


@case("DescribeTopicPartitions, all", 75, 0)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"topics": [], "response_partition_limit": 2_000, "cursor": None}


@case("DescribeTopicPartitions, 49,000 unknown", 75, 0)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [element(75, "TopicRequest", name=f"no{each}") for each in range(ELEMENTS)]
    return {"topics": topics, "response_partition_limit": 2_000, "cursor": None}


# -- configurations ----------------------------------------------------------------------------------------------------


@case("DescribeConfigs, 5,000 topics", 32, 4, 2)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    resources = [
        element(32, "DescribeConfigsResource", resource_type=2, resource_name=f"many{each:05}", configuration_keys=None)
        for each in range(5_000)
    ]
    return {"resources": resources, "include_synonyms": True, "include_documentation": True}


@case("DescribeConfigs, 5,000 topics, v1", 32, 1, 2)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    resources = [
        element(32, "DescribeConfigsResource", resource_type=2, resource_name=f"many{each:05}", configuration_keys=None)
        for each in range(5_000)
    ]
    return {"resources": resources, "include_synonyms": False}


@case("IncrementalAlterConfigs, 5,000 topics", 44, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    resources = [
        element(44, "AlterConfigsResource", resource_type=2, resource_name=f"many{each:05}", configs=[
            element(44, "AlterConfigsResource.AlterableConfig", name="retention.ms", config_operation=0,
                    value=str(10_000_000 + turn))])
        for each in range(5_000)
    ]  # fmt: skip
    return {"resources": resources, "validate_only": False}


@case("AlterConfigs, 5,000 topics", 33, 2)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    resources = [
        element(33, "AlterConfigsResource", resource_type=2, resource_name=f"many{each:05}", configs=[
            element(33, "AlterConfigsResource.AlterableConfig", name="retention.ms", value=str(20_000_000 + turn))])
        for each in range(5_000)
    ]  # fmt: skip
    return {"resources": resources, "validate_only": False}


@case("IncrementalAlterConfigs, the node's retention", 44, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    resources = [
        element(44, "AlterConfigsResource", resource_type=4, resource_name="1", configs=[
            element(44, "AlterConfigsResource.AlterableConfig", name="log.retention.ms", config_operation=0,
                    value=str(10_000_000 + turn))])
    ]  # fmt: skip
    return {"resources": resources, "validate_only": False}


@case("DescribeLogDirs, all", 35, 4)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"topics": None}


@case("ListConfigResources, all", 74, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"resource_types": []}


# -- partitions --------------------------------------------------------------------------------------------------------


@case("ListOffsets, 49,000", 2, 8)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(2, "ListOffsetsTopic", name=name, partitions=[
            element(2, "ListOffsetsTopic.ListOffsetsPartition", partition_index=index, current_leader_epoch=-1,
                    timestamp=-1) for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


@case("ListOffsets, 49,000 by time", 2, 8)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(2, "ListOffsetsTopic", name=name, partitions=[
            element(2, "ListOffsetsTopic.ListOffsetsPartition", partition_index=index, current_leader_epoch=-1,
                    timestamp=1) for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


@case("DeleteRecords, 49,000", 21, 2)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(21, "DeleteRecordsTopic", name=name, partitions=[
            element(21, "DeleteRecordsTopic.DeleteRecordsPartition", partition_index=index, offset=-1)
            for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"topics": topics, "timeout_ms": 1000}


@case("OffsetForLeaderEpoch, 49,000", 23, 4)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(23, "OffsetForLeaderTopic", topic=name, partitions=[
            element(23, "OffsetForLeaderTopic.OffsetForLeaderPartition", partition=index, current_leader_epoch=-1,
                    leader_epoch=1) for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"replica_id": -1, "topics": topics}


@case("OffsetCommit, 49,000", 8, 8)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(8, "OffsetCommitRequestTopic", name=name, partitions=[
            element(8, "OffsetCommitRequestTopic.OffsetCommitRequestPartition", partition_index=index,
                    committed_offset=7 + turn, committed_leader_epoch=-1, committed_metadata="")
            for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}


@case("OffsetFetch, 49,000", 9, 8)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(9, "OffsetFetchRequestGroup.OffsetFetchRequestTopics", name=name, partition_indexes=indexes)
        for name, indexes in wide()
    ]
    groups = [element(9, "OffsetFetchRequestGroup", group_id="g", topics=topics)]
    return {"groups": groups, "require_stable": True}


@case("OffsetFetch, all", 9, 8)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"groups": [element(9, "OffsetFetchRequestGroup", group_id="g", topics=None)], "require_stable": True}


@case("OffsetDelete, 49,000", 47, 0)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(47, "OffsetDeleteRequestTopic", name=name, partitions=[
            element(47, "OffsetDeleteRequestTopic.OffsetDeleteRequestPartition", partition_index=index)
            for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"group_id": "g", "topics": topics}


@case("AddPartitionsToTxn, 49,000", 24, 3)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    producer_id, epoch = producer(bench)
    topics = [element(24, "AddPartitionsToTxnTopic", name=name, partitions=indexes) for name, indexes in wide()]
    return {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch, "v3_and_below_topics": topics}  # fmt: skip


@case("TxnOffsetCommit, 49,000", 28, 3)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    producer_id, epoch = producer(bench, new=False)
    bench.ask(25, 3, transactional_id="t", producer_id=producer_id, producer_epoch=epoch, group_id="h")
    topics = [
        element(28, "TxnOffsetCommitRequestTopic", name=name, partitions=[
            element(28, "TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition", partition_index=index,
                    committed_offset=1, committed_leader_epoch=-1, committed_metadata="") for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"transactional_id": "t", "group_id": "h", "producer_id": producer_id, "producer_epoch": epoch,
            "generation_id": -1, "member_id": "", "group_instance_id": None, "topics": topics}  # fmt: skip


@case("EndTxn, 49,000 partitions and offsets", 26, 3, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    producer_id, epoch = producer(bench, new=False)
    return {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": epoch, "committed": True}


_producer: dict[str, tuple[int, int]] = {}


def producer(bench: Bench, new: bool = True) -> tuple[int, int]:
    if "t" not in _producer:
        frame = bench.ask(22, 4, transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
        made = read_answer(22, 4, frame)
        assert made.error_code == 0, made
        _producer["t"] = made.producer_id, made.producer_epoch
    return _producer["t"]


@case("DescribeProducers, 49,000 partitions", 61, 0)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [element(61, "TopicRequest", name=name, partition_indexes=indexes) for name, indexes in wide()]
    return {"topics": topics}


@case("AlterPartitionReassignments, 24,000", 45, 0)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(45, "ReassignableTopic", name=name, partitions=[
            element(45, "ReassignableTopic.ReassignablePartition", partition_index=index, replicas=[1])
            for index in indexes])
        for name, indexes in wide(24_000)
    ]  # fmt: skip
    return {"timeout_ms": 1000, "topics": topics}


@case("ElectLeaders, all", 43, 2)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"election_type": 0, "topic_partitions": None, "timeout_ms": 1000}


@case("AlterReplicaLogDirs, 49,000", 34, 2)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(34, "AlterReplicaLogDir.AlterReplicaLogDirTopic", name=name, partitions=indexes)
        for name, indexes in wide()
    ]
    return {"dirs": [element(34, "AlterReplicaLogDir", path="/x", topics=topics)]}


# -- groups ------------------------------------------------------------------------------------------------------------

GROUPS = 10_000


def groups(bench: Bench) -> None:
    """10,000 groups, each with one offset."""

    def some(low: int) -> None:
        service = bench.node.services.get(__import__("halfmoon.services.groups.service", fromlist=["x"]).GroupService)
        partition = bench.kernel.catalog.by_name["wide00000"].partitions[0]
        for each in range(low, low + 500):
            service.record(f"group{each:05}", [(partition, 3, -1, "")], reset=True)

    for low in range(0, GROUPS, 500):
        bench.in_loop(lambda low=low: some(low))


@case("ListGroups, 10,000", 16, 5)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"states_filter": [], "types_filter": []}


@case("DescribeGroups, 10,000", 15, 5)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"groups": [f"group{each:05}" for each in range(GROUPS)], "include_authorized_operations": True}


@case("DescribeGroups, 49,000 unknown", 15, 6)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"groups": [f"no{each:05}" for each in range(ELEMENTS)], "include_authorized_operations": True}


@case("ConsumerGroupDescribe, 49,000 unknown", 69, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"group_ids": [f"no{each:05}" for each in range(ELEMENTS)], "include_authorized_operations": True}


@case("ShareGroupDescribe, 49,000 unknown", 77, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"group_ids": [f"no{each:05}" for each in range(ELEMENTS)], "include_authorized_operations": True}


@case("DescribeShareGroupOffsets, 49,000 unknown", 90, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"groups": [element(90, "DescribeShareGroupOffsetsRequestGroup", group_id=f"no{each}", topics=None)
                       for each in range(ELEMENTS)]}  # fmt: skip


@case("OffsetFetch, 10,000 groups", 9, 8)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    groups = [element(9, "OffsetFetchRequestGroup", group_id=f"group{each:05}", topics=None) for each in range(GROUPS)]
    return {"groups": groups, "require_stable": True}


@case("FindCoordinator, 49,000", 10, 4)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"key_type": 0, "coordinator_keys": [f"no{each:05}" for each in range(ELEMENTS)]}


@case("DescribeTransactions, 49,000", 65, 0)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"transactional_ids": [f"no{each:05}" for each in range(ELEMENTS)]}


@case("DeleteGroups, 3,000", 42, 2)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"groups_names": [f"group{each:05}" for each in range(turn * 3000, turn * 3000 + 3000)]}


@case("DeleteTopics, one, beside many offsets", 20, 6, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"topics": [element(20, "DeleteTopicState", name="many04999", topic_id=None)], "timeout_ms": 1000}


# -- ACLs, quotas ------------------------------------------------------------------------------------------------------


@case("CreateAcls, 10,000", 30, 3)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"creations": [
        element(30, "AclCreation", resource_type=2, resource_name=f"t{turn}-{each}", resource_pattern_type=3,
                principal="User:a", host="*", operation=3, permission_type=3) for each in range(10_000)]}  # fmt: skip


@case("DescribeAcls, all", 29, 3)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
            "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip


@case("DeleteAcls, 1,000 filters", 31, 3)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"filters": [
        element(31, "DeleteAclsFilter", resource_type_filter=2, resource_name_filter=f"t{turn}-{each}",
                pattern_type_filter=3, principal_filter=None, host_filter=None, operation=1, permission_type=1)
        for each in range(1_000)]}  # fmt: skip


@case("AlterClientQuotas, 10,000", 49, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"entries": [
        element(49, "EntryData", entity=[
            element(49, "EntryData.EntityData", entity_type="client-id", entity_name=f"c{turn}-{each}")],
            ops=[element(49, "EntryData.OpData", key="producer_byte_rate", value=1e9, remove=False)])
        for each in range(10_000)], "validate_only": False}  # fmt: skip


@case("DescribeClientQuotas, all", 48, 1)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    return {"components": [], "strict": False}


# -- fetching ----------------------------------------------------------------------------------------------------------


@case("Fetch, 49,000 partitions, new session", 1, 11)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    topics = [
        element(1, "FetchTopic", topic=name, partitions=[
            element(1, "FetchTopic.FetchPartition", partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
            for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0,
            "session_epoch": 0, "topics": topics, "forgotten_topics_data": [], "rack_id": ""}  # fmt: skip


@case("Produce, 49,000 partitions", 0, 9)
def _(bench: Bench, turn: int) -> dict[str, Any]:
    from halfmoon.core.records.batches import build_batch

    data = bytes(build_batch([(None, b"v", 1, ())]))
    topics = [
        element(0, "TopicProduceData", name=name, partition_data=[
            element(0, "TopicProduceData.PartitionProduceData", index=index, records=data) for index in indexes])
        for name, indexes in wide()
    ]  # fmt: skip
    return {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics}


def run(bench: Bench, each: Case) -> None:
    best: tuple[float, float, int, float, float, int, str] | None = None
    for turn in range(each.times):
        try:
            fields = each.make(bench, turn)
            said = request_bytes(each.key, each.version, 1, "turns", **fields)
            del fields
            bench.in_loop(lambda: None)
            bench.loop.turns, bench.loop.collections = [], []
            begun = time.perf_counter()
            frame = bench.ask_bytes(said)
            took = time.perf_counter() - begun
            time.sleep(0.05)
            turns = list(bench.loop.turns)
            bad = errors(each, frame)
        except Exception as error:
            print(f"{each.name:46} {error!r}")
            bench.socket = bench.connect()
            return
        longest = max(turns, default=0.0)
        collected = max(bench.loop.collections, default=0.0)
        found = longest, collected, sum(each > LONG_S for each in turns), sum(turns), took, len(frame), bad
        if best is None or found < best:
            best = found
    assert best is not None
    longest, collected, long, used, took, size, bad = best
    mark = "!" if longest > LIMIT_S else " "
    figures = (
        f"{1000 * longest:8.1f} ms {mark} gc {1000 * collected:5.1f} {long:4} turns > 5 ms, cpu {1000 * used:6.0f} ms "
        f"in {1000 * took:6.0f} ms {size:11,} bytes {bad}"
    )
    print(f"{each.name:46} {figures}", flush=True)


def errors(each: Case, frame: bytes) -> str:
    """The error codes of an answer, so that a case does not measure a refusal unseen."""
    found: dict[int, int] = {}

    def look(record: Any) -> None:
        if isinstance(record, list):
            for one in record:
                look(one)
        elif hasattr(record, "__dict__"):
            for name, value in record.__dict__.items():
                if name == "error_code" and value:
                    found[value] = found.get(value, 0) + 1
                elif not isinstance(value, (int, str, bytes)):
                    look(value)

    look(read_answer(each.key, each.version, frame))
    return " ".join(f"{code}×{count}" for code, count in sorted(found.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only cases with one of these in their names")
    given = parser.parse_args()
    sys.setswitchinterval(0.0005)
    bench = Bench()
    filled = grouped = False
    for each in CASES:
        if each.key not in (19, 37) and not filled and not each.name.startswith("DeleteTopics"):
            filled = True
            full(bench)
        if given.names and not any(name in each.name for name in given.names):
            continue
        if "roup" in each.name and not grouped:
            grouped = True
            groups(bench)
        run(bench, each)


if __name__ == "__main__":
    main()
