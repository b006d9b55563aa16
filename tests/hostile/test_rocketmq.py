"""Strangers and users at RocketMQ's ports, where requests must be signed. TLS is not on here: what it keeps from being
read can be sent again by whoever reads it otherwise."""

from __future__ import annotations

import json
import struct
from contextlib import ExitStack
from random import Random

import pytest

from halfmoon.adapters.tcp.newcomers import SMALL_BYTES
from halfmoon.auth.access_key import signature
from tests.fuzz.remoting import HEARTBEAT, PULL, ROUTE, SEND, Remote, pulling, request, said, sending
from tests.hostile.secured import Hostile, Start, until_closed

NO_PERMISSION, SUCCESS = 16, 0
SECRET = "a secret"
VERSION = 479
"""As `remoting.json_header` says it; of RocketMQ 5.3.2."""
HALFMOON_USERS = 18503


def signed(fields: dict[str, str], body: bytes = b"", name: str = "alice", secret: str = SECRET) -> dict[str, str]:
    fields = fields | {"AccessKey": name}
    return fields | {"Signature": signature(secret, fields, body, VERSION)}


@pytest.fixture
def found(hostile: Start) -> Hostile:
    listener = {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0", "auth": True}
    made = hostile(tls=False, listeners={"rocketmq": listener}, limits={"authentication_timeout": "3s"})
    made.admin.user("alice")
    made.admin.send(_framed({"type": "secret", "name": "alice", "secret": SECRET}))
    assert json.loads(made.admin.frame()[4:]) == {}
    for topic in ("orders", "secret"):
        made.admin.topic(topic)
    made.admin.allow("alice", "write topic orders", "read topic orders", "read group g")
    return made


def _framed(question: dict[str, object]) -> bytes:
    asked = struct.pack(">hhih", HALFMOON_USERS, 0, 7, -1) + json.dumps(question).encode()
    return struct.pack(">i", len(asked)) + asked


def test_large_frames_of_strangers(found: Hostile) -> None:
    """A hundred that say 16 MiB and send four of it, beside five hundred that send the most which each may."""
    with found.watched(grown_bytes=96 << 20), ExitStack() as stack:
        strangers = []
        for size, count, part in ((16 << 20, 100, 4 << 20), (SMALL_BYTES, 400, SMALL_BYTES - 1)):
            for _ in range(count):
                stranger = stack.enter_context(Remote(found.broker.rocketmq))
                stranger.send(struct.pack(">i", size) + bytes(part))
                strangers.append(stranger)
        with Remote(found.broker.rocketmq) as alice:
            assert alice.tell(ROUTE, signed(said(topic="orders"))).code == SUCCESS
            body = bytes(900_000)
            sent = alice.tell(SEND, signed(sending("orders"), body), body, 20)
            assert sent.code == SUCCESS, sent
        for stranger in strangers:
            assert until_closed(stranger)


def test_what_is_not_signed_by_who_it_says(found: Hostile) -> None:
    fields = sending("orders")
    cases = [
        {}, fields, fields | {"AccessKey": "alice"}, fields | {"AccessKey": "alice", "Signature": "x"},
        signed(fields, b"other"), signed(fields, b"x", secret="wrong"), signed(fields, b"x", name="nobody"),
        signed(fields, b"x") | {"b": "secret"}, signed(fields, b"x") | {"more": "1"},
        {name: value for name, value in signed(fields, b"x").items() if name != "d"},
    ]  # fmt: skip
    with found.watched():
        for address in (found.broker.rocketmq, found.broker.names):
            for case in cases:
                with Remote(address) as stranger:
                    code = SEND if address == found.broker.rocketmq else ROUTE
                    assert stranger.tell(code, case, b"x").code == NO_PERMISSION, case


def test_a_request_sent_again_or_cut_anew(found: Hostile) -> None:
    """A signature covers neither the names of fields nor the request's code, nor a time: rights still hold."""
    fields = signed(sending("orders"), b"x")
    with found.watched(), Remote(found.broker.rocketmq) as replay:
        assert replay.tell(SEND, fields, b"x").code == SUCCESS
        assert replay.tell(SEND, fields, b"x").code == SUCCESS, "the same again, as docs/threats.md says"
        # The value of `a` ends where that of `b` begins: other fields, one signature.
        cut = dict(fields) | {"a": fields["a"] + fields["b"][:2], "b": fields["b"][2:]}
        assert replay.tell(SEND, cut, b"x").code == NO_PERMISSION
        for group, topic in (("g", "secret"), ("other", "orders"), ("g", "%RETRY%other"), ("other", "%RETRY%other")):
            refused = replay.tell(PULL, signed(pulling(topic, 0, group=group)))
            assert refused.code == NO_PERMISSION, (group, topic)
        beat = {"clientID": "c", "consumerDataSet": [{"groupName": "other", "subscriptionDataSet": []}]}
        body = json.dumps(beat).encode()
        assert replay.tell(HEARTBEAT, signed({}, body), body).code == NO_PERMISSION


def test_bodies_that_are_changed_on_their_way(found: Hostile) -> None:
    chance = Random(20130902)
    body = bytes(range(200))
    right = request(SEND, 1, signed(sending("orders", properties="UNIQ_KEY\1K\2"), body), body)
    at_body = len(right) - len(body)
    outcomes = set()
    with found.watched():
        strangers = [Remote(found.broker.rocketmq) for _ in range(200)]
        for stranger in strangers:
            spoilt = bytearray(right)
            spoilt[chance.randrange(at_body, len(spoilt))] ^= 1 << chance.randrange(8)
            stranger.send(bytes(spoilt))
        for stranger in strangers:
            outcomes.add(stranger.hear(1, 20).code)
            stranger.close()
    assert outcomes == {NO_PERMISSION}
    with Remote(found.broker.rocketmq) as alice:
        offset = alice.tell(30, signed(said(topic="orders", queueId=0)))
        assert offset.fields["offset"] == "0"
