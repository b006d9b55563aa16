"""Requests that must be signed: who is let in, what the others hear, and what becomes of users who are changed."""

from __future__ import annotations

import logging
import random
import struct
from typing import Any

import pytest
from rocketmq_rig import Rig, RigClient, sending

from halfmoon.adapters.rocketmq.identity import NOT_LET_IN
from halfmoon.adapters.rocketmq.signatures import LARGE_BODY_BYTES, LOGGED, LOGGED_MS, Signatures
from halfmoon.adapters.tcp.access import RuleAccess
from halfmoon.adapters.tcp.newcomers import LARGE_BYTES, SMALL_BYTES
from halfmoon.auth.access_key import signature
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import Command
from halfmoon.remoting.message import decode_stored
from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.services.acls.state import AclsState
from halfmoon.services.authorization.decisions import OPERATIONS, RESOURCE_TYPES
from halfmoon.services.authorization.service import Authorization
from halfmoon.services.credentials.users import Users

SECRETS = {"alice": "secret of alice", "bob": "secret of bob"}
REFUSED = (Code.NO_PERMISSION, NOT_LET_IN.remark)


class SignedRig(Rig):
    def __init__(self) -> None:
        super().__init__(RocketmqListener(auth=True))
        self.users = self.broker.services.get(Users)
        for name, secret in SECRETS.items():
            self.users.create(name, secret=secret)
        self.topic("orders")

    def rules(self, *said: str) -> None:
        """`alice read topic orders`"""
        acls = AclsState()
        self.node.access = RuleAccess(Authorization(acls, lambda principal: False))
        rules = []
        for name, operation, kind, resource in map(str.split, said):
            number = OPERATIONS[operation]
            rules.append(AclRule(RESOURCE_TYPES[kind], resource, 3, f"User:{name}", "*", number, 3))
        acls.apply(AclsChanged(rules, []))

    def signing(self, name: str = "alice", secret: str | None = None, **more: Any) -> Signing:
        return Signing(self, name, SECRETS.get(name, "") if secret is None else secret, **more)


class Signing:
    """A client that signs as somebody."""

    def __init__(self, rig: SignedRig, name: str, secret: str, *, on: RigClient | None = None, **more: Any) -> None:
        self.rig = rig
        self.name, self.secret = name, secret
        self.client = on or rig.client(**more)

    def fields(self, body: bytes, given: dict[str, Any]) -> dict[str, Any]:
        fields = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
        fields["AccessKey"] = self.name
        return {**fields, "Signature": signature(self.secret, fields, body, 479)}

    def send(self, code: int, body: bytes = b"", **given: Any) -> None:
        self.client.send(code, body, **self.fields(body, given))

    def ask(self, code: int, body: bytes = b"", **given: Any) -> tuple[int, str | None]:
        self.send(code, body, **given)
        return self.answer()

    def answer(self) -> tuple[int, str | None]:
        """The one answer, which comes late where it is a refusal."""
        found = self.client.answers()
        if not found:
            self.rig.pass_time(250)
            self.rig.turns()
            found = self.client.answers()
        (answer,) = found
        return answer.code, answer.remark

    @property
    def is_open(self) -> bool:
        return not self.client.transport.closed


@pytest.fixture
def rig() -> SignedRig:
    return SignedRig()


def test_who_signs_is_let_in(rig: SignedRig) -> None:
    alice = rig.signing()
    assert alice.ask(310, b"a", **sending("orders", 0, "")) == (Code.SUCCESS, None)
    assert str(alice.client.connection.principal) == "User:alice"
    assert alice.ask(105, topic="orders")[0] == Code.SUCCESS
    names = rig.signing(names=True)
    assert names.ask(105, topic="orders")[0] == Code.SUCCESS
    assert rig.server.signatures is not None
    assert rig.server.signatures.results == {"ok": 2}


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"AccessKey": "alice"},
        {"AccessKey": "", "Signature": ""},
        {"AccessKey": "nobody", "Signature": "x"},
        {"Signature": "x"},
        {"AccessKey": "alice", "Signature": "\N{SNOWMAN}"},
    ],
)
def test_who_does_not_is_refused(rig: SignedRig, given: dict[str, str], names: bool) -> None:
    client = rig.client(names=names)
    client.send(105, topic="orders", **given)
    assert client.answers() == []
    rig.pass_time(250)
    rig.turns()
    (answer,) = client.answers()
    assert (answer.code, answer.remark) == REFUSED
    assert rig.server.signatures is not None
    assert rig.server.signatures.results == {"failed": 1}


