"""Connections: frames in pieces, frames that are none, clients that do not read, what a stop does."""

from __future__ import annotations

import logging
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocketmq_rig import Rig, sending

from halfmoon.adapters.rocketmq.request import registered
from halfmoon.remoting import command as wire
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import Command
from tests.chance import trying

NAMED = {
    10, 11, 12, 14, 15, 17, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 46, 100, 101, 102, 105, 106, 202, 203,
    206, 208, 215, 216, 219, 222, 300, 307, 310, 320, 351, 361, 400, 18506,
    3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010,
}  # fmt: skip


def test_every_request_has_a_module_of_its_own() -> None:
    found = registered()
    assert set(found) == NAMED
    for code, request in found.items():
        assert request.handler.__module__.rpartition(".")[2].startswith(f"req_{code:03}_")


def test_requests_in_pieces_of_any_size() -> None:
    rig = Rig()
    rig.topic("orders")
    client = rig.client()
    data = b"".join(client.encode(310, b"x" * size, **sending("orders", 0, "")) for size in (0, 10, 70_000, 3))
    for at in range(0, len(data), 1_000):
        for byte in data[at : at + 7], data[at + 7 : at + 1_000]:
            client.feed(byte)
    rig.turns()
    assert [answer.fields["queueOffset"] for answer in client.answers()] == ["0", "1", "2", "3"]


