"""What there is to ask about: topics, groups, transactional ids, and a user whose rights change.

Names begin with a word that no other run has, and are told without it. `orders`, `g`, `t` are what the user may get
rights on; `secret`, `h`, `t2` exist, and `absent`, `nog`, `tabsent` do not: the user never has a right on these.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder

from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.kafka_wire.records import Record
from halfmoon.services.authorization.decisions import OPERATIONS, RESOURCE_TYPES
from tests.interop.access.client import ClosedError, Connection, salt_password

CLUSTER = "kafka-cluster"
SCRAM_SHA_256 = 1
LITERAL, PREFIXED, ANY = 3, 4, 1
DENY, ALLOW = 2, 3
PASSWORD = "a password"
TOPICS = ("orders", "secret")


class World:
    connect: type[Connection] = Connection

    def __init__(self, bootstrap: str, admin: str, password: str) -> None:
        self.bootstrap = bootstrap
        self.administrator = admin
        self._password = password
        self.prefix = f"acl-{os.urandom(3).hex()}-"
        self.admin = self.connect(bootstrap, admin, password)
        self.ids: dict[str, uuid.UUID] = {"unknown": uuid.uuid4()}
        for name in ("alice", "bob"):
            self._make_user(name)
        self.user = self._log_in("alice")
        self.bob = self._log_in("bob")
        self.hmac, self.token_id = b"", "none"
        """Of the token that a case has made."""
        self.node_id = self.ask(3, 12, topics=[]).controller_id
        for name in TOPICS:
            self.make_topic(name)
            self.produce(name)
        for group in ("g", "h"):
            self.commit(group)
        for transactional_id in ("t", "t2"):
            self.begin(transactional_id)

    # Names.

    def __getitem__(self, name: str) -> str:
        """The name as the broker has it."""
        return self.prefix + name

    @property
    def principal(self) -> str:
        return f"User:{self['alice']}"

    # Asking.

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        """The administrator asks."""
        return self.admin.ask(key, version, **build(key, fields))

    def user_asks(self, key: int, version: int, fields: dict[str, Any], by: Connection | None = None) -> Any:
        return (by or self.user).ask(key, version, **build(key, fields))

    def reconnect(self, administrator: bool) -> None:
        """After the broker has ended a connection."""
        if administrator:
            self.admin.close()
            self.admin = self.connect(self.bootstrap, self.administrator, self._password)
        else:
            self.user.close()
            self.user = self._log_in("alice")

    def _log_in(self, name: str) -> Connection:
        end = time.monotonic() + 30
        while True:  # a user is known a moment after the answer
            try:
                return self.connect(self.bootstrap, self[name], PASSWORD)
            except (AssertionError, ClosedError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def _make_user(self, name: str) -> None:
        salt = os.urandom(16)
        """With a password that all have."""
        answer = self.ask(51, 0, deletions=[], upsertions=[{
            "name": self[name], "mechanism": SCRAM_SHA_256, "iterations": 4096, "salt": salt,
            "salted_password": salt_password(PASSWORD, salt),
        }])  # fmt: skip
        assert [each.error_code for each in answer.results] == [0], answer

    # Rights.

    def grant(self, rights: Iterable[str]) -> None:
        """The user has these rights, and no others."""
        mine = {
            "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
            "principal_filter": self.principal, "host_filter": None, "operation": ANY, "permission_type": ANY,
        }  # fmt: skip
        self.ask(31, 3, filters=[mine])
        rules = [self._rule(right) for right in rights]
        if rules:
            answer = self.ask(30, 3, creations=rules)
            assert {each.error_code for each in answer.results} == {0}, answer

        def done() -> bool:
            found = self.ask(29, 3, **mine)
            return sum(len(each.acls) for each in found.resources) == len(rules)

        self.until(done)

    def _rule(self, right: str) -> dict[str, Any]:
        """`read topic orders`, `alter cluster`, `deny write topic orders`, `write topic ord*`, `write topic *`."""
        words = right.split()
        permission = DENY if words[0] == "deny" else ALLOW
        operation, resource_type, *name = words[permission == DENY :]
        pattern, resource = LITERAL, CLUSTER
        if name:
            resource = self[name[0].removesuffix("*")] if name[0] != "*" else "*"
            pattern = PREFIXED if name[0].endswith("*") and name[0] != "*" else LITERAL
            if name[0] == "TOKEN":
                resource = self.token_id
            if resource_type == "user":
                resource = f"User:{resource}"
        return {
            "resource_type": RESOURCE_TYPES[resource_type], "resource_name": resource,
            "resource_pattern_type": pattern, "principal": self.principal, "host": "*",
            "operation": OPERATIONS[operation], "permission_type": permission,
        }  # fmt: skip

    # What there is.

    def make_topic(self, name: str) -> None:
        topic = {"name": self[name], "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        (made,) = self.ask(19, 7, topics=[topic], timeout_ms=30_000).topics
        assert made.error_code in (0, 36), made
        self.until(lambda: self._described(name).error_code == 0)
        self.ids[name] = self._described(name).topic_id

    def delete_topic(self, name: str) -> None:
        self.ask(20, 5, topic_names=[self[name]], timeout_ms=30_000)
        self.until(lambda: self._described(name).error_code == 3)

    def _described(self, name: str) -> Any:
        (found,) = self.ask(3, 12, topics=[{"name": self[name]}], allow_auto_topic_creation=False).topics
        if found.error_code == 0 and any(each.error_code for each in found.partitions):
            found.error_code = 5
        return found

    def produce(self, name: str) -> None:
        def done() -> bool:
            answer = self.ask(0, 9, acks=-1, timeout_ms=30_000, topic_data=[
                {"name": self[name], "partition_data": [{"index": 0, "records": batch()}]}
            ])  # fmt: skip
            return bool(answer.responses[0].partition_responses[0].error_code == 0)

        self.until(done)

    def commit(self, group: str) -> None:
        """A classic group with offsets in both topics, and no member."""

        def done() -> bool:
            answer = self.ask(8, 8, group_id=self[group], topics=[
                {"name": self[name], "partitions": [{"partition_index": 0, "committed_offset": 0}]} for name in TOPICS
            ])  # fmt: skip
            return all(part.error_code == 0 for each in answer.topics for part in each.partitions)

        self.find(0, group)
        self.until(done)

    def find(self, kind: int, name: str) -> None:
        """The coordinator is there, and knows its names."""
        self.until(
            lambda: self.ask(10, 4, key_type=kind, coordinator_keys=[self[name]]).coordinators[0].error_code == 0
        )

    def begin(self, transactional_id: str) -> tuple[int, int]:
        """Producer id and epoch of a new producer; what was ongoing is aborted."""
        self.find(1, transactional_id)
        found: list[Any] = []

        def done() -> bool:
            found[:] = [self.ask(22, 4, transactional_id=self[transactional_id], transaction_timeout_ms=60_000)]
            return bool(found[0].error_code == 0)

        self.until(done)
        return found[0].producer_id, found[0].producer_epoch

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def until(self, done: Callable[[], bool], timeout_s: float = 30) -> None:
        end = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < end, "it does not come"
            time.sleep(0.02)

    def close(self) -> None:
        """Take away what was made."""
        self.grant([])
        for name in [*self.ids]:
            if name != "unknown":
                self.ask(20, 5, topic_names=[self[name]], timeout_ms=30_000)
        self._delete_users()
        for each in (self.admin, self.user, self.bob):
            each.close()

    def _delete_users(self) -> None:
        self.ask(51, 0, upsertions=[], deletions=[
            {"name": self[name], "mechanism": SCRAM_SHA_256} for name in ("alice", "bob")
        ])  # fmt: skip


def build(key: int, fields: dict[str, Any]) -> dict[str, Any]:
    """A request's fields of plain dicts and lists as the codec wants them."""
    return _built(REQUESTS[key](), fields)


def _built(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    structs = {field.name: field.struct for field in kind.DEFINITION.fields if field.struct is not None}
    made: dict[str, Any] = {}
    for name, value in fields.items():
        struct = structs.get(name)
        if struct is None or value is None or isinstance(value, Record):
            made[name] = value
        elif isinstance(value, dict):
            made[name] = struct.type(**_built(struct.type, value))
        else:
            made[name] = [struct.type(**_built(struct.type, each)) for each in value]
    return made


def batch(producer: tuple[int, int] | None = None) -> bytes:
    """A batch with one record; in a transaction, if it is a producer's."""
    producer_id, epoch = producer or (-1, -1)
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=producer is not None, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=0 if producer else -1, batch_size=1_000,
    )  # fmt: skip
    builder.append(0, timestamp=int(time.time() * 1000), key=None, value=b"v", headers=[])
    return bytes(builder.build())
