"""A real broker on a clock that stands still, and clients that use its groups through the handlers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fake_admin_broker import Client, Pending, versions

from halfmoon.adapters.kafka.protocol import REQUESTS, JoinGroupRequest, SyncGroupRequest
from halfmoon.config.settings import load_settings
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.testing.node import BareNode

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
SUBSCRIBED_TO_T = b"\x00\x01\x00\x00\x00\x01\x00\x01t" + bytes(8)

__all__ = ["Groups", "ManualClock", "Pending", "group_broker", "versions"]


class ManualClock:
    """Wall and monotonic time, one number, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def wall_ms(self) -> int:
        return self.now

    def mono_ms(self) -> int:
        return self.now


def _counted_ids() -> Callable[[int], bytes]:
    counter = itertools.count(1)
    return lambda size: next(counter).to_bytes(size, "big")


@contextmanager
def group_broker(data_dir: Path, **settings: object) -> Iterator[Groups]:
    """An open broker with topics t (2 partitions) and u (1); `settings` as in broker.yaml with '__' for the dot."""
    given = {path.replace("__", "."): value for path, value in settings.items()}
    # Segments take their disk space when they begin.
    given.setdefault("log.segment_bytes", "256KiB")
    clock = ManualClock()
    broker = BareNode(OsFileSystem(data_dir), load_settings(None, {}, given), clock, _counted_ids())
    broker.open()
    try:
        for name, partitions in (("t", 2), ("u", 1)):
            if broker.topic(name) is None:
                broker.create_topic(name, partitions)
        yield Groups(broker, clock)
    finally:
        broker.close()


class Groups(Client):
    """`Client` with the steps of the group protocol."""

    def __init__(self, broker: BareNode, clock: ManualClock) -> None:
        super().__init__(broker)
        self.clock = clock

    def pass_time(self, ms: int) -> None:
        """Let time pass, and the broker do what falls due in it."""
        self.clock.now += ms
        self.broker.groups.expire(self.clock.now)
        self.broker.flush()

    def start(self, key: int, version: int, **fields: object) -> Pending:
        """Send a request whose answer may take its time."""
        pending = self.send(key, version, REQUESTS[key](**fields))
        self.broker.flush()
        return pending

    def start_join(self, version: int, **fields: Any) -> Pending:
        protocols = [
            JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=SUBSCRIBED_TO_T)
            for name in fields.pop("protocols", ("range",))
        ]
        request = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": protocols,
        } | fields
        return self.start(JOIN, version, **request)

    def join(self, version: int = 9, **fields: Any) -> Any:
        """Join an empty group alone, twice if the first answer says so."""
        pending = self.start_join(version, **fields)
        if pending.answer is not None and pending.answer.error_code == 79:
            pending = self.start_join(version, **fields | {"member_id": pending.answer.member_id})
        self.pass_time(100)
        return pending.answer

    def start_sync(self, version: int, generation: int, member_id: str, **fields: Any) -> Pending:
        assignments = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=share)
            for name, share in fields.pop("shares", {}).items()
        ]
        request = {"group_id": "g", "generation_id": generation, "member_id": member_id, "assignments": assignments}
        return self.start(SYNC, version, **request | fields)

    def settle(self, version: int = 9, **fields: Any) -> Any:
        """A group of one, stable; returns the answer to the join."""
        joined = self.join(version, **fields)
        assert joined.error_code == 0
        group = fields.get("group_id", "g")
        shares = {joined.member_id: b"share"}
        answer = self.start_sync(5, joined.generation_id, joined.member_id, shares=shares, group_id=group).answer
        assert answer.error_code == 0
        return joined
