"""Java's clients log in by access tokens, which they get from a provider by its client's id and secret."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.java_programs import jars, properties
from tests.security.conftest import Secure, Secured
from tests.security.conftest import authority as authority
from tests.security.conftest import provider as provider
from tests.security.conftest import secured as secured
from tests.security.provider import Provider

pytestmark = pytest.mark.interop
BEARER = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture
def found(secured: Secure, provider: Provider) -> Secured:
    return secured("OAUTHBEARER", tls=True, security={"super_users": ["User:client"], "oauth": provider.settings()})


def client_properties(folder: Path, found: Secured, provider: Provider, secret: str = "client-secret") -> str:
    """As docs/security.md has them, and the certificate's authority for the token endpoint, which is a test's."""
    ca = found.authority.path
    return str(properties(folder / "client.properties", {
        "security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": ca,
        "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.login.callback.handler.class": f"{BEARER}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.client.credentials.client.id": "client",
        "sasl.oauthbearer.client.credentials.client.secret": secret,
        "sasl.jaas.config": f'{BEARER}.OAuthBearerLoginModule required ssl.truststore.type="PEM" '
                            f'ssl.truststore.location="{ca}" extension_traceId="12";',
        # Tokens are renewed as late as they allow.
        "sasl.login.refresh.min.period.seconds": 1, "sasl.login.refresh.buffer.seconds": 0,
        "sasl.login.retry.backoff.max.ms": 200,
    }))  # fmt: skip


def java(name: str, *arguments: str, allowed: str) -> subprocess.CompletedProcess[str]:
    """`allowed`: the token endpoint, which Kafka's clients ask only where the machine's owner says so."""
    return subprocess.run(
        [
            "java", "-Xmx256m", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}",
            "-cp", f"{jars('kafka')}/*", f"org.apache.kafka.tools.{name}", *arguments,
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.timeout(180)
def test_a_producer_logs_in_again_and_again(found: Secured, provider: Provider, tmp_path: Path) -> None:
    provider.lifetime_s = 4
    file = client_properties(tmp_path, found, provider)
    done = java(
        "ProducerPerformance", "--bootstrap-server", found.broker.bootstrap_servers, "--command-config", file,
        "--topic", "t", "--num-records", "100", "--record-size", "10", "--throughput", "10",
        allowed=f"{provider.url}/token",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-3_000:]
    assert "100 records sent" in done.stdout
    counts = found.app.kafka.authentications
    assert counts["kafka", "OAUTHBEARER", "ok"] >= 2 + 2, "of two connections, one of which lasts ten seconds"
    assert counts["kafka", "OAUTHBEARER", "failed"] == 0
    assert provider.asked["/token"] >= 2


@pytest.mark.timeout(120)
def test_a_token_for_somebody_else_is_an_authentication_error(
    found: Secured, provider: Provider, tmp_path: Path
) -> None:
    token = provider.token
    provider.token = lambda *kid, **claims: token(*kid, **claims | {"aud": "other"})  # type: ignore[method-assign]
    file = client_properties(tmp_path, found, provider)
    done = java(
        "TopicCommand", "--bootstrap-server", found.broker.bootstrap_servers, "--command-config", file, "--list",
        allowed=f"{provider.url}/token",
    )  # fmt: skip
    assert done.returncode != 0
    assert "SaslAuthenticationException" in done.stdout + done.stderr
    assert "authentication failed with SASL mechanism OAUTHBEARER" in done.stdout + done.stderr
    assert {result for *_, result in found.app.kafka.authentications} == {"failed"}