def test_an_unknown_code_is_answered() -> None:
    client = Rig().client()
    for code in (0, 3, 200_050, 32_000):
        answer = client.ask(code)
        assert (answer.code, answer.remark) == (
            Code.REQUEST_CODE_NOT_SUPPORTED, f"request code {code} is not supported",
        )  # fmt: skip


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1) + bytes(8), struct.pack(">i", 3) + bytes(8), struct.pack(">i", (16 << 20) + 1) + bytes(8),
        struct.pack(">iI", 4, 5), struct.pack(">iI", 8, 4) + b"{{{{", struct.pack(">iI", 8, 3 << 24 | 4) + b"abcd",
    ],
)  # fmt: skip
def test_a_frame_that_is_none_closes_its_connection_alone(frame: bytes, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.topic("orders")
    bad, good = rig.client(), rig.client()
    bad.feed(bad.encode(310, b"x", **sending("orders", 0, "")))
    with caplog.at_level(logging.WARNING, "halfmoon.rocketmq"):
        bad.feed(frame)
    assert bad.transport.closed
    assert rig.server.counters.malformed == 1
    assert "event=connection_closed" in caplog.text
    assert good.produce("orders", b"y").fields["queueOffset"] == "1"


def test_a_failing_handler_is_answered_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    client = rig.client()
    monkeypatch.setattr(rig.node.members, "consumer_group", lambda group: 1 / 0)
    answer = client.ask(38, consumerGroup="g")
    assert answer.code == Code.SYSTEM_ERROR
    assert "ZeroDivisionError" in caplog.text
    assert not client.transport.closed


def test_a_client_that_does_not_read_is_not_read_from_and_closed_in_the_end() -> None:
    rig = Rig(limits__send_timeout="5s")
    rig.topic("orders")
    client, other = rig.client(), rig.client()
    client.produce("orders", b"x" * 100_000)
    client.transport.slow = True
    request = client.encode(
        11, consumerGroup="g", topic="orders", queueId=0, queueOffset=0, maxMsgNums=32, sysFlag=4, subscription="*"
    )
    sent = 0
    while client.transport.reading and sent < 100:
        client.feed(request)
        sent += 1
    assert sent < 100
    assert len(client.transport.unsent) < 3 << 20
    assert other.produce("orders", b"y").fields["queueOffset"] == "1"
    now_ms = rig.server.mono_ms()
    client.connection.sweep(now_ms, None, 5_000)
    client.connection.sweep(now_ms + 5_001, None, 5_000)
    assert client.transport.closed


def test_requests_in_the_air_are_bounded() -> None:
    rig = Rig()
    rig.topic("orders")
    client = rig.client()
    request = client.encode(310, b"", **sending("orders", 0, ""))
    sent = 0
    while client.transport.reading and sent < 20_000:
        client.feed(request)
        sent += 1
        rig.loop.run()
    assert 8_000 < sent < 9_000
    rig.turns()
    assert client.transport.reading
    assert len(client.answers()) == sent


def test_a_stopping_server_answers_what_was_asked() -> None:
    rig = Rig()
    rig.topic("orders")
    client = rig.client()
    client.feed(client.encode(310, b"x", **sending("orders", 0, "")))
    client.connection.finish()
    assert not client.transport.closed
    rig.turn()
    assert [answer.code for answer in client.answers()] == [0]
    assert client.transport.closed


def test_answers_nobody_asked_for_are_ignored() -> None:
    client = Rig().client()
    client.feed(wire.encode(Command(0, 99, wire.RESPONSE)))
    assert not client.transport.closed


GOOD = {
    **{name: str(value) for name, value in sending("orders", 0, "UNIQ_KEY\x01U2\x02").items()},
    "topic": "orders", "queueId": "0", "queueOffset": "0", "consumerGroup": "g", "group": "g", "maxMsgNums": "32",
    "sysFlag": "6", "subscription": "a", "offset": "0", "expressionType": "TAG", "timestamp": "0", "key": "k",
    "commitOffset": "1", "commitOrRollback": "8", "producerGroup": "p", "msgId": "U", "transactionId": "U",
    "delayLevel": "1", "maxReconsumeTimes": "2", "clientId": "c", "suspendTimeoutMillis": "1000", "readQueueNums": "2",
    "writeQueueNums": "2", "beginTimestamp": "0", "endTimestamp": "9", "maxNum": "3", "boundaryType": "UPPER",
    "bornTimestamp": "5", "flag": "1", "properties": "", "defaultTopic": "TBW102", "batch": "false",
    "attributes": "+message.type=DELAY", "order": "true", "namespace": "ORDER_TOPIC_CONFIG", "value": "halfmoon:2",
}  # fmt: skip
"""Fields that every request finds what it needs in."""
BAD = [
    "0", "1", "-1", "", "%RETRY%g", "%DLQ%g", "a.b", "9" * 18, "9" * 19, "SQL92", "a >", "TRAN_MSG\x01true\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U\x02", "DELAY\x01x\x02", "DELAY\x011\x02",
    "TIMER_DELAY_MS\x01-9\x02", "RETRY_OF\x01orders/0/0\x02", "\x01\x02\x01",
    "+message.type=DELAY,-queue.type", "+a", "-", "halfmoon.delayed\x01x\x02", "true",
    "\U0001f600",
]  # fmt: skip
BODIES = [
    b"", b"x", b"{}", b"[", b"null", b'{"clientID":"c","consumerDataSet":[{"groupName":"g"}]}',
    b'{"clientID":"c","producerDataSet":[{"groupName":"p"}]}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"orders","brokerName":"b","queueId":0}]}',
    b'{"topic":"orders","consumerGroup":"g","clientId":"c"}', bytes(30),
]  # fmt: skip
changes = st.dictionaries(st.sampled_from(sorted(GOOD)), st.sampled_from(BAD) | st.none(), max_size=3)


@trying(150)
@given(st.lists(st.tuples(st.sampled_from(sorted(NAMED)), changes, st.sampled_from(BODIES)), max_size=8))
def test_no_request_fails_unexpectedly(requests: list[tuple[int, dict[str, str | None], bytes]]) -> None:
    """Whatever is said, it is answered, held or refused; nothing ends in the log as an error of ours."""
    rig = Rig()
    rig.topic("orders", 2)
    client = rig.client()
    client.produce("orders", b"x", TAGS="a", KEYS="k", UNIQ_KEY="U")
    for code, changed, body in requests:
        said = {name: value for name, value in (GOOD | changed).items() if value is not None}
        client.send(code, body, **said)
    rig.pass_time(70_000)
    rig.turns()
    client.answers()
    assert rig.server.counters.errors == 0
    assert not client.transport.closed
    assert rig.client().produce("safe", b"y").code == 0
