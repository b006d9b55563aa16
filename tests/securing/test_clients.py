"""`Security` as each library takes it: what it says, and that the library understands it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaException, Producer
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from halfmoon.securing.access_tokens import OauthLogin
from halfmoon.securing.clients import as_file, context, java, kafka_python, librdkafka, rocketmq
from halfmoon.securing.properties import PLAINTEXT, Security, SecurityError, parse
from tests.security.authority import Authority

PASSWORD = 'a;"b\\=c\nd #é'


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def mutual(authority: Authority) -> Security:
    """With a certificate of the client's, and comments around all of them."""
    pair = authority.pair("client")
    key = load_pem_private_key(Path(pair["key"]).read_bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    pems = (Path(authority.path).read_text(), Path(pair["cert"]).read_text(), pkcs8)
    texts = [f"# of us\n{pem}# ä\n" for pem in pems]
    return Security("SSL", authorities=texts[0] * 2, chain=texts[1], key=texts[1] + texts[2])


@pytest.mark.parametrize("security", [
    Security("SSL", authorities="nonsense"), Security("SSL", authorities="ä"),
    Security("SSL", authorities="-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
    Security("SSL", chain="nonsense", key="nonsense"),
])  # fmt: skip
def test_what_is_no_certificate(security: Security) -> None:
    with pytest.raises(SecurityError, match=r"client\.properties: a certificate or its key"):
        context(security)


def test_a_key_with_a_password(authority: Authority) -> None:
    """It is never asked for at the terminal."""
    pair = authority.pair("client")
    key = load_pem_private_key(Path(pair["key"]).read_bytes(), None)
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"right")).decode()
    chain = Path(pair["cert"]).read_text()
    context(Security("SSL", chain=chain, key=sealed, key_password="right"))
    with pytest.raises(SecurityError, match="a certificate or its key"):
        context(Security("SSL", chain=chain, key=sealed, key_password="wrong"))
    with pytest.raises(SecurityError, match=r"ssl\.key\.password"):
        context(Security("SSL", chain=chain, key=sealed))


def test_a_token_is_not_for_kafka_python() -> None:
    with pytest.raises(SecurityError, match="delegation token"):
        kafka_python(Security("SASL_SSL", "SCRAM-SHA-512", "id", "hmac", is_token=True))
    with pytest.raises(SecurityError, match="delegation token"):
        librdkafka(Security("SASL_SSL", "SCRAM-SHA-512", "id", "hmac", is_token=True))


def test_nothing_is_said_of_plaintext() -> None:
    assert java(PLAINTEXT) == {}
    assert librdkafka(PLAINTEXT) == {}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("is_token", [False, True])
def test_what_java_gets_is_a_file_that_says_the_same(mutual: Security, mechanism: str, is_token: bool) -> None:
    said = Security(
        "SASL_SSL", mechanism, "alice", PASSWORD, is_token, authorities=mutual.authorities, chain=mutual.chain,
        key=mutual.key, key_password="p", checks_name=False,
    )  # fmt: skip
    again = parse(as_file(java(said)))
    assert (again.protocol, again.mechanism, again.username, again.password) == (
        "SASL_SSL", mechanism, "alice", PASSWORD
    )  # fmt: skip
    assert (again.is_token, again.key_password, again.checks_name) == (is_token, "p", False)
    assert again.authorities.count("BEGIN CERTIFICATE") == 2
    assert "#" not in again.authorities + again.chain + again.key
    assert again.key.count("BEGIN") == 1


def test_java_reads_only_pkcs8(authority: Authority, mutual: Security) -> None:
    key = load_pem_private_key(Path(authority.pair("client")["key"]).read_bytes(), None)
    old = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    said = Security("SSL", chain=mutual.chain, key=old)
    with pytest.raises(SecurityError, match="openssl pkcs8 -topk8"):
        java(said)
    librdkafka(said)
    with pytest.raises(SecurityError, match="no PEM"):
        java(Security("SSL", chain=mutual.chain, key="nonsense"))


def test_librdkafka_takes_it(mutual: Security) -> None:
    settings = librdkafka(mutual)
    producer = Producer(_quiet(settings))
    assert producer.flush(0) == 0
    with pytest.raises(KafkaException):
        Producer(_quiet(settings | {"ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----"}))
    unchecked = librdkafka(Security("SSL", authorities=mutual.authorities, checks_name=False))
    assert unchecked["ssl.endpoint.identification.algorithm"] == "none"


def _quiet(settings: dict[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings}


def test_where_access_tokens_come_from(authority: Authority) -> None:
    authorities = Path(authority.path).read_text()
    login = OauthLogin("https://idp/token", "app", PASSWORD, "a b", authorities, (("pool", "1"), ("cluster", "x")))
    said = Security("SASL_SSL", "OAUTHBEARER", oauth=login, authorities=authorities)
    assert parse(as_file(java(said))) == said
    settings = librdkafka(said)
    assert settings["sasl.oauthbearer.extensions"] == "pool=1,cluster=x"
    assert settings["https.ca.pem"].count("BEGIN CERTIFICATE") == 1
    Producer(_quiet(settings)).flush(0)
    with pytest.raises(KafkaException, match="oidc"):
        Producer(_quiet({**settings, "sasl.oauthbearer.client.secret": ""}))


def test_an_access_token_in_a_file() -> None:
    security = Security("SASL_SSL", "OAUTHBEARER", oauth=OauthLogin("file:///run/token"))
    settings = kafka_python(security)
    assert settings["sasl_mechanism"] == "OAUTHBEARER"
    assert settings["sasl_oauth_token_provider"].extensions() == {}
    assert parse(as_file(java(security))) == security
    with pytest.raises(SecurityError, match="no token from a file"):
        librdkafka(security)


def test_rocketmqs_clients(authority: Authority) -> None:
    assert rocketmq(PLAINTEXT) == {}
    signed = Security(access_key="alice", secret_key="s")
    assert rocketmq(signed) == {"access_key": "alice", "secret_key": "s"}
    encrypted = rocketmq(Security("SSL", authorities=Path(authority.path).read_text()))
    assert [*encrypted] == ["tls"]
    assert len(encrypted["tls"].get_ca_certs()) == 1
    login = Security("SASL_PLAINTEXT", "PLAIN", "alice", "s")
    with pytest.raises(SecurityError, match=r"no SASL: rocketmq\.access\.key and rocketmq\.secret\.key are missing"):
        rocketmq(login)
    assert rocketmq(msgspec.structs.replace(login, access_key="alice", secret_key="s")) == rocketmq(signed)
