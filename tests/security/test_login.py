"""What a client has to say before it is let in, and what becomes of all else (SaslServerAuthenticator)."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from typing import Any

import pytest

from halfmoon.adapters.kafka.login import FAILED_MS, LONGEST_REQUEST, LONGEST_WITH_TOKEN, MOST_VERIFIED, Sasl, State
from halfmoon.adapters.kafka.mechanisms import beginner
from halfmoon.adapters.tcp.newcomers import LARGE_BYTES
from halfmoon.auth.principals import ANONYMOUS, user
from halfmoon.auth.scram import MECHANISMS, SHA_256, Found, Mechanism, ScramClient, make_credential
from tests.adapters.kafka.kafka_rig import Rig, RigClient
from tests.interop.access.world import build

VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, PRODUCE, FETCH = 18, 17, 36, 3, 0, 1
UNSUPPORTED_MECHANISM, ILLEGAL_STATE, FAILED = 33, 34, 58


class Users:
    def __init__(self, **passwords: str) -> None:
        self.passwords = passwords
        self.disabled: set[str] = set()
        self.expires_ms: int | None = None

    def unknown_key(self) -> bytes:
        return b"node"

    def credentials(self, name: str) -> dict[Mechanism, Found]:
        if name not in self.passwords:
            return {}
        return {
            mechanism: Found(
                make_credential(mechanism, self.passwords[name], b"salt"), user(name), name not in self.disabled,
                self.expires_ms,
            )
            for mechanism in MECHANISMS.values()
        }  # fmt: skip

    def find(self, mechanism: Mechanism, token: str) -> Found | None:
        """Of a delegation token."""
        return None


class SaslRig(Rig):
    def __init__(self, *mechanisms: str, reauthenticate_ms: int | None = None) -> None:
        super().__init__()
        self.users = Users(alice="secret", bob="hidden")
        self.counts: Counter[tuple[str, str]] = Counter()
        offered = mechanisms or ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")

        def counted(mechanism: str, result: str) -> None:
            self.counts[mechanism, result] += 1

        begin = beginner(self.users, self.users)
        self.server.doors["kafka"].sasl = Sasl(offered, begin, self.clock, lambda: 0.5, reauthenticate_ms, counted)

    def wait(self) -> None:
        """Until who failed is told so."""
        self.pass_time(2 * FAILED_MS)
        self.loop.run_later()
        self.turn()


@pytest.fixture
def rig() -> SaslRig:
    return SaslRig()


def logs_in(client: RigClient, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    """The last answer."""
    answer = client.ask(HANDSHAKE, 1, mechanism=mechanism)
    assert answer.error_code == 0
    if mechanism == "PLAIN":
        client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=f"\0{name}\0{password}".encode()))
        client.rig.turns()
    else:
        scram = ScramClient(MECHANISMS[mechanism], name, password, "nonce")
        challenge = client.ask(AUTHENTICATE, 2, auth_bytes=scram.first())
        assert challenge.error_code == 0
        client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=scram.final(challenge.auth_bytes)))
        client.rig.turn()
    answers = client.answers()
    if not answers:
        assert not client.transport.closed, "whoever fails hears of it late"
        assert isinstance(client.rig, SaslRig)
        client.rig.wait()
        answers = client.answers()
    (answer,) = answers
    return answer


def is_served(client: RigClient) -> bool:
    return bool(client.ask(METADATA, 9, topics=None).cluster_id)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_who_has_the_password_is_let_in(rig: SaslRig, mechanism: str) -> None:
    client = rig.client()
    assert client.ask(VERSIONS, 3, client_software_name="a", client_software_version="1").error_code == 0
    assert len(rig.server.newcomers) == 1
    answer = logs_in(client, "alice", "secret", mechanism)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert (client.connection.principal, client.connection.mechanism) == (user("alice"), mechanism)
    assert len(rig.server.newcomers) == 0
    assert is_served(client)
    assert rig.counts == {(mechanism, "ok"): 1}
    assert client.ask(HANDSHAKE, 1, mechanism=mechanism).error_code == ILLEGAL_STATE
    assert client.ask(AUTHENTICATE, 2, auth_bytes=b"x").error_code == ILLEGAL_STATE
    assert is_served(client)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "x"), ("bob", "hidden")])
def test_who_has_not_is_told_late_and_the_same(rig: SaslRig, mechanism: str, name: str, password: str) -> None:
    rig.users.disabled.add("bob")
    client = rig.client()
    answer = logs_in(client, name, password, mechanism)
    assert answer.error_code == FAILED
    assert answer.error_message == f"authentication failed with SASL mechanism {mechanism}"
    assert answer.auth_bytes == b""
    assert client.transport.closed
    assert client.connection.principal == ANONYMOUS
    assert rig.counts == {(mechanism, "failed"): 1}


def test_a_mechanism_that_is_not_offered(rig: SaslRig) -> None:
    client = rig.client()
    client.feed(client.encode(HANDSHAKE, 1, mechanism="GSSAPI"))
    rig.turn()
    assert client.answers() == []
    rig.wait()
    (answer,) = client.answers()
    assert answer.error_code == UNSUPPORTED_MECHANISM
    assert answer.mechanisms == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
    assert client.transport.closed
    assert rig.counts == {("other", "failed"): 1}


IN_TURN = ((AUTHENTICATE, 2), (VERSIONS, 0))


@pytest.mark.parametrize(
    ("key", "begins"),
    [
        pair
        for pair in itertools.product([PRODUCE, METADATA, AUTHENTICATE, 38, VERSIONS], [0, 1, 2])
        if pair not in IN_TURN
    ],
)
def test_nothing_else_is_handled_before(rig: SaslRig, begins: int, key: int) -> None:
    client = rig.client()
    if begins:
        assert client.ask(VERSIONS, 3, client_software_name="a", client_software_version="1").error_code == 0
    if begins > 1:
        assert client.ask(HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    client.feed(struct.pack(">ihhih", 10, key, 1, 7, -1))
    assert client.frames() == []
    assert client.transport.closed


def test_versions_may_be_asked_again_where_they_were_not_told(rig: SaslRig) -> None:
    client = rig.client()
    client.feed(struct.pack(">ihhih", 10, VERSIONS, 99, 7, -1))
    (refused,) = client.frames()
    assert refused[4:6] == b"\0\x23"
    assert client.ask(VERSIONS, 0).error_code == 0
    assert logs_in(client, "alice", "secret").error_code == 0


@pytest.mark.parametrize(("mechanism", "most"), [("PLAIN", LONGEST_REQUEST), ("OAUTHBEARER", LONGEST_WITH_TOKEN)])
@pytest.mark.parametrize("key", [PRODUCE, AUTHENTICATE, VERSIONS])
@pytest.mark.parametrize("given", [6, 50])
def test_a_large_request_is_not_received(mechanism: str, most: int, key: int, given: int) -> None:
    rig = SaslRig(mechanism)
    client = rig.client()
    client.feed(struct.pack(">ih", most + 1, key).ljust(given, b"\0"))
    assert client.transport.closed
    assert rig.server.pool.in_use_bytes <= 512 << 10


def test_few_long_tokens_are_received_at_a_time() -> None:
    """Of half a megabyte each: the largest that strangers may send, if all of them did."""
    rig = SaslRig("OAUTHBEARER")
    strangers = [rig.client() for _ in range(50)]
    for stranger in strangers:
        stranger.feed(struct.pack(">ih", LONGEST_WITH_TOKEN, AUTHENTICATE).ljust(50, b"\0"))
    assert sum(not stranger.transport.closed for stranger in strangers) == LARGE_BYTES // LONGEST_WITH_TOKEN
    assert rig.server.pool.in_use_bytes < 2 * LARGE_BYTES + (1 << 20)  # in buffers of the next power of two


def test_what_comes_behind_the_token_waits_for_its_outcome(rig: SaslRig) -> None:
    for password, served in (("secret", True), ("wrong", False)):
        client = rig.client()
        client.ask(HANDSHAKE, 1, mechanism="PLAIN")
        token = client.encode(AUTHENTICATE, 2, auth_bytes=f"\0alice\0{password}".encode())
        client.feed(token + client.encode(METADATA, 9, topics=None))
        assert client.frames() == []
        rig.turns()
        rig.wait()
        assert len(client.frames()) == (2 if served else 1)
        assert client.transport.closed is not served


def test_tokens_without_requests_around_them(rig: SaslRig) -> None:
    """As clients before Kafka 1.0 send them (KIP-43)."""
    client = rig.client()
    assert client.ask(HANDSHAKE, 0, mechanism="SCRAM-SHA-256").error_code == 0
    scram = ScramClient(SHA_256, "alice", "secret", "nonce")
    first = scram.first()
    client.feed(struct.pack(">i", len(first)) + first)
    (challenge,) = client.frames()
    final = scram.final(challenge)
    client.feed(struct.pack(">i", len(final)) + final)
    (last,) = client.frames()
    scram.verify(last)
    assert is_served(client)


def test_a_token_without_a_request_that_is_wrong(rig: SaslRig) -> None:
    for token in (b"", b"x", b"n,,n=alice,r=x", b"\0" * 1_000):
        client = rig.client()
        client.ask(HANDSHAKE, 0, mechanism="PLAIN")
        client.feed(struct.pack(">i", len(token)) + token + b"\0")
        rig.turns()
        rig.wait()
        assert client.frames() == []
        assert client.transport.closed or not token


def test_a_session_ends_unless_its_client_authenticates_again() -> None:
    rig = SaslRig(reauthenticate_ms=60_000)
    client = rig.client()
    assert logs_in(client, "alice", "secret").session_lifetime_ms == 60_000
    rig.pass_time(59_000)
    assert is_served(client)
    assert logs_in(client, "alice", "secret").session_lifetime_ms == 60_000
    rig.pass_time(59_000)
    assert is_served(client)
    rig.pass_time(2_000)
    client.feed(client.encode(METADATA, 9, topics=None))
    assert client.frames() == []
    assert client.transport.closed


def test_a_fetch_that_waits_when_its_session_ends() -> None:
    """It is answered, as in Kafka, and no longer held than any other; the next request ends the connection."""
    rig = SaslRig(reauthenticate_ms=10_000)
    (partition,) = rig.topic("t")
    client = rig.client()
    logs_in(client, "alice", "secret")
    part = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
            "log_start_offset": -1, "partition_max_bytes": 1 << 20}  # fmt: skip
    fetch = build(FETCH, {
        "replica_id": -1, "max_wait_ms": 30_000, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": "t", "partitions": [part]}],
        "forgotten_topics_data": [], "rack_id": "",
    })  # fmt: skip
    client.feed(client.encode(FETCH, 11, **fetch))
    rig.pass_time(12_000)
    assert client.answers() == []
    rig.append(partition, b"late")
    rig.turn()
    (answer,) = client.answers()
    assert b"late" in bytes(answer.responses[0].partitions[0].records)
    client.feed(client.encode(FETCH, 11, **fetch))
    assert client.frames() == []
    assert client.transport.closed


def test_after_its_session_a_client_may_still_authenticate() -> None:
    rig = SaslRig(reauthenticate_ms=60_000)
    client = rig.client()
    logs_in(client, "alice", "secret")
    rig.pass_time(100_000)
    assert logs_in(client, "alice", "secret").error_code == 0
    assert is_served(client)


def test_nobody_authenticates_again_at_once() -> None:
    rig = SaslRig(reauthenticate_ms=60_000)
    client = rig.client()
    logs_in(client, "alice", "secret")
    rig.pass_time(999)
    assert client.ask(HANDSHAKE, 1, mechanism="SCRAM-SHA-256").error_code == ILLEGAL_STATE
    rig.pass_time(1)
    assert client.ask(HANDSHAKE, 1, mechanism="SCRAM-SHA-256").error_code == 0
    client.feed(client.encode(METADATA, 9, topics=None))
    assert client.transport.closed, "nothing else is handled meanwhile"


@pytest.mark.parametrize(
    ("name", "password", "mechanism"), [("bob", "hidden", "SCRAM-SHA-256"), ("alice", "wrong", "SCRAM-SHA-256")]
)
def test_who_authenticates_again_is_who_it_was(name: str, password: str, mechanism: str) -> None:
    rig = SaslRig(reauthenticate_ms=60_000)
    client = rig.client()
    logs_in(client, "alice", "secret")
    rig.pass_time(1_000)
    answer = logs_in(client, name, password, mechanism)
    assert answer.error_code == FAILED
    assert client.transport.closed


def test_the_mechanism_stays_the_same() -> None:
    rig = SaslRig(reauthenticate_ms=60_000)
    client = rig.client()
    logs_in(client, "alice", "secret")
    rig.pass_time(1_000)
    assert client.ask(HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret"))
    rig.turns()
    rig.wait()
    (answer,) = client.answers()
    assert answer.error_code == FAILED
    assert client.transport.closed


@pytest.mark.parametrize("most_ms", [None, 60_000, 5_000])
def test_a_session_ends_with_its_credential(most_ms: int | None) -> None:
    rig = SaslRig(reauthenticate_ms=most_ms)
    rig.users.expires_ms = rig.clock.wall_ms() + 10_000
    client = rig.client()
    assert logs_in(client, "alice", "secret").session_lifetime_ms == min(10_000, most_ms or 10_000)
    rig.pass_time(10_001)
    client.feed(client.encode(METADATA, 9, topics=None))
    assert client.transport.closed


def test_a_client_that_leaves_while_its_password_is_looked_at(rig: SaslRig, caplog: pytest.LogCaptureFixture) -> None:
    client = rig.client()
    client.ask(HANDSHAKE, 1, mechanism="PLAIN")
    client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret"))
    login = client.connection.login
    assert login is not None
    assert login.busy
    client.connection.connection_lost(None)
    rig.turns()
    assert login.state in (State.IN, State.TOKENS)
    assert caplog.records == [], "no error that nobody catches"
    assert len(rig.server.newcomers) == 0


def test_few_passwords_wait_for_a_thread(rig: SaslRig) -> None:
    """Who comes beyond them hears nothing of his password, which may be right."""
    clients = [rig.client() for _ in range(MOST_VERIFIED + 1)]
    for client in clients:
        client.ask(HANDSHAKE, 1, mechanism="PLAIN")
        client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret"))
    *first, last = clients
    assert all(client.connection.login is not None and client.connection.login.busy for client in first)
    rig.wait()
    assert last.answers() == []
    assert last.transport.closed
    rig.turns()
    assert {answer.error_code for client in first for answer in client.answers()} == {0}
    assert rig.counts == {("PLAIN", "ok"): MOST_VERIFIED}
    assert logs_in(rig.client(), "alice", "secret", "PLAIN").error_code == 0


def test_the_time_to_authenticate_is_limited(rig: SaslRig) -> None:
    client = rig.client()
    client.ask(HANDSHAKE, 1, mechanism="PLAIN")
    rig.pass_time(rig.settings.limits.authentication_timeout_ms)
    rig.server.newcomers.expire()
    assert client.transport.closed
