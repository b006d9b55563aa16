"""What the command line asks brokers: topics, configurations, groups, offsets. Works with Halfmoon and with Kafka.

Our own, by the definitions of `halfmoon/kafka_wire`: kafka-python's admin client changed with its version 3, older ones
lack half of what is asked here, and none knows groups of the new protocol. Its errors are raised.

Requests go where Kafka expects them: changes of topics to the controller, ListOffsets to the partitions' leaders, those
of a group to its coordinator, the rest to any broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from halfmoon.cli.admin_answers import by_topic, described, is_ready, raise_for, topic_partition
from halfmoon.cli.brokers import Address
from halfmoon.cli.config_sources import NOT_ITS_OWN, source
from halfmoon.cli.kafka_connection import Connection
from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.securing.properties import PLAINTEXT, Security
from halfmoon.services.groups.consumer_protocol import parse_assignment

if TYPE_CHECKING:
    from kafka import TopicPartition

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 2, 3, 8, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS, CREATE_TOPICS, DELETE_TOPICS = 15, 16, 19, 20
DELETE_RECORDS = 21
DESCRIBE_CONFIGS, CREATE_PARTITIONS, DELETE_GROUPS, ALTER_CONFIGS = 32, 37, 42, 44
CONSUMER_GROUP_DESCRIBE = 69

UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE = 3, 5

EARLIEST, LATEST = -2, -1
"""Instead of a time, where offsets are asked for by time."""
TIMEOUT_MS = 30_000
READY_WITHIN_S = 10.0
READY_PAUSE_S = 0.1

RESOURCES = {"TOPIC": 2, "BROKER": 4, "GROUP": 32}
SET, DELETE = 0, 1

Offsets = dict["TopicPartition", int]


class Resource(NamedTuple):
    """What has configurations."""

    kind: str
    """TOPIC, BROKER or GROUP."""
    name: str


class AdminClient:
    """Connections to the brokers of one cluster."""

    def __init__(self, servers: Iterable[Address], client_id: str, security: Security = PLAINTEXT) -> None:
        """`servers`: where the cluster is to be found; the first that answers counts. Through a socket of the file
        system everything is asked there, and on those of other nodes that it names."""
        self._client_id = client_id
        self._security = security
        self._nodes: dict[int, tuple[str, int]] = {}
        self._controller = -1
        self._connections: dict[Address, Connection] = {}
        found = list(servers)
        self._is_local = any(isinstance(each, Path) for each in found)
        self._any = self._first(found)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # -- topics ------------------------------------------------------------------------------------------------------

    def describe_topics(self, names: list[str] | None = None) -> list[dict[str, Any]]:
        """All topics, or those with these names, each with its error_code."""
        topics = self._metadata(names).topics
        return [
            {
                "name": topic.name,
                "error_code": topic.error_code,
                "topic_id": topic.topic_id,
                "is_internal": topic.is_internal,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        "leader_id": part.leader_id,
                        "leader_epoch": part.leader_epoch,
                        "replica_nodes": part.replica_nodes,
                        "error_code": part.error_code,
                    }
                    for part in topic.partitions
                ],
            }
            for topic in topics
        ]

    def create_topics(self, topics: Mapping[str, dict[str, Any]], *, validate_only: bool = False) -> list[Any]:
        """Topics by name, with num_partitions, replication_factor (-1: the broker's) and configs; the broker's answers:
        name, error_code, error_message, num_partitions."""
        topic = REQUESTS[CREATE_TOPICS].CreatableTopic
        wanted = [
            topic(
                name=name,
                num_partitions=said.get("num_partitions", -1),
                replication_factor=said.get("replication_factor", -1),
                assignments=[],
                configs=[
                    topic.CreatableTopicConfig(name=key, value=value) for key, value in said.get("configs", {}).items()
                ],
            )
            for name, said in topics.items()
        ]
        asked: dict[str, Any] = {"topics": wanted, "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}
        return list(self._of_controller().ask(CREATE_TOPICS, **asked).topics)

    def wait_for_topics(self, names: Iterable[str]) -> None:
        """Until each partition of these topics has a leader: a Kafka answers before. Raises KafkaTimeoutError."""
        from kafka.errors import KafkaTimeoutError

        wanted, deadline = sorted(names), time.monotonic() + READY_WITHIN_S
        while wanted:
            wanted = [topic["name"] for topic in self.describe_topics(wanted) if not is_ready(topic)]
            if wanted and time.monotonic() > deadline:
                raise KafkaTimeoutError(f"topics without a leader: {', '.join(wanted)}")
            if wanted:
                time.sleep(READY_PAUSE_S)

    def delete_topics(self, names: list[str]) -> list[Any]:
        """The broker's answers: name, error_code, error_message."""
        state = REQUESTS[DELETE_TOPICS].DeleteTopicState
        topics = [state(name=name) for name in names]
        asked: dict[str, Any] = {"topics": topics, "topic_names": names, "timeout_ms": TIMEOUT_MS}
        return list(self._of_controller().ask(DELETE_TOPICS, **asked).responses)

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> Any:
        """The broker's answer: error_code, error_message."""
        topic = REQUESTS[CREATE_PARTITIONS].CreatePartitionsTopic(name=name, count=total, assignments=None)
        asked: dict[str, Any] = {"topics": [topic], "timeout_ms": TIMEOUT_MS, "validate_only": validate_only}
        (answer,) = self._of_controller().ask(CREATE_PARTITIONS, **asked).results
        return answer

    def offsets(self, queues: Iterable[TopicPartition], at: int) -> Offsets:
        """Of these partitions, at a time in milliseconds, EARLIEST or LATEST; -1 where there is none. Raises what the
        broker says of the first that it refuses."""
        wanted = list(queues)
        leaders: dict[int, list[TopicPartition]] = {}
        led_by = self._leaders(wanted)
        for queue in wanted:
            leaders.setdefault(led_by[queue], []).append(queue)
        found: Offsets = {}
        for leader, led in leaders.items():
            found |= self._offsets_of(self._of_node(leader), led, at)
        return found

    def _offsets_of(self, connection: Connection, queues: list[TopicPartition], at: int) -> Offsets:
        topic = REQUESTS[LIST_OFFSETS].ListOffsetsTopic
        part = topic.ListOffsetsPartition
        topics = [
            topic(name=name, partitions=[part(partition_index=index, timestamp=at) for index in indexes])
            for name, indexes in by_topic(queues).items()
        ]
        # Version 1 is the first with one offset a partition.
        answer = connection.ask(LIST_OFFSETS, replica_id=-1, topics=topics, timeout_ms=TIMEOUT_MS)
        found = {}
        for said in answer.topics:
            for row in said.partitions:
                raise_for(row.error_code)
                found[topic_partition(said.name, row.partition_index)] = row.offset
        return found

    def delete_records(self, before: Offsets) -> None:
        """Delete each partition's records below this offset. Raises what the broker says of the first that it
        refuses."""
        leaders: dict[int, Offsets] = {}
        led_by = self._leaders(list(before))
        for queue, offset in before.items():
            leaders.setdefault(led_by[queue], {})[queue] = offset
        topic = REQUESTS[DELETE_RECORDS].DeleteRecordsTopic
        part = topic.DeleteRecordsPartition
        for leader, led in leaders.items():
            topics = [
                topic(
                    name=name,
                    partitions=[
                        part(partition_index=index, offset=led[topic_partition(name, index)]) for index in indexes
                    ],
                )
                for name, indexes in by_topic(led).items()
            ]
            answer = self._of_node(leader).ask(DELETE_RECORDS, topics=topics, timeout_ms=TIMEOUT_MS)
            for said in answer.topics:
                for row in said.partitions:
                    raise_for(row.error_code)

    def _leaders(self, queues: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Raises what the broker says of a topic or partition without one."""
        found = {}
        for topic in self.describe_topics(sorted({queue.topic for queue in queues})) if queues else []:
            raise_for(topic["error_code"])
            for part in topic["partitions"]:
                found[topic_partition(topic["name"], part["partition_index"])] = part["leader_id"]
        for queue in queues:
            if queue not in found:
                raise_for(UNKNOWN_TOPIC_OR_PARTITION)
            if found[queue] < 0:
                raise_for(LEADER_NOT_AVAILABLE)
        return found

    # -- configurations ----------------------------------------------------------------------------------------------

    def configs(
        self, resources: list[Resource], names: list[str] | None = None, *, every: bool = False
    ) -> dict[str, dict[str, dict[str, str]]]:
        """Resource → configuration → its value and source: what the resource has been given itself, or `every` one.
        `names`: only these. A resource that the broker refuses has none."""
        resource = REQUESTS[DESCRIBE_CONFIGS].DescribeConfigsResource
        asked = [
            resource(resource_type=RESOURCES[kind], resource_name=name, configuration_keys=names)
            for kind, name in resources
        ]
        found: dict[str, dict[str, dict[str, str]]] = {}
        for result in self._any.ask(DESCRIBE_CONFIGS, resources=asked).results:
            rows = {row.name: {"value": row.value, "source": source(row)} for row in result.configs}
            found[result.resource_name] = {
                name: row for name, row in rows.items() if every or row["source"] not in NOT_ITS_OWN
            }
        return found

    def alter_configs(
        self, resources: Iterable[tuple[Resource, Mapping[str, str | None]]], *, validate_only: bool = False
    ) -> dict[str, Any]:
        """Set configurations; None resets one. The broker's answer by resource: error_code, error_message."""
        resource = REQUESTS[ALTER_CONFIGS].AlterConfigsResource
        asked = [
            resource(
                resource_type=RESOURCES[kind],
                resource_name=name,
                configs=[
                    resource.AlterableConfig(
                        name=key, config_operation=DELETE if value is None else SET, value=value
                    )
                    for key, value in configs.items()
                ],
            )
            for (kind, name), configs in resources
        ]  # fmt: skip
        answer = self._any.ask(ALTER_CONFIGS, resources=asked, validate_only=validate_only)
        return {row.resource_name: row for row in answer.responses}

    # -- groups ------------------------------------------------------------------------------------------------------

    def list_groups(self) -> list[Any]:
        """Of all brokers: group_id, protocol_type, group_state and group_type (empty from old brokers)."""
        self._metadata([])
        found = []
        for node in sorted(self._nodes):
            answer = self._of_node(node).ask(LIST_GROUPS, states_filter=[], types_filter=[])
            raise_for(answer.error_code)
            found += answer.groups
        return found

    def describe_group(self, group: str) -> dict[str, Any]:
        """Its group_state, protocol_data (the assignor), error_code and members; Dead where there is none."""
        connection = self._of_group(group)
        (found,) = connection.ask(DESCRIBE_GROUPS, groups=[group]).groups
        if found.group_state == "Dead":  # or a group of the new protocol (KIP-848), which this request does not know
            return self._describe_new(connection, group) or described(found, [])
        members = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "assigned": parse_assignment(member.member_assignment),
            }
            for member in found.members
        ]
        return described(found, members)

    def _describe_new(self, connection: Connection, group: str) -> dict[str, Any] | None:
        from kafka.errors import UnsupportedVersionError

        try:
            (found,) = connection.ask(CONSUMER_GROUP_DESCRIBE, group_ids=[group]).groups
        except UnsupportedVersionError:
            return None
        if found.error_code:
            return None
        members = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "assigned": {topic.topic_name: topic.partitions for topic in member.assignment.topic_partitions},
            }
            for member in found.members
        ]
        return {
            "group_state": found.group_state, "protocol_data": found.assignor_name, "error_code": 0,
            "error_message": None, "members": members,
        }  # fmt: skip

    def delete_groups(self, groups: list[str]) -> dict[str, int]:
        """Each group's error code."""
        found = {}
        for group in groups:
            for row in self._of_group(group).ask(DELETE_GROUPS, groups_names=[group]).results:
                found[row.group_id] = row.error_code
        return found

    def committed(self, group: str) -> Offsets:
        """What the group has committed."""
        # From version 8 on the request has another form, for many groups.
        answer = self._of_group(group).ask(OFFSET_FETCH, at_most=7, group_id=group, topics=None)
        raise_for(answer.error_code)
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                raise_for(part.error_code)
                found[topic_partition(topic.name, part.partition_index)] = part.committed_offset
        return {queue: offset for queue, offset in found.items() if offset >= 0}

    def commit(self, group: str, offsets: Offsets) -> dict[TopicPartition, int]:
        """In the name of a group without members; each partition's error code."""
        topic = REQUESTS[OFFSET_COMMIT].OffsetCommitRequestTopic
        part = topic.OffsetCommitRequestPartition
        topics = [
            topic(
                name=name,
                partitions=[
                    part(
                        partition_index=index,
                        committed_offset=offsets[topic_partition(name, index)],
                        committed_metadata="",
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(offsets).items()
        ]
        # Version 10 has topic ids instead of names.
        answer = self._of_group(group).ask(OFFSET_COMMIT, at_most=9, group_id=group, topics=topics)
        return {
            topic_partition(said.name, row.partition_index): row.error_code
            for said in answer.topics
            for row in said.partitions
        }

    # -- where to ask ------------------------------------------------------------------------------------------------

    def _first(self, servers: list[Address]) -> Connection:
        from kafka.errors import KafkaError

        for server in servers[:-1]:
            try:
                return self._connection(server)
            except KafkaError:
                continue
        return self._connection(servers[-1])

    def _connection(self, address: Address) -> Connection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = Connection(address, self._client_id, self._security)
        return found

    def _metadata(self, names: list[str] | None) -> Any:
        topic = REQUESTS[METADATA].MetadataRequestTopic
        # Version 1 is the first in which null asks for all, and an empty list for none.
        asked = None if names is None else [topic(name=name) for name in names]
        answer = self._any.ask(METADATA, topics=asked, allow_auto_topic_creation=False)
        self._nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        self._controller = answer.controller_id
        return answer

    def _of_node(self, node: int) -> Connection:
        address = self._nodes.get(node)
        return self._any if address is None else self._at(*address)

    def _at(self, host: str, port: int) -> Connection:
        if not self._is_local:
            return self._connection((host, port))
        # A broker of several processes names the sockets of each.
        return self._connection(Path(host)) if host.startswith("/") else self._any

    def _of_controller(self) -> Connection:
        self._metadata([])
        return self._of_node(self._controller)

    def _of_group(self, group: str) -> Connection:
        """Raises what the broker says where it has no coordinator yet."""
        answer = self._any.ask(FIND_COORDINATOR, at_most=3, key=group, key_type=0)
        raise_for(answer.error_code)
        return self._at(answer.host, answer.port)
