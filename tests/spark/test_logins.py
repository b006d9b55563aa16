"""The pipeline logs in by access token, or by certificate. The driver's librdkafka and Spark's Kafka client do so for
themselves. The user has the rights that docs/pipeline.md names; by password: test_secured.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from halfmoon.pipeline import Brokers, PipelineError, admin, read_stream, read_topic, write_topic
from halfmoon.securing import Security
from tests.security.acting import rule
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured
from tests.security.conftest import authority as authority
from tests.security.conftest import provider as provider
from tests.security.conftest import secured as secured
from tests.security.provider import Provider

Login = Callable[..., Brokers]


@pytest.fixture
def found(secured: Secure, provider: Provider) -> Secured:
    return secured("OAUTHBEARER", tls=True, security={"oauth": provider.settings()})


@pytest.fixture
def login(found: Secured, provider: Provider, tmp_path: Path) -> Login:
    def made(*rights: str, secret: str = "client-secret") -> Brokers:
        found.in_loop(lambda: found.app.node.acls.change([rule("client", right) for right in rights]))
        file = tmp_path / "client.properties"
        file.touch(0o600)
        file.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
            f"ssl.truststore.location={found.authority.path}\nhttps.ca.location={found.authority.path}\n"
            f"sasl.oauthbearer.token.endpoint.url={provider.url}/token\nsasl.oauthbearer.scope=kafka\n"
            "sasl.oauthbearer.client.credentials.client.id=client\n"
            f"sasl.oauthbearer.client.credentials.client.secret={secret}\n"
        )
        there = Brokers(found.broker.bootstrap_servers, command_config=file)
        file.unlink()  # Executors are elsewhere.
        return there

    return made


def test_reading_and_writing_by_token(spark, found: Secured, provider: Provider, login: Login, tmp_path: Path) -> None:
    there = login("create topic orders", "write topic orders", "read topic orders")
    write_topic(spark.range(20).selectExpr("CAST(id AS STRING) AS value"), "orders", bootstrap=there)
    frame = read_topic(spark, "orders", bootstrap=there)
    assert sorted(int(bytes(row["value"])) for row in frame.collect()) == list(range(20))
    stream = read_stream(spark, "orders", bootstrap=there)
    query = (
        stream.writeStream.format("memory").queryName("by_token").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "kept")).start()
    )  # fmt: skip
    query.awaitTermination()
    assert spark.table("by_token").count() == 20
    assert {(mechanism, result) for _, mechanism, result in found.app.kafka.authentications} == {("OAUTHBEARER", "ok")}
    assert all(body["scope"] == ["kafka"] for body in provider.bodies)


def test_reading_and_writing_by_certificate(spark, secured: Secure, authority: Authority) -> None:
    certificates = {"client_ca": authority.path, "client_auth": "require", "principal_rules": "RULE:^CN=(.*?),.*$/$1/"}
    found = secured(listeners={"kafka": {"bind": "127.0.0.1:0", "tls": authority.pair("broker") | certificates}})
    rights = ("create topic orders", "write topic orders", "read topic orders")
    found.in_loop(lambda: found.app.node.acls.change([rule("client", right) for right in rights]))
    pair = authority.pair("client")
    key = load_pem_private_key(Path(pair["key"]).read_bytes(), None)
    security = Security(
        "SSL", authorities=Path(authority.path).read_text(), chain=Path(pair["cert"]).read_text(),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    )  # fmt: skip
    there = Brokers(found.broker.bootstrap_servers, security=security)
    write_topic(spark.range(20).selectExpr("CAST(id AS STRING) AS value"), "orders", bootstrap=there)
    assert read_topic(spark, "orders", bootstrap=there).count() == 20


def test_the_secret_is_not_shown(spark, login: Login, capfd: pytest.CaptureFixture[str]) -> None:
    there = login("create topic orders", "write topic orders", "read topic orders")
    write_topic(spark.range(1).selectExpr("CAST(id AS STRING) AS value"), "orders", bootstrap=there)
    read_topic(spark, "orders", bootstrap=there).explain(extended=True)
    said = "".join(capfd.readouterr()) + repr(there)
    assert "orders" in said
    assert "client-secret" not in said


def test_what_is_wrong_is_said(spark, login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    there = login("read topic other")
    with pytest.raises(PipelineError, match=r"(?i)authoriz"):
        read_topic(spark, "orders", bootstrap=there)
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_S", 2)
    with pytest.raises(PipelineError, match=r"cannot log in at .*invalid_client"):
        read_topic(spark, "orders", bootstrap=login("write topic other", secret="wrong"))
