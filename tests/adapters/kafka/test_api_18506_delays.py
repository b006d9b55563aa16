"""HalfmoonDelays: an API of our own that no client hears of; malformed questions are answered, not hung up on."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from kafka_rig import Rig, RigClient

from halfmoon.adapters.kafka.api import api_18506_delays as delays
from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.api.api_18_api_versions import answer
from halfmoon.adapters.kafka.registry import ApiTable
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.errors import Fault
from halfmoon.services.delays.questions import Answer, Cancel, Count, List, Question, Reschedule, Selection
from tests.core.relay_bench import send


class Asker:
    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.start_plugins()
        self.rig.topic("t")
        self.client: RigClient = self.rig.client()

    def wait(self, *keys: str) -> None:
        rows = [(b"v", {"UNIQ_KEY": key, "TIMER_DELAY_SEC": "3600"}) for key in keys]
        send(self.rig.broker, "t", *rows)
        self.rig.turn()

    def feed(self, question: Question | bytes) -> None:
        body = question if isinstance(question, bytes) else msgspec.json.encode(question)
        request = struct.pack(">hhih", delays.KEY, 0, 7, -1) + body
        self.client.feed(struct.pack(">i", len(request)) + request)

    def ask(self, question: Question | bytes) -> Answer:
        self.feed(question)
        return self.told()

    def told(self) -> Answer:
        frames: list[bytes] = []
        for _ in range(50):
            self.rig.turn()
            self.rig.loop.run_threads()
            frames += self.client.frames()
        (frame,) = frames
        return msgspec.json.decode(frame[4:], type=Answer)


@pytest.fixture
def asker() -> Asker:
    return Asker()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"type": "drop"}',
        b'{"type": "list", "most": "many"}',
        b'{"type": "list", "most": 0}',
        b'{"type": "list", "other": 1}',
        b'{"type": "list", "selection": {"topics": "t"}}',
        b'{"type": "list", "selection": {"due_before_ms": 1e99}}',
        b'{"type": "list", "after": {"due_ms": 1, "id": "t"}}',
        b'{"type": "count", "selection": {"due_before_ms": 1, "due_before_in_ms": 1}}',
        b'{"type": "cancel"}',
        b'{"type": "cancel", "ids": []}',
        b'{"type": "cancel", "ids": [1]}',
        b'{"type": "cancel", "ids": ["t/0/0"], "selection": {}}',
        b'{"type": "reschedule", "ids": ["t/0/0"]}',
        b'{"type": "reschedule", "ids": ["t/0/0"], "in_ms": 1, "by_ms": 1}',
    ],
)
def test_no_question(asker: Asker, body: bytes) -> None:
    assert asker.ask(body).fault == "INVALID_REQUEST"


def test_asked_and_changed(asker: Asker) -> None:
    asker.wait("a", "b")
    listed = asker.ask(List()).listed
    assert listed is not None
    assert [each.uniq_key for each in listed.messages] == [b"a", b"b"]
    assert listed.next is None
    counted = asker.ask(Count()).counted
    assert counted is not None
    assert [(each.topic, each.count) for each in counted.topics] == [("t", 2)]
    changed = asker.ask(Cancel(ids=(listed.messages[0].id,))).changed
    assert changed is not None
    assert (changed.count, changed.topics) == (1, ("t",))
    begun = asker.ask(Reschedule(selection=Selection(), in_ms=5)).changed
    assert begun is not None
    assert begun.count == 0
    assert begun.next is not None
    changed = asker.ask(Reschedule(selection=Selection(), in_ms=5, next=begun.next)).changed
    assert changed is not None
    assert (changed.count, changed.next) == (1, None)


def test_it_is_not_advertised() -> None:
    for version in range(5):
        assert struct.pack(">h", delays.KEY) not in answer(ApiTable(registered()), version, 0)


def test_a_log_that_cannot_be_read_is_told_as_such(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    asker.wait("a")

    def fails(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(asker.rig.broker.delays.answering.frames, "_read", fails)
    told = asker.ask(List())
    assert told.fault == Fault.KAFKA_STORAGE_ERROR.name
    assert "Input/output error" in told.message


def test_what_fails_is_told_and_logged(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asker.wait("a")

    def fails(*_: Any) -> Any:
        raise RuntimeError("x")

    monkeypatch.setattr(asker.rig.broker.delays.answering.frames, "_read", fails)
    assert asker.ask(List()).fault == Fault.UNKNOWN_SERVER_ERROR.name
    assert "scheduled_messages_failed" in caplog.text


def test_what_is_not_here_is_read_by_a_thread(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    asker.wait("a")
    reader: PartitionReader = asker.rig.broker.kernel.partition_reader
    read_at = reader.read_at
    loads: list[int] = []

    def cold(places: Any, *more: Any) -> Any:
        found = read_at(places, *more)

        def load() -> Any:
            loads.append(len(places))
            return found.slices if found.cold is None else found.cold()

        return found._replace(slices=[], cold=load)

    monkeypatch.setattr(reader, "read_at", cold)
    listed = asker.ask(List()).listed
    assert listed is not None
    assert [each.uniq_key for each in listed.messages] == [b"a"]
    assert loads == [1, 1]


def test_a_client_that_leaves_leaves_nothing_behind(asker: Asker) -> None:
    asker.wait("a")
    asker.feed(Cancel(selection=Selection()))
    asker.client.connection.connection_lost(None)
    for _ in range(10):
        asker.rig.turn()
        asker.rig.loop.run_threads()
