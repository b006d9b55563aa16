"""As tests/adapters/kafka/test_told_when_durable.py: requests that find that there is nothing to be done."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from rocketmq_rig import Rig, RigClient

from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code

CREATE = {"topic": "new", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
WIDEN = CREATE | {"topic": "t"}
UPDATE = {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 1}

CHANGES = [
    pytest.param(17, CREATE, 0, id="create"),
    pytest.param(17, WIDEN, 0, id="widen"),
    pytest.param(215, {"topic": "t"}, Code.TOPIC_NOT_EXIST, id="delete"),
    pytest.param(15, UPDATE, 0, id="offset"),
]


class World:
    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.topic("t")
        self.client: RigClient = self.rig.client()
        self.client.produce("t", b"a")

    def send(self, code: int, fields: dict[str, Any]) -> None:
        """Have a request handled, and its changes written; nothing is synced."""
        self.client.feed(self.client.encode(code, **fields))
        self.rig.broker.write()
        self.rig.broker.settle()
        self.rig.loop.run()

    def codes(self) -> list[int]:
        return [answer.code for answer in self.client.answers()]

    def fail_to_sync(self) -> None:
        job = self.rig.broker.log.sync_job()
        assert job is not None
        self.rig.broker.turn.finish_sync(job, OSError(errno.EIO, "the disk broke"))
        self.rig.loop.run()


@pytest.mark.parametrize(("code", "fields", "again"), CHANGES)
def test_what_is_so_already_is_told_once_that_is_durable(code: int, fields: dict[str, Any], again: int) -> None:
    world = World()
    world.send(code, fields)
    world.send(code, fields)
    assert world.codes() == []
    world.rig.turn()
    assert world.codes() == [0, again]


@pytest.mark.parametrize(("code", "fields", "again"), CHANGES)
def test_what_a_failed_disk_may_have_lost_is_not_told(code: int, fields: dict[str, Any], again: int) -> None:
    world = World()
    world.send(code, fields)
    world.send(code, fields)
    world.fail_to_sync()
    world.send(code, fields)  # as clients do after such an error
    codes = world.codes()
    assert len(codes) == 3
    assert not {0, again} & set(codes)


def test_that_a_topic_is_gone_is_told_to_the_name_service_likewise() -> None:
    world = World()
    world.send(215, {"topic": "t"})
    world.send(216, {"topic": "t"})
    assert world.codes() == []
    world.rig.turn()
    assert world.codes() == [0, 0]


@pytest.mark.pure
def test_progress_that_the_log_refuses_is_not_said_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was logged, and the client was told that all is well."""
    world = World()

    def refuse(record: object) -> int:
        raise BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(world.rig.broker.kernel.appender, "append_control", refuse)
        world.send(15, UPDATE)
    (code,) = world.codes()
    assert code == Code.SERVICE_NOT_AVAILABLE
    assert world.client.ask(15, **UPDATE).code == 0
    world.rig.turn()
    assert world.client.well(14, consumerGroup="g", topic="t", queueId=0).fields["offset"] == "1"