def test_all_reasons_have_the_same_words(rig: SignedRig) -> None:
    rig.users.create("carol")
    rig.users.create("dave", secret="d")
    rig.users.set_flags("dave", disabled=True)
    for name, secret in (("alice", "wrong"), ("nobody", "x"), ("carol", "x"), ("dave", "d")):
        assert rig.signing(name, secret).ask(105, topic="orders") == REFUSED


def test_whose_secret_cannot_be_opened(rig: SignedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> str:
        raise BrokerError(Fault.KAFKA_STORAGE_ERROR, "node.key cannot be written")

    alice = rig.signing()
    monkeypatch.setattr(rig.users, "secret", fails)
    assert alice.ask(105, topic="orders") == REFUSED


def test_a_changed_request(rig: SignedRig) -> None:
    """The body, and any value."""
    alice = rig.signing()
    fields = alice.fields(b"a", sending("orders", 0, ""))
    for body, changed in ((b"b", fields), (b"a", {**fields, "b": "other"}), (b"a", {**fields, "more": "x"})):
        alice.client.send(310, body, **changed)
        assert alice.answer() == REFUSED


def test_a_request_sent_again_is_taken(rig: SignedRig) -> None:
    """Nothing in it says when it was made: TLS keeps it from strangers (docs/security.md)."""
    alice = rig.signing()
    fields = alice.fields(b"a", sending("orders", 0, ""))
    mallory = rig.client()
    for client in (alice.client, mallory):
        assert client.ask(310, b"a", **fields).code == Code.SUCCESS


def test_a_request_cut_anew_is_taken(rig: SignedRig) -> None:
    """Neither names nor borders of the values are signed, so this is RocketMQ's: only TLS helps."""
    alice = rig.signing()
    fields = alice.fields(b"", {"topic": "orders", "x": "1"})
    cut = {**fields, "topic": "orders1", "x": ""}
    alice.client.send(105, **cut)
    assert alice.answer()[0] == Code.TOPIC_NOT_EXIST


def test_what_comes_behind_a_wrong_request_waits(rig: SignedRig) -> None:
    client = rig.client()
    alice = rig.signing(on=client)
    wrong = client.encode(105, topic="orders")
    right = client.encode(105, **alice.fields(b"", {"topic": "orders"}))
    client.feed(wrong + right)
    rig.turns()
    assert client.answers() == []
    rig.pass_time(250)
    rig.turns()
    assert [answer.code for answer in client.answers()] == [Code.NO_PERMISSION, Code.SUCCESS]


def test_one_way_requests(rig: SignedRig) -> None:
    alice, client = rig.signing(), rig.client()
    client.send(310, b"a", oneway=True, **sending("orders", 0, ""))
    rig.pass_time(250)
    rig.turns()
    assert client.answers() == []
    assert rig.broker.topic("orders").partitions[0].stable_offset == 0
    alice.client.send(310, b"a", oneway=True, **alice.fields(b"a", sending("orders", 0, "")))
    assert rig.broker.topic("orders").partitions[0].stable_offset == 1


# Large bodies.


LARGE = random.Random(7).randbytes(LARGE_BODY_BYTES + 1)


def test_a_large_body_is_hashed_in_a_thread(rig: SignedRig) -> None:
    client = rig.client()
    alice = rig.signing(on=client)
    sent = client.encode(310, LARGE, **alice.fields(LARGE, sending("orders", 0, "")))
    behind = client.encode(310, b"behind", **alice.fields(b"behind", sending("orders", 0, "")))
    feed_all(client, sent + behind)
    assert rig.loop.threads  # it waits, and so does what is behind it
    assert rig.broker.topic("orders").partitions[0].stable_offset == 0
    assert not client.transport.reading
    rig.turns()
    assert client.transport.reading
    assert [answer.code for answer in client.answers()] == [Code.SUCCESS, Code.SUCCESS]
    pulled = [*decode_stored(pull(rig, alice, 0).body), *decode_stored(pull(rig, alice, 1).body)]
    assert [message.body for message in pulled] == [LARGE, b"behind"]


def pull(rig: SignedRig, who: Signing, offset: int) -> Command:
    asked = {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 1,
        "sysFlag": 4,
    }
    return who.client.ask(11, **who.fields(b"", asked))


def test_a_large_body_with_a_wrong_signature(rig: SignedRig) -> None:
    client = rig.client()
    alice = rig.signing(on=client)
    fields = alice.fields(LARGE, sending("orders", 0, ""))
    feed_all(client, client.encode(310, LARGE[:-1] + b"x", **fields))
    rig.turns()
    assert alice.answer() == REFUSED
    assert alice.ask(105, topic="orders")[0] == Code.SUCCESS


def test_a_secret_that_changes_while_a_body_is_hashed(rig: SignedRig) -> None:
    client = rig.client()
    alice = rig.signing(on=client)
    frame = client.encode(310, LARGE, **alice.fields(LARGE, sending("orders", 0, "")))
    feed_all(client, frame)
    rig.users.set_secret("alice", "another")
    rig.turns()
    assert alice.answer() == REFUSED


def begun(rig: SignedRig, size: int) -> RigClient:
    """A stranger who has sent the beginning of a frame of that size."""
    client = rig.client()
    client.feed(struct.pack(">i", size).ljust(1_000, b"\0"))
    return client


def test_strangers_fill_little_with_large_frames(rig: SignedRig) -> None:
    strangers = [begun(rig, 4 << 20) for _ in range(10)]
    assert [each.transport.closed for each in strangers] == [False] * 4 + [True] * 6
    assert rig.server.pool.in_use_bytes < 2 * LARGE_BYTES + (4 << 20)  # in buffers of the next power of two
    small = begun(rig, SMALL_BYTES)
    assert not small.transport.closed
    strangers[0].close()
    assert not begun(rig, 4 << 20).transport.closed
    assert begun(rig, 4 << 20).transport.closed


def test_whoever_has_signed_sends_large_frames_meanwhile(rig: SignedRig) -> None:
    alice = rig.signing()
    assert alice.ask(105, topic="orders")[0] == Code.SUCCESS
    begun(rig, 16 << 20)
    assert rig.server.newcomers.large_bytes == LARGE_BYTES
    feed_all(alice.client, alice.client.encode(310, LARGE, **alice.fields(LARGE, sending("orders", 0, ""))))
    rig.turns()
    assert alice.answer() == (Code.SUCCESS, None)


def test_the_first_request_may_be_a_large_message(rig: SignedRig) -> None:
    """As of a producer that begins with one. Its place is free for others then."""
    for _ in range(5):
        client = rig.client()
        alice = rig.signing(on=client)
        body = LARGE[: 1 << 20] * 3
        feed_all(client, client.encode(310, body, **alice.fields(body, sending("orders", 0, ""))))
        rig.turns()
        assert alice.answer() == (Code.SUCCESS, None)
        assert rig.server.newcomers.large_bytes == 0


def feed_all(client: RigClient, data: bytes) -> None:
    """All in two reads, the last of which has the end of the first request, and what is behind it."""
    while data:
        buffer = client.connection.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        client.connection.buffer_updated(size)
        data = data[size:]


# Users who are changed.


def test_changes_of_a_user(rig: SignedRig) -> None:
    alice, bob = rig.signing(), rig.signing("bob")
    for each in (alice, bob):
        assert each.ask(105, topic="orders")[0] == Code.SUCCESS
    rig.users.set_flags("alice", disabled=True)
    rig.turns()
    assert (alice.is_open, bob.is_open) == (False, True)
    assert rig.signing().ask(105, topic="orders") == REFUSED
    rig.users.set_flags("alice", disabled=False)
    alice = rig.signing()
    assert alice.ask(105, topic="orders")[0] == Code.SUCCESS
    rig.users.set_secret("alice", "another")
    rig.turns()
    assert not alice.is_open
    assert rig.signing().ask(105, topic="orders") == REFUSED
    alice = rig.signing(secret="another")
    assert alice.ask(105, topic="orders")[0] == Code.SUCCESS
    rig.users.delete("alice")
    rig.turns()
    assert not alice.is_open
    assert bob.is_open
    assert rig.signing(secret="another").ask(105, topic="orders") == REFUSED


def test_a_password_for_kafka_changes_nothing(rig: SignedRig) -> None:
    alice = rig.signing()
    assert alice.ask(105, topic="orders")[0] == Code.SUCCESS
    rig.users.set_passwords("alice", [])
    rig.turns()
    assert alice.is_open
    assert alice.ask(105, topic="orders")[0] == Code.SUCCESS


def test_a_connection_of_two_users_ends_with_either(rig: SignedRig) -> None:
    """Requests of the first may wait on it."""
    client = rig.client()
    for name in ("alice", "bob"):
        assert rig.signing(name, on=client).ask(105, topic="orders")[0] == Code.SUCCESS
    rig.users.delete("alice")
    rig.turns()
    assert client.transport.closed


def test_nothing_is_kept_of_connections_that_are_gone(rig: SignedRig) -> None:
    alice = rig.signing()
    alice.ask(105, topic="orders")
    signatures = rig.server.signatures
    assert signatures is not None
    assert list(signatures._signers) == ["alice"]
    alice.client.close()
    assert signatures._signers == {}


# Rights are those of who has signed.


def test_rights_are_the_requests_own(rig: SignedRig) -> None:
    rig.rules("alice write topic orders", "bob describe topic orders")
    client = rig.client()
    alice, bob = rig.signing(on=client), rig.signing("bob", on=client)
    for _ in range(2):
        assert alice.ask(310, b"a", **sending("orders", 0, ""))[0] == Code.SUCCESS
        assert bob.ask(310, b"a", **sending("orders", 0, ""))[0] == Code.NO_PERMISSION
        assert bob.ask(105, topic="orders")[0] == Code.SUCCESS


def test_a_retry_topic_follows_its_group(rig: SignedRig) -> None:
    rig.topic("retry.b")
    rig.rules("alice read group a", "alice read topic *", "alice write topic *", "alice describe topic *")
    alice = rig.signing()
    pull = {"consumerGroup": "a", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0}
    assert alice.ask(11, topic="%RETRY%b", **pull)[0] == Code.NO_PERMISSION
    assert alice.ask(310, b"x", **sending("%RETRY%b", 0, ""))[0] == Code.NO_PERMISSION
    assert alice.ask(310, b"x", **sending("%RETRY%a", 0, ""))[0] == Code.SUCCESS


def test_changes_are_taken_from_everywhere_by_those_who_may(rig: SignedRig) -> None:
    away = {"peer": "10.0.0.2"}
    stored = {"namespace": "n", "key": "k", "value": "v"}
    assert rig.signing(**away).ask(100, **stored)[0] == Code.NO_PERMISSION
    rig.rules("alice alter cluster kafka-cluster")
    assert rig.signing(**away).ask(100, **stored)[0] == Code.SUCCESS
    assert rig.signing("bob", **away).ask(100, **stored)[0] == Code.NO_PERMISSION


# Those who have not signed yet.


def test_who_has_not_signed_in_time_is_closed(rig: SignedRig) -> None:
    late, wrong, alice = rig.client(), rig.signing(secret="wrong"), rig.signing()
    assert wrong.ask(105, topic="orders") == REFUSED
    assert alice.ask(105, topic="orders")[0] == Code.SUCCESS
    assert len(rig.server.newcomers) == 2
    rig.pass_time(11_000)
    rig.server.newcomers.expire()
    rig.turns()
    assert late.transport.closed
    assert not wrong.is_open
    assert alice.is_open


def test_failures_are_logged_and_not_too_often(caplog: pytest.LogCaptureFixture) -> None:
    class Nobody:
        def secret(self, name: str) -> str | None:
            return None

        def unknown_key(self) -> bytes:
            return b"key"

    now = [0]
    signatures = Signatures(Nobody(), lambda: now[0], lambda: 0.5)
    claim = signatures.claim(Command(10, fields={"AccessKey": "alice", "Signature": "x"}))
    assert not claim.is_right()
    with caplog.at_level(logging.WARNING, "halfmoon.auth"):
        for _ in range(LOGGED + 7):
            assert signatures.failed("127.0.0.1:1", "", claim) == 150
        now[0] += LOGGED_MS
        signatures.failed("127.0.0.1:1", "", claim)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == LOGGED + 2
    assert messages[0] == (
        "event=authentication_failed peer=127.0.0.1:1 client= user=alice code=10 reason=no secret that counts"
    )
    assert messages[LOGGED] == "event=authentications_failed not_logged=7"


def test_a_secret_for_unknown_users_lets_nobody_in() -> None:
    class Nobody:
        def secret(self, name: str) -> str | None:
            return None

        def unknown_key(self) -> bytes:
            return b"key"

    signatures = Signatures(Nobody(), lambda: 0, lambda: 0.0)
    fields = {"AccessKey": "alice"}
    signed = {**fields, "Signature": signature(b"key".hex(), fields, b"", 479)}
    assert not signatures.claim(Command(10, fields=signed)).is_right()
