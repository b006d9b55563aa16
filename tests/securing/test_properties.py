"""The file of `--command-config`: what it may say, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from halfmoon.securing.access_tokens import OauthLogin
from halfmoon.securing.properties import PLAINTEXT, Security, SecurityError, parse, properties, read

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
OAUTH = "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url=https://idp/token\n"
CREDENTIALS = (
    "sasl.oauthbearer.client.credentials.client.id=app\nsasl.oauthbearer.client.credentials.client.secret=s3cret\n"
)
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FILES = {
    "ca.pem": "-----BEGIN CERTIFICATE-----\nca", "key.pem": "-----BEGIN PRIVATE KEY-----\nkey",
    "chain.pem": "-----BEGIN CERTIFICATE-----\nchain",
    "both.pem": "-----BEGIN PRIVATE KEY-----\nkey\n-----BEGIN CERTIFICATE-----\nchain",
}  # fmt: skip


def parsed(text: str) -> Security:
    return parse(text, FILES.__getitem__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a : b c  \n", {"a": "b c  "}),
        ("a b", {"a": "b"}),
        ("# a=b\n! c\n\nd=", {"d": ""}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (r"a\=b=c\u00e9\n", {"a=b": "cé\n"}),
    ],
)
def test_the_format(text: str, expected: dict[str, str]) -> None:
    assert {name: found.value for name, found in properties(text).items()} == expected


@pytest.mark.parametrize(
    "login",
    [
        f'sasl.jaas.config={SCRAM} required username="alice" password="a;\\\\"b=c";',
        f'sasl.jaas.config={SCRAM} required \\\n  username=alice \\\n  password="a;\\\\"b=c";',
        'sasl.username=alice\nsasl.password=a;"b=c',
    ],
)
def test_logging_in(login: str) -> None:
    expected = Security("SASL_PLAINTEXT", "SCRAM-SHA-512", "alice", 'a;"b=c')
    assert parsed(LOGIN + login) == expected
    assert 'a;"b' not in repr(expected)


def test_a_delegation_token() -> None:
    found = parsed(f'{LOGIN}sasl.jaas.config={SCRAM} required username="id" password="hmac" tokenauth="true";')
    assert found.is_token


def test_keys_of_rocketmqs_protocol(tmp_path: Path) -> None:
    found = parsed("rocketmq.access.key=alice\nrocketmq.secret.key=s3cret")
    assert found == Security(access_key="alice", secret_key="s3cret")
    assert "s3cret" not in repr(found)
    for wrong, said in (
        ("rocketmq.access.key=alice", "rocketmq.access.key and rocketmq.secret.key belong together"),
        ("rocketmq.secret.key=s\nrocketmq.access.key=", "neither is empty"),
        ("rocketmq.acces.key=alice", "line 1: rocketmq.acces.key is unknown; did you mean rocketmq.access.key?"),
    ):
        with pytest.raises(ValueError, match=said.replace("?", r"\?")):
            parsed(wrong)
    file = tmp_path / "client.properties"
    file.write_text("rocketmq.access.key=alice\nrocketmq.secret.key=s3cret")
    file.chmod(0o644)
    warnings: list[str] = []
    read(file, warnings.append)
    assert warnings == [f"others may read {file}, which has a password or a key: chmod 600 it"]


def test_plain() -> None:
    found = parsed(
        "security.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="alice" password="secret";'
    )
    assert (found.protocol, found.mechanism, found.username, found.password) == (
        "SASL_SSL", "PLAIN", "alice", "secret",
    )  # fmt: skip
    assert found.encrypts


@pytest.mark.parametrize(("text", "expected"), [
    (CREDENTIALS, {}),
    ("sasl.oauthbearer.client.id=app\nsasl.oauthbearer.client.secret=s3cret\nsasl.oauthbearer.method=oidc\n"
     "sasl.oauthbearer.scope=a b\nhttps.ca.location=ca.pem", {"scope": "a b", "authorities": FILES["ca.pem"]}),
    (f'sasl.jaas.config={BEARER} required clientId="app" clientSecret="s3cret" scope="x" extension_pool="1" '
     "ssl.truststore.location=ca.pem;",
     {"scope": "x", "authorities": FILES["ca.pem"], "extensions": (("pool", "1"),)}),
    (f'sasl.jaas.config={BEARER} required clientId="app" clientSecret="s3cret" ssl.truststore.type="PEM" '
     'ssl.truststore.certificates="-----BEGIN X";', {"authorities": "-----BEGIN X"}),
    (CREDENTIALS + f'sasl.jaas.config={BEARER} required clientId="other";\nsasl.login.callback.handler.class=x', {}),
])  # fmt: skip
def test_access_tokens(text: str, expected: dict[str, Any]) -> None:
    warnings: list[str] = []
    found = parse(OAUTH + ENDPOINT + text, FILES.__getitem__, warnings.append)
    assert found.oauth == OauthLogin("https://idp/token", "app", "s3cret", **expected)
    assert "s3cret" not in repr(found) + repr(found.oauth)
    assert warnings == []


def test_a_token_in_a_file() -> None:
    endpoint = "sasl.oauthbearer.token.endpoint.url=file:///run/token"
    assert parsed(OAUTH + endpoint).oauth == OauthLogin("file:///run/token")


@pytest.mark.parametrize(("text", "said"), [
    ("acks=all", "line 1: acks has no effect here"),
    ("\ngroup.id=billing", "line 2: group.id has no effect here"),
    ("security.protocl.x=SSL", None),
    ("secruity.protocol=SSL", "line 1: secruity.protocol has no effect here; did you mean security.protocol?"),
    ("ssl.enabled.protocols=TLSv1.3", "line 1: ssl.enabled.protocols has no effect here"),
    ("sasl.kerberos.service.name=kafka", "line 1: sasl.kerberos.service.name has no effect here"),
    ("sasl.login.refresh.window.factor=0.8", "line 1: sasl.login.refresh.window.factor has no effect here"),
    ("security.providers=x", "line 1: security.providers has no effect here"),
])  # fmt: skip
def test_what_kafkas_clients_know_and_nobody_obeys_here(text: str, said: str | None) -> None:
    warnings: list[str] = []
    if said is None:
        with pytest.raises(ValueError, match="no property of Kafka's"):
            parse(text, warn=warnings.append)
        assert warnings == []
    else:
        assert parse(text, warn=warnings.append) == PLAINTEXT
        assert warnings == [said]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("ssl.truststore.type=PEM\nssl.truststore.location=ca.pem", {"authorities": FILES["ca.pem"]}),
        ("ssl.ca.location=ca.pem", {"authorities": FILES["ca.pem"]}),
        ("ssl.truststore.certificates=-----BEGIN \\\nX", {"authorities": "-----BEGIN X"}),
        ("ssl.keystore.type=PEM\nssl.keystore.location=both.pem\nssl.key.password=p",
         {"chain": FILES["both.pem"], "key": FILES["both.pem"], "key_password": "p"}),
        ("ssl.certificate.location=chain.pem\nssl.key.location=key.pem",
         {"chain": FILES["chain.pem"], "key": FILES["key.pem"]}),
        ("ssl.keystore.certificate.chain=c\nssl.keystore.key=k", {"chain": "c", "key": "k"}),
        ("ssl.endpoint.identification.algorithm=", {"checks_name": False}),
        ("ssl.endpoint.identification.algorithm=https", {}),
    ],
)  # fmt: skip
def test_tls(text: str, expected: dict[str, object]) -> None:
    assert parsed(f"security.protocol=SSL\n{text}") == Security("SSL", **expected)  # type: ignore[arg-type]


def test_nothing() -> None:
    assert parsed("") == PLAINTEXT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nsasl.mechanisme=PLAIN", "line 2: sasl.mechanisme is no property .* did you mean sasl.mechanism"),
        ("\n\nssl.truststore.locatoin=x", "line 3: ssl.truststore.locatoin is no .* did you mean ssl.truststore"),
        ("security.protcol=SSL", "line 1: security.protcol is no property of Kafka's; did you mean security.protocol"),
        (OAUTH, "sasl.oauthbearer.token.endpoint.url is missing"),
        (OAUTH + ENDPOINT.replace("https", "http"), "line 3: .*'http://idp/token', expected https://… or file:///…"),
        (OAUTH + ENDPOINT, "client.credentials.client.id and .*client.secret are missing"),
        (OAUTH + ENDPOINT + "sasl.oauthbearer.client.id=a", "client.credentials.client.id and .* are missing"),
        (OAUTH + ENDPOINT + CREDENTIALS + "sasl.oauthbearer.method=default", "line 6: .*method is 'default', exp"),
        (OAUTH + ENDPOINT + CREDENTIALS + "sasl.username=a", "line 6: sasl.username has no effect with sasl.mech"),
        (OAUTH + ENDPOINT + f"sasl.jaas.config={SCRAM} required;", "line 4: .* ScramLoginModule, and .*OAuthBearer"),
        (LOGIN + "sasl.username=a\nsasl.password=b\n" + ENDPOINT, "line 5: .* no effect with sasl.mechanism=SCR"),
        ("security.protocol=TLS", "line 1: security.protocol is 'TLS', expected PLAINTEXT, SSL"),
        ("security.protocol=SSL\nsecurity.protocol=SSL", "line 2: security.protocol is there twice"),
        ("security.protocol=SASL_SSL", "sasl.mechanism is missing: PLAIN, SCRAM"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "line 2: sasl.mechanism is 'GSSAPI'"),
        (LOGIN, "sasl.jaas.config with username and password is missing"),
        (LOGIN + "sasl.username=alice", "sasl.jaas.config with username and password is missing"),
        (LOGIN + f'sasl.jaas.config={PLAIN} required username="a" password="b";', "line 3: .* PlainLoginModule, and "),
        (LOGIN + "sasl.jaas.config=nonsense", "line 3: sasl.jaas.config is not understood"),
        (LOGIN + f'sasl.jaas.config={SCRAM} required username="a;', "line 3: .* expected NAME=VALUE"),
        (LOGIN + f'sasl.jaas.config={SCRAM} required username="a" password="b";\nsasl.username=c', "line 4: .* no eff"),
        ("sasl.username=alice", "line 1: sasl.username has no effect with security.protocol=PLAINTEXT"),
        ("ssl.ca.location=ca.pem", "line 1: ssl.ca.location has no effect with security.protocol=PLAINTEXT"),
        ("security.protocol=SSL\nssl.truststore.location=t.jks\nssl.truststore.type=JKS",
         "line 3: t.jks is JKS, expected PEM: keytool -importkeystore .* && openssl pkcs12 -in t.p12 -nodes -out t"),
        ("security.protocol=SSL\nssl.keystore.type=PKCS12\nssl.keystore.location=k.p12",
         "line 2: k.p12 is PKCS12, expected PEM: openssl pkcs12 -in k.p12 -nodes -out k.pem"),
        ("security.protocol=SSL\nssl.truststore.password=x", "line 2: ssl.truststore.password: PEM has no password"),
        ("security.protocol=SSL\nssl.certificate.location=chain.pem", "needs its private key"),
        ("security.protocol=SSL\nssl.ca.location=ca.pem\nssl.ca.pem=x", "exclude each other"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=x", "line 2: .* is https, or empty"),
    ],
)  # fmt: skip
def test_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parsed(text)


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    file.write_text(f"security.protocol=SSL\nssl.truststore.location={store}\n")
    with pytest.raises(SecurityError, match=r"client.properties: .*store.jks is no PEM, expected PEM: keytool"):
        read(file)
    store.write_text(f"# Autorität\n{FILES['ca.pem']}")
    assert read(file, pytest.fail).authorities == f"# Autoritt\n{FILES['ca.pem']}"
    file.write_text(LOGIN + "sasl.username=a\nsasl.password=b")
    file.chmod(0o644)
    noted: list[str] = []
    read(file, noted.append)
    assert [each.endswith("which has a password or a key: chmod 600 it") for each in noted] == [True]
    file.write_bytes(b"\xff")
    with pytest.raises(SecurityError, match="not UTF-8"):
        read(file)
