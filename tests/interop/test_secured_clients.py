"""Clients that are programs of their own, at listeners that ask who somebody is: kcat, franz-go, Sarama, Java's.

Each logs in in every way that it has, sends ten messages to a topic and reads them in a group. Access rules allow just
that, and to alice alone: so whoever gets through is her, by password, token or certificate. Clients of Python are in
tests/security/test_clients.py and test_bearer_clients.py, Java's with tokens in test_bearer.py; docs/security.md has
the table.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from halfmoon.securing.clients import as_file, java
from halfmoon.securing.properties import Security
from tests.fuzz.process import eventually
from tests.interop.java_programs import jars
from tests.security.acting import rule
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured
from tests.security.conftest import authority as authority
from tests.security.conftest import provider as provider
from tests.security.conftest import secured as secured
from tests.security.provider import Provider

TOPIC, GROUP, MESSAGES = "orders", "billing", 10
RIGHTS = (f"create topic {TOPIC}", f"write topic {TOPIC}", f"read topic {TOPIC}", f"read group {GROUP}")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WELL = [f"sent {MESSAGES}", f"received {MESSAGES}"]
KCATS_WORDS = {
    "SASL authentication error": "authentication", "Topic authorization failed": "topic",
    "is not allowed to describe group": "group",
}  # fmt: skip
"""By what it prints: librdkafka's words for an error code, or those of the broker where it sends some."""
JAVAS_WORDS = {
    "SaslAuthenticationException": "authentication", "TopicAuthorizationException": "topic",
    "GroupAuthorizationException": "group",
}  # fmt: skip
PROGRAM = Path(__file__).parent / "go" / "secured"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@dataclass
class Login:
    mechanism: str = ""
    password: str = ""
    token: str = ""
    pair: dict[str, str] | None = None
    """Files with a certificate and its key."""


