"""What the admin port tells whom: names are data."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from halfmoon.auth import plain
from halfmoon.plugin import hookimpl
from tests.security.acting import rule
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured
from tests.security.provider import Provider

HTTP = {"bind": "127.0.0.1:0"}
RULES = "RULE:.*CN=([^,]+).*/$1/"
ROOT = {"super_users": ["User:root"]}


class Web:
    """Asks one broker."""

    def __init__(self, secured: Secured, **more: Any) -> None:
        self._address = secured.app.http_address
        self._context = more.get("context")

    def ask(self, path: str, login: str | None = None, **headers: str) -> tuple[int, str, dict[str, str]]:
        """`login`: name:password."""
        if login is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        host, port = self._address
        made = (
            http.client.HTTPConnection(host, port, timeout=20)
            if self._context is None
            else http.client.HTTPSConnection(host, port, timeout=20, context=self._context)
        )
        try:
            made.request("GET", path, headers=headers)
            answer = made.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())
        finally:
            made.close()


def allow(found: Secured, principal: str, right: str = "describe cluster") -> None:
    acls = found.app.node.acls
    found.in_loop(lambda: acls.change([rule(principal, right)]))


def test_without_authentication_everybody_is_told_everything(secured: Secure) -> None:
    found = secured(http=HTTP, security={"authorizer": "none"})
    web = Web(found)
    assert web.ask("/metrics")[0] == 200
    assert "security.authorizer is none" in web.ask("/healthz")[1]


def test_with_an_authorizer_strangers_are_told_whether_it_works(secured: Secure) -> None:
    found = secured(http=HTTP, security=ROOT | {"allow_everyone_if_no_acl_found": False})
    web = Web(found)
    status, body, headers = web.ask("/metrics")
    assert (status, "WWW-Authenticate" in headers) == (403, False)
    assert "halfmoon_" not in body
    assert web.ask("/healthz")[:2] == (200, "ok\n")
    found.app.health = lambda: ["topic 'secret' is damaged"]
    assert web.ask("/healthz")[:2] == (503, "unhealthy\n")
    status, body, _ = web.ask("/healthz", Accept="application/json")
    assert (status, json.loads(body)) == (503, {"status": "unhealthy"})
    allow(found, "ANONYMOUS")
    assert "secret" in web.ask("/healthz")[1]
    assert web.ask("/metrics")[0] == 200


def test_by_password(secured: Secure) -> None:
    found = secured(http=HTTP | {"auth": ["basic"]}, security=ROOT)
    for name in ("root", "alice"):
        found.user(name, "pass:word")
    web = Web(found)
    status, _, headers = web.ask("/metrics")
    assert (status, headers["WWW-Authenticate"].split()[0]) == (401, "Basic")
    for login in ("root:wrong", "nobody:pass:word", "root", ":", "root:", "x" * 2000 + ":y"):
        assert web.ask("/metrics", login)[0] == 401
        assert web.ask("/healthz", login)[:2] == (200, "ok\n")
    for given in ("Bearer x", "Basic !", "Basic", "", "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode()):
        assert web.ask("/metrics", Authorization=given)[0] == 401
    status, body, _ = web.ask("/metrics", "root:pass:word")
    assert status == 200
    counted = [line for line in body.splitlines() if line.startswith("halfmoon_authentications_total{")]
    assert any("http" in line and "failed" in line and line.endswith((" 17", " 17.0")) for line in counted)
    assert web.ask("/metrics", "alice:pass:word")[0] == 403
    allow(found, "alice")
    assert web.ask("/metrics", "alice:pass:word")[0] == 200
    found.in_loop(lambda: found.app.node.users.set_flags("alice", disabled=True))
    assert web.ask("/metrics", "alice:pass:word")[0] == 401


def test_passwords_are_verified_a_few_at_a_time(secured: Secure, monkeypatch: pytest.MonkeyPatch) -> None:
    found = secured(http=HTTP | {"auth": ["basic"]}, security=ROOT)
    found.user("root", "secret")
    web = Web(found)
    at_work, most, lock, go = [0], [0], threading.Lock(), threading.Event()
    has_password = plain.has_password

    def counted(*args: Any) -> bool:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            if most[0] == 2:
                go.set()
        go.wait(20)
        try:
            return has_password(*args)
        finally:
            with lock:
                at_work[0] -= 1

    monkeypatch.setattr(plain, "has_password", counted)
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(web.ask("/metrics", "root:secret")[0])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 8
    assert most[0] == 2


@pytest.mark.parametrize("auth", [[], ["mtls"], ["basic", "mtls"]])
def test_by_certificate(secured: Secure, authority: Authority, auth: list[str]) -> None:
    tls = authority.pair("web") | {"client_ca": authority.path, "client_auth": "request", "principal_rules": RULES}
    found = secured(http=HTTP | {"tls": tls, "auth": auth}, security=ROOT)
    shown = Web(found, context=authority.client(authority.pair("prometheus")))
    stranger = Web(found, context=authority.client())
    assert stranger.ask("/metrics")[0] == (401 if "basic" in auth else 403)
    assert shown.ask("/metrics")[0] == 403
    allow(found, "prometheus")
    assert shown.ask("/metrics")[0] == 200
    assert stranger.ask("/metrics")[0] == (401 if "basic" in auth else 403)


def test_whose_certificate_makes_no_user_sees_nothing(secured: Secure, authority: Authority) -> None:
    rules = "RULE:^CN=nobody$/nobody/"
    tls = authority.pair("web") | {"client_ca": authority.path, "client_auth": "request", "principal_rules": rules}
    found = secured(http=HTTP | {"tls": tls}, security=ROOT)
    shown = Web(found, context=authority.client(authority.pair("prometheus")))
    assert shown.ask("/metrics")[0] == 403


@pytest.mark.parametrize("name", ["local-admin", "mallory"])
def test_a_certificate_lets_nobody_in_who_is_disabled_or_the_broker_itself(
    secured: Secure, authority: Authority, name: str
) -> None:
    tls = authority.pair("web") | {"client_ca": authority.path, "client_auth": "request", "principal_rules": RULES}
    found = secured(http=HTTP | {"tls": tls}, security=ROOT)
    found.user("mallory", "secret")
    allow(found, "mallory")
    found.in_loop(lambda: found.app.node.users.set_flags("mallory", disabled=True))
    assert Web(found, context=authority.client(authority.pair(name))).ask("/metrics")[0] == 403


def test_a_certificate_counts_only_where_it_is_to(secured: Secure, authority: Authority) -> None:
    tls = authority.pair("web") | {"client_ca": authority.path, "client_auth": "request", "principal_rules": RULES}
    found = secured(http=HTTP | {"tls": tls, "auth": ["basic"]}, security=ROOT)
    allow(found, "prometheus")
    shown = Web(found, context=authority.client(authority.pair("prometheus")))
    assert shown.ask("/metrics")[0] != 200


class NoOpinion:
    api_version = 1

    @hookimpl
    def halfmoon_authorize(self, operation: str) -> bool | None:
        return None


@pytest.mark.parametrize("plugins", [[], [NoOpinion()]])
def test_without_access_rules_those_are_told_everything_who_say_who_they_are(
    secured: Secure, plugins: list[Any]
) -> None:
    found = secured(http=HTTP | {"auth": ["basic"]}, security={"authorizer": "none"}, plugins=plugins)
    found.user("alice", "secret")
    web = Web(found)
    assert web.ask("/metrics")[0] == 401
    assert web.ask("/healthz")[:2] == (200, "ok\n")
    assert web.ask("/metrics", "alice:secret")[0] == 200


# -- access tokens -----------------------------------------------------------------------------------------------------


def by_token(web: Web, token: str) -> tuple[int, str, dict[str, str]]:
    return web.ask("/metrics", Authorization=f"Bearer {token}")


def test_by_token(secured: Secure, provider: Provider) -> None:
    found = secured(http=HTTP | {"auth": ["bearer"]}, security=ROOT | {"oauth": provider.settings()})
    web = Web(found)
    status, _, headers = web.ask("/metrics")
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="halfmoon"')
    assert by_token(web, provider.token(sub="root"))[0] == 200
    status, body, _ = web.ask("/metrics", Authorization=f"bearer  {provider.token(sub='root')}")
    assert status == 200
    assert 'halfmoon_oauth_key_fetches_total{result="ok"} 1' in body
    assert any('mechanism="BEARER",result="ok"' in line for line in body.splitlines())
    assert by_token(web, provider.token())[0] == 403
    allow(found, "alice")
    assert by_token(web, provider.token())[0] == 200
    for wrong in (
        provider.token(aud="other"), provider.token(exp=1), provider.token()[:-5], "", "a b", "x" * 4_000,
    ):  # fmt: skip
        assert by_token(web, wrong)[0] == 401
    assert web.ask("/metrics", "root:secret")[0] == 401, "passwords are not taken"
    assert web.ask("/healthz", Authorization="Bearer x")[:2] == (200, "ok\n")


def test_by_token_of_a_new_key(secured: Secure, provider: Provider) -> None:
    found = secured(http=HTTP | {"auth": ["basic", "bearer"]}, security=ROOT | {"oauth": provider.settings()})
    found.user("root", "secret")
    web = Web(found)
    assert by_token(web, provider.token(sub="root"))[0] == 200
    provider.keys["two"] = rsa.generate_private_key(65537, 2048)
    assert by_token(web, provider.token("two", sub="root"))[0] == 200
    provider.keys["three"] = rsa.generate_private_key(65537, 2048)
    assert by_token(web, provider.token("three", sub="root"))[0] == 401, "it was asked just now"
    assert provider.asked["/jwks"] == 2
    assert web.ask("/metrics", "root:secret")[0] == 200
    assert web.ask("/metrics")[0] == 401
    assert [value.split()[0] for _, value in found.app.http.visitors.challenge] == ["Basic", "Bearer"]
