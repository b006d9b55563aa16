"""OAUTHBEARER at a listener: what a client is told, and how long its session lasts (OAuthBearerSaslServer)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halfmoon.adapters.kafka.login import Sasl, State
from halfmoon.adapters.kafka.mechanisms import beginner
from halfmoon.auth.oauth import ACKNOWLEDGED, REFUSED, Bearer, Expected, authenticate, message
from halfmoon.auth.principals import user
from halfmoon.auth.scram import Login
from tests.adapters.kafka.kafka_rig import RigClient
from tests.auth.test_oauth import EXPECTED, KEYS, OTHER_RSA, jwk, key_set, token
from tests.security.test_login import AUTHENTICATE, FAILED, HANDSHAKE, METADATA, SaslRig, is_served


class Verifier:
    """Of fixed keys, and new ones that come when the test says so."""

    def __init__(self, rig: SaslRig) -> None:
        self._rig = rig
        self.keys = KEYS
        self.expected: Expected = EXPECTED
        self.may_fetch = False
        self.waiting: list[Callable[[], None]] = []

    def log_in(self, asked: Bearer) -> Login:
        return authenticate(asked, self.keys, self.expected, self._rig.clock.wall_ms() / 1000)

    def fetches_keys(self) -> bool:
        return self.may_fetch

    def when_fetched(self, then: Callable[[], None]) -> None:
        self.waiting.append(then)


class BearerRig(SaslRig):
    def __init__(self, **more: Any) -> None:
        super().__init__("OAUTHBEARER", "PLAIN", **more)
        self.verifier = Verifier(self)
        sasl = self.server.doors["kafka"].sasl
        assert isinstance(sasl, Sasl)
        sasl.begin = beginner(self.users, self.users, self.verifier)

    def token(self, *, lives_s: int = 600, **claims: Any) -> str:
        now_s = self.clock.wall_ms() // 1000
        return token(**{"iat": now_s, "exp": now_s + lives_s, **claims})

    def begin(self) -> RigClient:
        client = self.client()
        begins(client)
        return client


def begins(client: RigClient) -> None:
    assert client.ask(HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code == 0


def says(client: RigClient, token: str) -> Any:
    return client.ask(AUTHENTICATE, 2, auth_bytes=message(token))


def fails(client: RigClient, auth_bytes: bytes) -> None:
    """At once but for the delay, and without a word of why."""
    client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=auth_bytes))
    client.rig.turn()
    assert client.answers() == []
    assert isinstance(client.rig, SaslRig)
    client.rig.wait()
    (answer,) = client.answers()
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (
        FAILED, "authentication failed with SASL mechanism OAUTHBEARER", b"",
    )  # fmt: skip
    assert client.transport.closed


@pytest.fixture
def rig() -> BearerRig:
    return BearerRig()


def test_who_has_a_token_is_let_in(rig: BearerRig) -> None:
    client = rig.begin()
    answer = says(client, rig.token())
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 600_000)
    assert (client.connection.principal, client.connection.mechanism) == (user("alice"), "OAUTHBEARER")
    assert is_served(client)
    assert rig.counts == {("OAUTHBEARER", "ok"): 1}


def test_extensions_are_read_and_change_nothing(rig: BearerRig) -> None:
    client = rig.begin()
    given = message(rig.token(), {"logicalCluster": "lkc-1", "poolId": "p 2"})
    assert client.ask(AUTHENTICATE, 2, auth_bytes=given).error_code == 0
    assert client.connection.principal == user("alice")


def test_an_authorization_id_is_the_user(rig: BearerRig) -> None:
    for name, served in (("alice", True), ("bob", False)):
        client = rig.begin()
        given = message(rig.token()).replace(b"n,,", b"n,a=" + name.encode() + b",", 1)
        if served:
            assert client.ask(AUTHENTICATE, 2, auth_bytes=given).error_code == 0
        else:
            fails(client, given)


@pytest.mark.parametrize(
    "claims", [{"aud": "other"}, {"iss": "https://evil.example"}, {"exp": 1}, {"nbf": 1 << 38}, {"sub": ""}]
)
def test_a_token_that_is_refused(rig: BearerRig, claims: dict[str, Any]) -> None:
    client = rig.begin()
    answer = says(client, rig.token(**claims))
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, REFUSED, 0)
    assert rig.counts == {}
    fails(client, ACKNOWLEDGED)
    assert rig.counts == {("OAUTHBEARER", "failed"): 1}


def test_nothing_but_the_end_follows_a_refusal(rig: BearerRig) -> None:
    client = rig.begin()
    assert says(client, rig.token(aud="other")).auth_bytes == REFUSED
    fails(client, message(rig.token()))


def test_who_takes_the_refusal_for_a_welcome_is_counted_and_closed(
    rig: BearerRig, caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka does."""
    client = rig.begin()
    assert says(client, rig.token(aud="other")).auth_bytes == REFUSED
    with caplog.at_level("DEBUG"):
        client.feed(client.encode(METADATA, 9, topics=None))
    assert client.frames() == []
    assert client.transport.closed
    assert rig.counts == {("OAUTHBEARER", "failed"): 1}
    assert "Audience" in caplog.text