class Go:
    """tests/interop/go/secured."""

    def __init__(self, program: str, library: str) -> None:
        self._command = [program, library]

    def __call__(self, found: Secured, login: Login) -> list[str]:
        options = {
            "servers": found.broker.bootstrap_servers, "topic": TOPIC, "group": GROUP, "mechanism": login.mechanism,
            "user": "alice", "password": login.password, "token": login.token,
            "ca": found.authority.path if found.tls else "", **(login.pair or {}),
        }  # fmt: skip
        command = [*self._command, *(f"-{name}={value}" for name, value in options.items())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        lines = done.stdout.splitlines()
        assert (done.returncode == 0) == (lines == WELL), done.stdout + done.stderr[-2_000:]
        return lines


class Kcat:
    """Says what the program of Go says."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __call__(self, found: Secured, login: Login, more: Mapping[str, str] | None = None) -> list[str]:
        settings = {"bootstrap.servers": found.broker.bootstrap_servers, "message.timeout.ms": "10000", **(more or {})}
        if found.tls:
            settings["ssl.ca.location"] = found.authority.path
        if login.mechanism:
            settings |= {
                "security.protocol": "SASL_SSL" if found.tls else "SASL_PLAINTEXT", "sasl.mechanism": login.mechanism,
                "sasl.username": "alice", "sasl.password": login.password,
            }  # fmt: skip
        if login.pair is not None:
            settings |= {
                "security.protocol": "SSL", "ssl.certificate.location": login.pair["cert"],
                "ssl.key.location": login.pair["key"],
            }  # fmt: skip
        values = "".join(f"value {n}\n" for n in range(MESSAGES))
        lines: list[str] = []
        for arguments, stdin, well in (
            (["-P", "-t", TOPIC], values, f"sent {MESSAGES}"),
            (["-X", "auto.offset.reset=earliest", "-c", str(MESSAGES), "-G", GROUP, TOPIC], "", f"received {MESSAGES}"),
        ):
            given = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
            command = [self._program, *given, *arguments]
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode != 0:
                (refused,) = {kind for words, kind in KCATS_WORDS.items() if words in done.stderr}
                return [*lines, f"refused {refused}"]
            assert done.stdout == ("" if stdin else values)
            lines.append(well)
        return lines


class Java:
    """By Kafka's own tools. Says what the program of Go says."""

    TOOLS = "org.apache.kafka.tools"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*"]

    def __call__(self, found: Secured, login: Login) -> list[str]:
        text = Path(found.authority.path).read_text() if found.tls else ""
        protocol = ("SASL_" if login.mechanism else "") + ("SSL" if found.tls else "PLAINTEXT")
        chain, key = map(self._pem, ((login.pair or {}).get("cert"), (login.pair or {}).get("key")))
        security = Security(protocol, login.mechanism, "alice", login.password, authorities=text, chain=chain, key=key)
        file = self._folder / "client.properties"
        file.write_text(as_file({**java(security), "max.block.ms": "20000", "auto.offset.reset": "earliest"}))
        at = ("--bootstrap-server", found.broker.bootstrap_servers, "--command-config", str(file), "--topic", TOPIC)
        count = ("--num-records", str(MESSAGES))
        lines: list[str] = []
        for tool, arguments, well in (
            ("ProducerPerformance", ("--record-size", "10", "--throughput", "-1"), f"sent {MESSAGES}"),
            ("ConsumerPerformance", ("--group", GROUP, "--timeout", "20000"), f"received {MESSAGES}"),
        ):
            command = [*self._command, f"{self.TOOLS}.{tool}", *at, *count, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
            said = done.stdout + done.stderr
            refused = {kind for words, kind in JAVAS_WORDS.items() if words in said}
            if refused:
                return [*lines, *(f"refused {kind}" for kind in refused)]
            assert done.returncode == 0, said[-3_000:]
            came = done.stdout.splitlines()[-1].split(", ")  # of ConsumerPerformance: the fifth column is their number
            assert came[0] == f"{MESSAGES} records sent" or came[4] == str(MESSAGES), said[-3_000:]
            lines.append(well)
        return lines

    def _pem(self, path: str | None) -> str:
        """A key as PKCS#8, which is all that Java reads."""
        if path is None:
            return ""
        data = Path(path).read_bytes()
        if b"PRIVATE KEY" not in data:
            return data.decode()
        return load_pem_private_key(data, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ).decode()  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("go") is None:
        pytest.skip("needs Go: go is not installed (Debian: apt-get install golang)")
    program = tmp_path_factory.mktemp("go") / "secured"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=PROGRAM, check=True)
    return str(program)


@pytest.fixture(params=["kcat", "franz", "sarama", "java"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Secured, Login], list[str]]:
    if request.param == "java":
        return Java(tmp_path)
    if request.param != "kcat":
        return Go(request.getfixturevalue("program"), request.param)
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found is None:
        pytest.skip("kcat is not installed (Debian: apt-get install kcat)")
    return Kcat(found)


def allow(found: Secured, *rights: str) -> None:
    found.in_loop(lambda: found.app.node.acls.change([rule("alice", right) for right in rights]))


def results(found: Secured) -> set[tuple[str, str]]:
    """Of logins: (mechanism, result)."""
    return {(mechanism, result) for _, mechanism, result in found.app.kafka.authentications}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_by_password(secured: Secure, client: Any, mechanism: str, tls: bool) -> None:
    found = secured(tls=tls)
    found.user("alice", "secret")
    allow(found, *RIGHTS)
    assert client(found, Login(mechanism, "secret")) == WELL
    assert results(found) == {(mechanism, "ok")}


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_a_wrong_password_is_an_authentication_error(secured: Secure, client: Any, mechanism: str) -> None:
    found = secured(tls=True)
    found.user("alice", "secret")
    allow(found, *RIGHTS)
    assert client(found, Login(mechanism, "wrong")) == ["refused authentication"]
    assert results(found) == {(mechanism, "failed")}


@pytest.mark.parametrize("lacks", ["topic", "group"])
def test_a_missing_right_is_an_authorization_error(secured: Secure, client: Any, lacks: str) -> None:
    found = secured(tls=True)
    found.user("alice", "secret")
    allow(found, *(right for right in RIGHTS if f" {lacks} " not in right))
    said = client(found, Login("SCRAM-SHA-512", "secret"))
    assert said == ([] if lacks == "topic" else WELL[:1]) + [f"refused {lacks}"]
    assert results(found) == {("SCRAM-SHA-512", "ok")}


@pytest.mark.parametrize("client", ["franz", "sarama"], indirect=True)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_by_token(secured: Secure, provider: Provider, client: Any, tls: bool) -> None:
    """Who uses these brings tokens; kcat 1.7 is given none, and makes only such as no broker should take."""
    found = secured("OAUTHBEARER", tls=tls, security={"oauth": provider.settings()})
    allow(found, *RIGHTS)
    assert client(found, Login("OAUTHBEARER", token=provider.token())) == WELL
    assert results(found) == {("OAUTHBEARER", "ok")}


@pytest.mark.parametrize("client", ["franz", "sarama"], indirect=True)
def test_a_token_for_somebody_else_is_an_authentication_error(secured: Secure, provider: Provider, client: Any) -> None:
    found = secured("OAUTHBEARER", tls=True, security={"oauth": provider.settings()})
    allow(found, *RIGHTS)
    assert client(found, Login("OAUTHBEARER", token=provider.token(aud="other"))) == ["refused authentication"]
    eventually(lambda: results(found))  # franz knows by the first of two answers (RFC 7628, 3.2.3), and ends
    assert results(found) == {("OAUTHBEARER", "failed")}


@pytest.mark.parametrize("client", ["kcat"], indirect=True)
def test_a_token_without_a_signature_is_an_authentication_error(
    secured: Secure, provider: Provider, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka makes such ones itself: "alg": "none"."""
    found = secured("OAUTHBEARER", tls=True, security={"oauth": provider.settings()})
    made = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=alice"}
    assert client(found, Login("OAUTHBEARER"), made) == ["refused authentication"]
    assert results(found) == {("OAUTHBEARER", "failed")}
    assert "algorithm 'none' is not allowed" in caplog.text


def test_by_certificate(secured: Secure, authority: Authority, client: Any) -> None:
    listener = {
        "bind": "127.0.0.1:0",
        "tls": authority.pair("broker") | {
            "client_ca": authority.path, "client_auth": "require", "principal_rules": "RULE:^CN=(.*?),.*$/$1/",
        },
    }  # fmt: skip
    found = secured(tls=True, listeners={"kafka": listener})
    allow(found, *RIGHTS)
    assert client(found, Login(pair=authority.pair("alice"))) == WELL
    assert client(found, Login(pair=authority.pair("bob"))) == ["refused topic"]
