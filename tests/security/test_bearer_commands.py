"""Client commands that log in by access tokens, which they get themselves."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from halfmoon.securing import access_tokens
from halfmoon.securing.access_tokens import OauthLogin, TokenSource
from halfmoon.securing.errors import SecurityError
from tests.cli.conftest import CommandLine
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured
from tests.security.provider import Provider


@pytest.fixture
def found(secured: Secure, provider: Provider) -> Secured:
    return secured("OAUTHBEARER", tls=True, security={"super_users": ["User:client"], "oauth": provider.settings()})


def client_properties(folder: Path, found: Secured, *lines: str) -> str:
    file = folder / "client.properties"
    file.touch(0o600)
    first = (
        "security.protocol=SASL_SSL",
        "sasl.mechanism=OAUTHBEARER",
        f"ssl.truststore.location={found.authority.path}",
    )
    file.write_text("\n".join((*first, *lines)))
    return str(file)


def credentials(provider: Provider, authority: Authority, secret: str = "client-secret") -> tuple[str, ...]:
    return (
        f"sasl.oauthbearer.token.endpoint.url={provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id=client",
        f"sasl.oauthbearer.client.credentials.client.secret={secret}",
        "sasl.oauthbearer.scope=kafka",
        f"https.ca.location={authority.path}",
    )


def test_every_command_logs_in(
    found: Secured, provider: Provider, authority: Authority, cli: CommandLine, tmp_path: Path
) -> None:
    file = client_properties(tmp_path, found, *credentials(provider, authority), "acks=all")
    at = ("-b", found.broker.bootstrap_servers, "--command-config", file)
    done = cli.ok("topic", "create", "orders", *at)
    assert f"halfmoon: {file}: line 9: acks has no effect here" in done.err
    cli.ok("produce", "orders", "one", *at)
    assert cli.ok("consume", "orders", "-e", "-f", "%s", *at).out == "one"
    assert {result for *_, result in found.app.kafka.authentications} == {"ok"}
    assert provider.bodies[0]["scope"] == ["kafka"]


def test_a_token_in_a_file(found: Secured, provider: Provider, cli: CommandLine, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(provider.token(sub="client") + "\n")
    file = client_properties(tmp_path, found, f"sasl.oauthbearer.token.endpoint.url=file://{token}")
    at = ("-b", found.broker.bootstrap_servers, "--command-config", file)
    cli.ok("topic", "list", *at)
    token.write_text(provider.token(sub="client", aud="other"))
    assert "SASL_AUTHENTICATION_FAILED" in cli("topic", "list", *at).failed_with(1)
    token.unlink()
    assert f"no access token from {token}: No such file" in cli("topic", "list", *at).failed_with(1)


def test_what_the_provider_says_of_it(
    found: Secured, provider: Provider, authority: Authority, cli: CommandLine, tmp_path: Path
) -> None:
    at = ("-b", found.broker.bootstrap_servers, "--command-config")
    wrong = client_properties(tmp_path, found, *credentials(provider, authority, "wrong"))
    for command in (("topic", "list"), ("produce", "t", "x")):
        said = cli(*command, *at, wrong).failed_with(1)
        assert said.startswith("halfmoon: no access token from https://localhost:")
        assert "status 401" in said
        assert "wrong" not in said
    no_authority = client_properties(tmp_path, found, *credentials(provider, authority)[:-1])
    assert "certificate is not trusted" in cli("topic", "list", *at, no_authority).failed_with(1)


def test_a_token_is_asked_for_again_before_it_ends(
    provider: Provider, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(access_tokens.time, "monotonic", lambda: now_s[0])
    source = TokenSource(
        OauthLogin(f"{provider.url}/token", "client", "client-secret", authorities=Path(authority.path).read_text())
    )
    threads = [threading.Thread(target=source.token) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert provider.asked["/token"] == 1, "all connections of a command have one"
    now_s[0] += 0.79 * provider.lifetime_s
    source.token()
    assert provider.asked["/token"] == 1
    now_s[0] += 0.02 * provider.lifetime_s
    source.token()
    assert provider.asked["/token"] == 2


def test_an_answer_that_is_no_token(provider: Provider, authority: Authority) -> None:
    source = TokenSource(
        OauthLogin(f"{provider.url}/jwks", "client", "client-secret", authorities=Path(authority.path).read_text())
    )
    provider.token = lambda *kid, **claims: 5  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(SecurityError, match="no access token from https://localhost"):
        source.token()
