"""Delegation tokens: who gets one, who logs in with it, and how it ends (KIP-48, KIP-373)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from halfmoon.adapters.kafka.login import Sasl
from halfmoon.adapters.kafka.mechanisms import beginner
from halfmoon.adapters.kafka.protocol import REQUESTS
from halfmoon.auth.principals import user
from halfmoon.auth.scram import SHA_256, ScramClient, salted_password
from halfmoon.services.credentials.tokens import DelegationTokens
from halfmoon.services.credentials.users import Upsertion, Users
from halfmoon.services.quotas.service import Alteration, Quotas
from tests.adapters.kafka.kafka_rig import Rig, RigClient, batch

PRODUCE, HANDSHAKE, AUTHENTICATE, METADATA, CREATE, RENEW, EXPIRE, DESCRIBE = 0, 17, 36, 3, 38, 39, 40, 41
NOT_FOUND, MISMATCH, NOT_ALLOWED, REFUSED, EXPIRED, WRONG_TYPE = 62, 63, 64, 65, 66, 67
FAILED = 58


class TokenRig(Rig):
    def __init__(self) -> None:
        super().__init__()
        services = self.broker.services
        self.users, self.tokens = services.get(Users), services.get(DelegationTokens)
        for name in ("alice", "bob"):
            salted = salted_password(SHA_256, "secret", b"salt", 4096)
            self.users.create(name, [Upsertion(name, SHA_256.number, 4096, b"salt", salted)])
        begin = beginner(self.users, self.tokens)
        self.server.doors["kafka"].sasl = Sasl(["SCRAM-SHA-256", "PLAIN"], begin, self.clock, lambda: 0.0)
        self.turn()

    def logged_in(self, name: str, password: str = "secret", **extensions: str) -> RigClient:
        client = self.client()
        assert login(client, name, password, **extensions) == 0
        return client


def login(client: RigClient, name: str, password: str, **extensions: str) -> int:
    client.ask(HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    scram = ScramClient(SHA_256, name, password, "nonce", extensions or None)
    challenge = client.ask(AUTHENTICATE, 2, auth_bytes=scram.first())
    client.feed(client.encode(AUTHENTICATE, 2, auth_bytes=scram.final(challenge.auth_bytes)))
    client.rig.turn()
    client.rig.pass_time(1_000)
    client.rig.loop.run_later()
    (answer,) = client.answers()
    return int(answer.error_code)


@pytest.fixture
def rig() -> TokenRig:
    return TokenRig()


def create(client: RigClient, *, owner: str | None = None, renewers: tuple[str, ...] = (), life_ms: int = -1) -> Any:
    kind = REQUESTS[CREATE].CreatableRenewers
    return client.ask(
        CREATE, 3, owner_principal_type=owner and "User", owner_principal_name=owner, max_lifetime_ms=life_ms,
        renewers=[kind(principal_type="User", principal_name=name) for name in renewers],
    )  # fmt: skip


def described(client: RigClient, *owners: str) -> list[str]:
    kind = REQUESTS[DESCRIBE].DescribeDelegationTokenOwner
    asked = [kind(principal_type="User", principal_name=name) for name in owners] if owners else None
    answer = client.ask(DESCRIBE, 3, owners=asked)
    assert answer.error_code == 0
    return [each.token_id for each in answer.tokens]


def test_a_token_logs_in_as_its_owner(rig: TokenRig) -> None:
    token = create(rig.logged_in("alice"))
    assert token.error_code == 0
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * 86_400_000
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == 86_400_000
    password = base64.b64encode(token.hmac).decode()
    client = rig.logged_in(token.token_id, password, tokenauth="true")
    assert client.connection.principal == user("alice")
    assert client.connection.token_id == token.token_id
    assert client.ask(METADATA, 9, topics=None).cluster_id
    # What it does not do: get, renew, end or show tokens.
    assert create(client).error_code == NOT_ALLOWED
    assert client.ask(RENEW, 2, hmac=token.hmac, renew_period_ms=-1).error_code == NOT_ALLOWED
    assert client.ask(EXPIRE, 2, hmac=token.hmac, expiry_time_period_ms=-1).error_code == NOT_ALLOWED
    assert client.ask(DESCRIBE, 3, owners=None).error_code == NOT_ALLOWED
    # Without saying that it is one, its id is no user.
    assert login(rig.client(), token.token_id, password) == FAILED
    assert login(rig.client(), token.token_id, "wrong", tokenauth="true") == FAILED


def test_a_session_by_a_token_ends_with_it(rig: TokenRig) -> None:
    token = create(rig.logged_in("alice"), life_ms=60_000)
    client = rig.logged_in(token.token_id, base64.b64encode(token.hmac).decode(), tokenauth="true")
    rig.pass_time(59_000)
    client.feed(client.encode(METADATA, 9, topics=None))
    rig.turn()
    client.frames()
    rig.pass_time(2_000)
    client.feed(client.encode(METADATA, 9, topics=None))
    assert client.transport.closed
    assert login(rig.client(), token.token_id, base64.b64encode(token.hmac).decode(), tokenauth="true") == FAILED


def test_a_token_for_another_takes_a_right(rig: TokenRig) -> None:
    """Without an authorizer everybody has it."""
    token = create(rig.logged_in("alice"), owner="bob")
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "bob", "alice")
    assert described(rig.logged_in("bob")) == [token.token_id]
    assert described(rig.logged_in("alice")) == []


def test_renewers(rig: TokenRig) -> None:
    alice, bob = rig.logged_in("alice"), rig.logged_in("bob")
    token = create(alice, renewers=("bob",))
    other = create(alice)
    rig.pass_time(3_600_000)
    renewed = bob.ask(RENEW, 2, hmac=token.hmac, renew_period_ms=-1)
    assert renewed.error_code == 0
    assert renewed.expiry_timestamp_ms > token.expiry_timestamp_ms
    assert bob.ask(RENEW, 2, hmac=other.hmac, renew_period_ms=-1).error_code == MISMATCH
    assert bob.ask(EXPIRE, 2, hmac=other.hmac, expiry_time_period_ms=-1).error_code == MISMATCH
    assert bob.ask(RENEW, 2, hmac=b"nothing", renew_period_ms=-1).error_code == NOT_FOUND
    assert described(bob) == [token.token_id]
    assert described(bob, "carol") == []
    by_token = rig.logged_in(token.token_id, base64.b64encode(token.hmac).decode(), tokenauth="true")
    assert bob.ask(EXPIRE, 2, hmac=token.hmac, expiry_time_period_ms=-1).error_code == 0
    assert by_token.transport.closed
    assert described(alice) == [other.token_id]
    rig.pass_time(2 * 86_400_000)
    assert alice.ask(RENEW, 2, hmac=other.hmac, renew_period_ms=-1).error_code in (EXPIRED, NOT_FOUND)


def test_a_renewer_is_a_user(rig: TokenRig) -> None:
    kind = REQUESTS[CREATE].CreatableRenewers
    renewers = [kind(principal_type="Group", principal_name="x")]
    answer = rig.logged_in("alice").ask(CREATE, 3, renewers=renewers, max_lifetime_ms=-1)
    assert answer.error_code == WRONG_TYPE


def test_a_deleted_or_disabled_owner_has_no_tokens(rig: TokenRig) -> None:
    token = create(rig.logged_in("alice"))
    password = base64.b64encode(token.hmac).decode()
    rig.users.set_flags("alice", disabled=True)
    assert login(rig.client(), token.token_id, password, tokenauth="true") == FAILED
    rig.users.set_flags("alice", disabled=False)
    assert login(rig.client(), token.token_id, password, tokenauth="true") == 0
    rig.users.delete("alice")
    assert login(rig.client(), token.token_id, password, tokenauth="true") == FAILED


def test_quotas_are_for_the_user_that_has_authenticated(rig: TokenRig) -> None:
    quotas = rig.broker.services.get(Quotas)
    quotas.alter(Alteration([("user", "alice")], [("producer_byte_rate", 100.0)]))
    rig.topic("t")
    told = {}
    for name in ("alice", "bob"):
        client = rig.logged_in(name)
        topic = REQUESTS[PRODUCE].TopicProduceData
        part = topic.PartitionProduceData(index=0, records=batch(b"x" * 5_000))
        answer = client.ask(
            PRODUCE,
            9,
            transactional_id=None,
            acks=1,
            timeout_ms=1_000,
            topic_data=[topic(name="t", partition_data=[part])],
        )
        told[name] = answer.throttle_time_ms
    assert told["bob"] == 0
    assert told["alice"] > 1_000
