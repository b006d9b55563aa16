"""Users who have the rights that a test gives them, and ask a real broker whatever they like."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder

from halfmoon.schema.control import AclRule
from halfmoon.services.authorization.decisions import OPERATIONS, RESOURCE_TYPES
from tests.interop.access.client import Connection
from tests.interop.access.world import CLUSTER, build
from tests.security.conftest import Secured

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
PASSWORD = "secret"


def rule(principal: str, right: str) -> AclRule:
    """`read topic orders`, `write topic ord*`, `read topic *`, `alter cluster`, `deny read group g`."""
    words = right.split()
    permission = DENY if words[0] == "deny" else ALLOW
    operation, kind, *named = words[permission == DENY :]
    name = named[0] if named else CLUSTER
    pattern = PREFIXED if name.endswith("*") and name != "*" else LITERAL
    return AclRule(
        RESOURCE_TYPES[kind], name.removesuffix("*") if pattern == PREFIXED else name, pattern, f"User:{principal}",
        "*", 2 if operation == "all" else OPERATIONS[operation], permission,
    )  # fmt: skip


class User:
    """alice, and her connection."""

    def __init__(self, secured: Secured, name: str, *rights: str) -> None:
        self.secured = secured
        self.name = name
        secured.user(name, PASSWORD)
        self.allow(*rights)
        self.connection = Connection(secured.broker.bootstrap_servers, name, PASSWORD)

    def allow(self, *rights: str) -> None:
        """She has these rights, and no others."""
        acls = self.secured.app.node.acls
        mine = [each for each in self.secured.app.node.state.acls.rules if each.principal == f"User:{self.name}"]
        added = [rule(self.name, right) for right in rights]
        if mine or added:
            self.secured.in_loop(lambda: acls.change([each for each in added if each not in mine],
                                                     [each for each in mine if each not in added]))  # fmt: skip

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        return self.connection.ask(key, version, **build(key, fields))

    def ask_own(self, key: int, question: dict[str, Any]) -> Any:
        """An API of Halfmoon's own, whose bodies are JSON."""
        said = struct.pack(">hhih", key, 0, 7, -1) + json.dumps(question).encode()
        return json.loads(self.connection.exchange(struct.pack(">i", len(said)) + said)[4:])

    def create(self, name: str, partitions: int = 1, **configs: str) -> int:
        made = [{"name": each.replace("_", "."), "value": value} for each, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [],
                 "configs": made}  # fmt: skip
        return int(self.ask(19, 7, topics=[topic], timeout_ms=30_000).topics[0].error_code)

    def delete(self, *names: str) -> list[int]:
        found = self.ask(20, 5, topic_names=list(names), timeout_ms=30_000).responses
        return [each.error_code for each in found]

    def produce(self, topic: str, *records: bytes, headers: dict[str, bytes] | None = None) -> int:
        return self.send(topic, [(each, headers or {}) for each in records or (b"v",)])

    def send(self, topic: str, records: Iterable[tuple[bytes, dict[str, bytes]]]) -> int:
        """The error code. Records with headers of their own."""
        topic_data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(records)}]}]
        answer = self.ask(0, 9, acks=-1, timeout_ms=30_000, topic_data=topic_data)
        return int(answer.responses[0].partition_responses[0].error_code)

    def fetch(self, topic: str) -> int | bytes:
        """The error code, or the records' bytes."""
        part = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
                "log_start_offset": -1, "partition_max_bytes": 1 << 20}  # fmt: skip
        answer = self.ask(1, 11, replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=0,
                          session_id=0, session_epoch=-1, topics=[{"topic": topic, "partitions": [part]}],
                          forgotten_topics_data=[], rack_id="")  # fmt: skip
        found = answer.responses[0].partitions[0]
        return found.error_code or bytes(found.records or b"")

    def described(self, topic: str) -> int:
        (found,) = self.ask(3, 12, topics=[{"name": topic}], allow_auto_topic_creation=True).topics
        return int(found.error_code)

    def until_read(self, topic: str, part: bytes, timeout_s: float = 30) -> bytes:
        end = time.monotonic() + timeout_s
        while True:
            found = self.fetch(topic)
            if isinstance(found, bytes) and part in found:
                return found
            assert time.monotonic() < end, found
            time.sleep(0.02)


def batch(records: Iterable[tuple[bytes, dict[str, bytes]]]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 24
    )
    now_ms = int(time.time() * 1000)
    for offset, (value, headers) in enumerate(records):
        builder.append(offset, timestamp=now_ms, key=None, value=value, headers=list(headers.items()))
    return bytes(builder.build())