def test_who_hangs_up_when_it_is_refused_is_counted(rig: BearerRig, caplog: pytest.LogCaptureFixture) -> None:
    """franz-go does."""
    client = rig.begin()
    assert says(client, rig.token(aud="other")).auth_bytes == REFUSED
    client.connection.connection_lost(None)
    assert rig.counts == {("OAUTHBEARER", "failed"): 1}
    assert "Audience" in caplog.text


def test_who_hangs_up_before_it_is_answered_is_not(rig: BearerRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.begin().connection.connection_lost(None)
    assert rig.counts == {}
    assert caplog.records == []


@pytest.mark.parametrize("given", [b"", b"\x01", b"n,,\x01auth=Basic x\x01\x01", b"\x01" * 400_000, b"x" * 400_000])
def test_a_malformed_message(rig: BearerRig, given: bytes) -> None:
    fails(rig.begin(), given)


def test_a_token_of_400_kb_is_refused(rig: BearerRig) -> None:
    client = rig.begin()
    assert says(client, "a" * 400_000).auth_bytes == REFUSED


def test_tokens_without_requests_around_them(rig: BearerRig) -> None:
    for given, served in ((rig.token(), True), (rig.token(aud="x"), False)):
        client = rig.client()
        assert client.ask(HANDSHAKE, 0, mechanism="OAUTHBEARER").error_code == 0
        said = message(given)
        client.feed(len(said).to_bytes(4, "big") + said)
        assert client.frames() == [b"" if served else REFUSED]
        if served:
            assert is_served(client)


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most_ms", [None, 60_000, 5_000])
def test_a_session_ends_with_its_token(most_ms: int | None) -> None:
    rig = BearerRig(reauthenticate_ms=most_ms)
    client = rig.begin()
    assert says(client, rig.token(lives_s=10)).session_lifetime_ms == min(10_000, most_ms or 10_000)
    rig.pass_time(10_001)
    client.feed(client.encode(METADATA, 9, topics=None))
    assert client.transport.closed


def test_a_new_token_goes_on(rig: BearerRig) -> None:
    client = rig.begin()
    says(client, rig.token(lives_s=10))
    rig.pass_time(9_000)
    begins(client)
    assert says(client, rig.token(lives_s=20)).session_lifetime_ms == 20_000
    rig.pass_time(19_000)
    assert is_served(client)
    assert rig.counts == {("OAUTHBEARER", "ok"): 2}


def test_with_a_token_of_somebody_else_it_does_not(rig: BearerRig) -> None:
    client = rig.begin()
    says(client, rig.token(lives_s=10))
    rig.pass_time(2_000)
    begins(client)
    fails(client, message(rig.token(sub="bob")))


def test_nor_with_the_old_one_once_it_is_over(rig: BearerRig) -> None:
    client = rig.begin()
    old = rig.token(lives_s=10)
    says(client, old)
    rig.pass_time(10_000 + 1_000 * EXPECTED.skew_s)
    begins(client)
    assert says(client, old).auth_bytes == REFUSED
    fails(client, ACKNOWLEDGED)


# -- keys that are not known yet ---------------------------------------------------------------------------------------


def other_token(rig: BearerRig) -> str:
    return rig.token(key=OTHER_RSA, kid="new")


def test_a_token_of_an_unknown_key_waits_for_keys(rig: BearerRig) -> None:
    rig.verifier.may_fetch = True
    client = rig.begin()
    client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=message(other_token(rig))))
    client.feed(client.encode(METADATA, 9, topics=None))
    rig.turns()
    assert client.frames() == []
    others = rig.begin()
    assert says(others, rig.token()).error_code == 0, "nobody else waits"
    rig.verifier.keys = key_set(jwk(OTHER_RSA, "new"))
    (then,) = rig.verifier.waiting
    then()
    rig.turns()
    assert len(client.frames()) == 2
    assert client.connection.principal == user("alice")


def test_it_is_refused_where_they_do_not_come(rig: BearerRig) -> None:
    rig.verifier.may_fetch = True
    client = rig.begin()
    client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=message(other_token(rig))))
    (then,) = rig.verifier.waiting
    then()
    rig.turns()
    (answer,) = client.answers()
    assert answer.auth_bytes == REFUSED
    fails(client, ACKNOWLEDGED)


def test_it_is_refused_at_once_where_they_were_asked_for_just_now(rig: BearerRig) -> None:
    client = rig.begin()
    assert says(client, other_token(rig)).auth_bytes == REFUSED
    assert rig.verifier.waiting == []


def test_who_leaves_while_it_waits(rig: BearerRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.verifier.may_fetch = True
    client = rig.begin()
    client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=message(other_token(rig))))
    login = client.connection.login
    assert login is not None
    client.connection.connection_lost(None)
    rig.verifier.keys = key_set(jwk(OTHER_RSA, "new"))
    (then,) = rig.verifier.waiting
    then()
    rig.turns()
    assert login.state in (State.IN, State.TOKENS)
    assert caplog.records == []
    assert len(rig.server.newcomers) == 0
