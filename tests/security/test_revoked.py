"""A right that is gone while a request waits: what arrives then is not told any more."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.interop.access.world import build
from tests.kafka_messages import read_answer, request_bytes
from tests.security.acting import User
from tests.security.conftest import Secure
from tests.security.test_tls_listener import until

REFUSED_TOPIC = 29
ALICE = ("read topic orders", "read group g", "describe topic orders")


def waiting(user: User, key: int, version: int, **fields: Any) -> Callable[[], Any]:
    """Ask what is answered later: hands over what waits for the answer."""
    connection = user.connection
    connection._socket.sendall(request_bytes(key, version, 77, "waits", **build(key, fields)))

    def answer() -> Any:
        (size,) = struct.unpack(">i", connection._read(4))
        return read_answer(key, version, connection._read(size))

    return answer


def fetch(user: User) -> Callable[[], tuple[int, bytes]]:
    part = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
            "log_start_offset": -1, "partition_max_bytes": 1 << 20}  # fmt: skip
    answer = waiting(
        user, 1, 11, replica_id=-1, max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[{"topic": "orders", "partitions": [part]}], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip

    def told() -> tuple[int, bytes]:
        found = answer().responses[0].partitions[0]
        return found.error_code, bytes(found.records or b"")

    return told


def share_fetch(user: User) -> Callable[[], tuple[int, bytes]]:
    (topic,) = user.ask(3, 12, topics=[{"name": "orders"}], allow_auto_topic_creation=False).topics
    member = str(uuid.uuid4())
    joined = user.ask(76, 1, group_id="g", member_id=member, member_epoch=0, rack_id=None,
                      subscribed_topic_names=["orders"])  # fmt: skip
    assert joined.error_code == 0, joined
    part = {"partition_index": 0, "acknowledgement_batches": []}
    answer = waiting(
        user, 78, 2, group_id="g", member_id=member, share_session_epoch=0, max_wait_ms=20_000, min_bytes=1,
        max_bytes=1 << 20, max_records=100, batch_size=100, share_acquire_mode=0, is_renew_ack=False,
        topics=[{"topic_id": topic.topic_id, "partitions": [part]}], forgotten_topics_data=[],
    )  # fmt: skip

    def told() -> tuple[int, bytes]:
        found = answer().responses[0].partitions[0]
        return found.error_code, bytes(found.records or b"")

    return told


@pytest.mark.parametrize("ask", [fetch, share_fetch])
@pytest.mark.parametrize("gone", ["topic", "group", "nothing"])
def test_a_fetch_that_waits(secured: Secure, ask: Callable[[User], Callable[[], Any]], gone: str) -> None:
    found = secured("SCRAM-SHA-256")
    bob, alice = User(found, "bob", "all topic orders"), User(found, "alice", *ALICE)
    with closing(bob.connection), closing(alice.connection):
        assert bob.create("orders") == 0
        told = ask(alice)
        until(lambda: len(found.app.node.kernel.hold) == 1)
        alice.allow(*(right for right in ALICE if f" {gone} " not in right))
        assert bob.produce("orders", b"secret") == 0
        code, records = told()
        if gone == "nothing" or (gone == "group" and ask is fetch):
            assert (code, b"secret" in records) == (0, True)
        else:
            assert (code, records) == (REFUSED_TOPIC if gone == "topic" else 0, b"")
