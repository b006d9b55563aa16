"""Clients that log in by access token: each client, by TLS and without, with tokens of a provider that runs here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokens
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider

from halfmoon.errors import StartError
from halfmoon.testing import Broker
from tests import several_workers
from tests.security import round_trips
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured
from tests.security.provider import Provider

ALICE = ["User:alice", "User:client"]
"""What these may do is not the question here."""


Start = Callable[..., Secured]


@pytest.fixture
def start(secured: Secure, provider: Provider) -> Start:
    def started(*, tls: bool = False, **oauth: Any) -> Secured:
        return secured("OAUTHBEARER", tls=tls, security={"super_users": ALICE, "oauth": provider.settings(**oauth)})

    return started


def common(secured: Secured) -> dict[str, Any]:
    config = {
        "bootstrap.servers": secured.broker.bootstrap_servers, "sasl.mechanism": "OAUTHBEARER",
        "security.protocol": "SASL_SSL" if secured.tls else "SASL_PLAINTEXT",
    }  # fmt: skip
    return config | ({"ssl.ca.location": secured.authority.path} if secured.tls else {})


def by_oidc(secured: Secured, provider: Provider) -> dict[str, Any]:
    """librdkafka gets tokens of its own."""
    return common(secured) | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "client",
        "sasl.oauthbearer.client.secret": "client-secret",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "https.ca.location": secured.authority.path,
    }


def by_callback(secured: Secured, provider: Provider, **claims: Any) -> dict[str, Any]:
    def token(_: object) -> tuple[str, float]:
        return provider.token(**claims), time.time() + provider.lifetime_s

    return common(secured) | {"oauth_cb": token}


class Tokens(AbstractTokenProvider):
    def __init__(self, get: Callable[[], str]) -> None:
        self._get = get

    def token(self) -> str:
        return self._get()

    def extensions(self) -> dict[str, str]:
        return {"traceId": "1 2"}


class AsyncTokens(AioTokens):
    def __init__(self, get: Callable[[], str]) -> None:
        self._get = get

    async def token(self) -> str:
        return self._get()

    def extensions(self) -> dict[str, str]:
        return {"traceId": "12"}


def python(secured: Secured) -> dict[str, Any]:
    """Of kafka-python, and of aiokafka."""
    return {
        "bootstrap_servers": secured.broker.bootstrap_servers, "sasl_mechanism": "OAUTHBEARER",
        "security_protocol": "SASL_SSL" if secured.tls else "SASL_PLAINTEXT",
    }  # fmt: skip


def of_kafka_python(secured: Secured, get: Callable[[], str]) -> dict[str, Any]:
    config = python(secured) | {"sasl_oauth_token_provider": Tokens(get)}
    return config | ({"ssl_cafile": secured.authority.path} if secured.tls else {})


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("by", [by_oidc, by_callback])
def test_librdkafka(start: Start, provider: Provider, tls: bool, by: Any) -> None:
    found = start(tls=tls)
    assert round_trips.librdkafka(by(found, provider)) == round_trips.VALUE
    counts = found.app.kafka.authentications
    assert {(mechanism, result) for _, mechanism, result in counts} == {("OAUTHBEARER", "ok")}
    if by is by_oidc:
        assert provider.bodies[0]["scope"] == ["kafka"]
    assert provider.asked["/jwks"] == 1


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_kafka_python(start: Start, provider: Provider, tls: bool) -> None:
    found = start(tls=tls)
    assert round_trips.kafka_python(of_kafka_python(found, provider.token)) == round_trips.VALUE
    assert {result for *_, result in found.app.kafka.authentications} == {"ok"}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_aiokafka(start: Start, provider: Provider, tls: bool) -> None:
    found = start(tls=tls)
    config = python(found) | {"sasl_oauth_token_provider": AsyncTokens(provider.token)}
    if tls:
        config["ssl_context"] = found.authority.client()
    assert round_trips.aiokafka(config) == round_trips.VALUE
    assert {result for *_, result in found.app.kafka.authentications} == {"ok"}


# -- who is not let in -------------------------------------------------------------------------------------------------


def test_librdkafka_is_told_that_its_token_is_not_accepted(start: Start, provider: Provider) -> None:
    found = start()
    errors: list[KafkaError] = []
    admin = AdminClient(by_callback(found, provider, aud="other") | {"error_cb": errors.append})
    deadline = time.monotonic() + 20
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors):
        assert time.monotonic() < deadline, errors
        admin.poll(0.1)
    assert {result for *_, result in found.app.kafka.authentications} == {"failed"}


def test_kafka_python_is_not_let_in(start: Start, provider: Provider) -> None:
    found = start()
    config = of_kafka_python(found, lambda: provider.token(iss="https://evil.example"))
    with pytest.raises(KafkaTimeoutError):  # as with a wrong password
        KafkaAdminClient(**config, bootstrap_timeout_ms=1_000)
    assert {result for *_, result in found.app.kafka.authentications} == {"failed"}


def test_and_aiokafka_is_closed(start: Start, provider: Provider) -> None:
    """It does not read what it is told."""
    found = start()

    async def run() -> None:
        config = python(found) | {"sasl_oauth_token_provider": AsyncTokens(lambda: provider.token(aud="other"))}
        producer = AIOKafkaProducer(**config)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaConnectionError):
        asyncio.run(run())
    assert {result for *_, result in found.app.kafka.authentications} == {"failed"}


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_librdkafka_authenticates_again_before_its_token_ends(start: Start, provider: Provider) -> None:
    """With a new one, at the same connection (KIP-368)."""
    found = start()
    # It gets a new one at four fifths, and uses it at nine tenths: time enough also where others use the machine. With
    # the old one it would have to do it again at once, which is refused.
    provider.lifetime_s = 16
    producer = Producer(by_oidc(found, provider))
    until = time.monotonic() + 20
    while time.monotonic() < until:
        producer.produce("t", b"v")
        assert producer.flush(20) == 0
        time.sleep(0.2)
    assert provider.asked["/token"] >= 2
    assert found.app.kafka.authentications["kafka", "OAUTHBEARER", "ok"] >= 3
    assert found.app.kafka.counters.accepted <= 2 + 1  # bootstrap, and the broker itself


# -- keys --------------------------------------------------------------------------------------------------------------


def logs_in(found: Secured, provider: Provider, within_ms: int = 20_000, **claims: Any) -> None:
    """Or raises KafkaTimeoutError."""
    config = of_kafka_python(found, lambda: provider.token(**claims))
    KafkaAdminClient(**config, bootstrap_timeout_ms=within_ms).close()


def test_a_new_key_is_found_at_once(start: Start, provider: Provider) -> None:
    """Who comes with its first token is let in, after the time that a look at the provider takes."""
    found = start()
    logs_in(found, provider)
    provider.keys["two"] = rsa.generate_private_key(65537, 2048)
    logs_in(found, provider, kid="two")
    processes = max(several_workers.WORKERS, 1)
    assert 2 <= provider.asked["/jwks"] <= 2 * processes  # each asks for itself
    assert {result for *_, result in found.app.kafka.authentications} == {"ok"}


def test_unknown_keys_do_not_wear_out_the_provider(start: Start, provider: Provider) -> None:
    found = start()
    logs_in(found, provider)
    begun_s = time.monotonic()
    provider.keys["evil"] = rsa.generate_private_key(65537, 2048)
    provider.document = provider.key_set().replace(b'"evil"', b'"other"')
    tokens = [provider.token(kid="evil") for _ in range(100)]

    async def one(given: str) -> None:
        config = python(found) | {"sasl_oauth_token_provider": AsyncTokens(lambda: given)}
        producer = AIOKafkaProducer(**config)
        try:
            with pytest.raises(KafkaConnectionError):
                await producer.start()
        finally:
            await producer.stop()

    async def run() -> None:
        await asyncio.gather(*map(one, tokens))

    asyncio.run(run())
    lasted_s = time.monotonic() - begun_s
    assert provider.asked["/jwks"] <= (2 + lasted_s // 10) * max(several_workers.WORKERS, 1)
    assert found.app.kafka.authentications["kafka", "OAUTHBEARER", "failed"] >= 100
    logs_in(found, provider)


def test_a_provider_that_hangs_holds_up_nobody(start: Start, provider: Provider) -> None:
    found = start()
    logs_in(found, provider)
    provider.hangs = True
    provider.keys["two"] = rsa.generate_private_key(65537, 2048)
    waits = Producer(by_callback(found, provider, kid="two"))
    waits.poll(0.5)
    deadline = time.monotonic() + 10
    while provider.asked["/jwks"] < 2:
        assert time.monotonic() < deadline
        waits.poll(0.1)
    begun_s = time.monotonic()
    logs_in(found, provider)
    assert time.monotonic() - begun_s < 3
    provider.hangs = False
    provider.go_on.set()
    waits.produce("t", b"v")
    assert waits.flush(30) == 0


@pytest.mark.parametrize("what", ["away", "large", "redirects", "another authority"])
def test_without_keys_nobody_is_let_in_and_it_says_so(
    start: Start, provider: Provider, authority: Authority, tmp_path_factory: pytest.TempPathFactory, what: str
) -> None:
    more: dict[str, Any] = {}
    if what == "away":
        more["jwks_url"] = "https://localhost:1/jwks"
    elif what == "large":
        provider.document = provider.key_set().replace(b"{", b" " * 1_000_000 + b"{", 1)
    elif what == "redirects":
        provider.redirects_to = "http://127.0.0.1:1/jwks"
    else:
        more["ca"] = Authority(tmp_path_factory.mktemp("other")).path
    found = start(**more)
    said = {
        "away": "refused", "large": "more than 65536 bytes", "redirects": "status 302",
        "another authority": "certificate is not trusted",
    }[what]  # fmt: skip
    deadline = time.monotonic() + 10
    while not (warnings := found.in_loop(found.app.access_tokens.warnings)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert said in warnings[0]
    with pytest.raises(KafkaTimeoutError):
        logs_in(found, provider, 1_000)


def test_keys_of_a_file(secured: Secure, provider: Provider, tmp_path: Any) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(provider.key_set())
    oauth = provider.settings(jwks_url=None, ca=None, jwks_file=str(file))
    found = secured("OAUTHBEARER", security={"super_users": ALICE, "oauth": oauth})
    logs_in(found, provider)
    provider.keys["two"] = rsa.generate_private_key(65537, 2048)
    file.write_bytes(provider.key_set())
    logs_in(found, provider, kid="two")
    assert provider.asked["/jwks"] == 0


def test_a_file_that_is_not_there_stops_the_start(provider: Provider, tmp_path: Any) -> None:
    oauth = provider.settings(jwks_url=None, ca=None, jwks_file=str(tmp_path / "none.json"))
    listeners = {"kafka": {"bind": "127.0.0.1:0", "sasl": ["OAUTHBEARER"]}}
    with (
        pytest.raises(StartError, match=r"none\.json"),
        Broker(config={"listeners": listeners, "security": {"oauth": oauth}}),
    ):
        pass
