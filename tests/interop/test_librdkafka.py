"""librdkafka's own suite (tools/interop_librdkafka.py), with access rules, as they set up a Kafka for it.

Once as it is, once with topics that nobody creates by the way, once with groups of KIP-848; by password and by access
tokens for what those concern. The provider of tokens is theirs, too.

Not 0097, their test of certificates: its third attempt to refuse the broker's certificate ends with another error in
the client than it expects, also where the broker keeps the connection open. Certificates are tested with librdkafka in
tests/security and test_secured_clients.py.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from halfmoon.testing import Broker
from tests.crash.serving import free_port, listens, wait_until
from tests.interop.java_programs import jars
from tools import interop_librdkafka
from tools.interop_librdkafka import Outcome

SECURITY = {"authorizer": "acl", "allow_everyone_if_no_acl_found": True}
AS_KAFKA: dict[str, Any] = {
    "topics": {"partitions": 4}, "security": SECURITY,
    "groups": {"initial_rebalance_delay": "3s", "default_assignor": "uniform"},
}  # fmt: skip
"""What their tests rely on: some count how often members are told of an assignment."""
LOGIN, REAUTHENTICATION, TOKENS, ADMINISTRATION = "0135", "0142", "0126", "0081"
COMPACTION = "0077"
CLOSES_SOCKETS = "0076"
"""Closes the socket of a client of its own once more than that does: the number may be another test's by then."""

FAILS = {
    "0179_share_consumer_destroy": "counts on two brokers, of which a poll brings the records of one",
    "0045_resubscribe_with_regex": "KIP-848: counts on a broker that looks for the topics of a pattern later",
}
MAY_FAIL = {
    "0045_subscribe_many_updates": "KIP-848: who subscribes before its leaving is answered may not join again",
    "0086_purge_remote": "the client may report a socket that the test has closed under it",
    "0113_cooperative_rebalance": "may commit between JoinGroup and SyncGroup, which Kafka refuses, too",
}
SKIPS = {
    "0082_fetch_max_bytes": "Test skipped due to quick mode",
    "0084_destroy_flags": "FIXME: fix the test with subscribe/unsubscribe PR",
    "0092_mixed_msgver": "MsgVersion 1 was removed in Apache Kafka 4.0",
    "0097_ssl_verify": "Test requires SSL_* env-vars set up by trivup",
    "0101_fetch_from_follower": "unexpected broker.rack configuration: skipping test.",
    "0126_oauthbearer_oidc": "Apache Kafka cluster not configured for SASL",
    "0132_strategy_ordering": "Test meaningful only with classic librdkafka assignors",
    "0135_sasl_credentials": "Test requires SASL PLAIN or SASL SCRAM",
    "0142_reauthentication": "Test requires SASL_PLAINTEXT or SASL_SSL, got plaintext",
}
"""In a run of all, as they say themselves."""

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module")
def tests() -> Path:
    """Their folder, compiled."""
    for program in ("npm", "g++", "make"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: it is not installed")
    headers = {
        "openssl/ssl.h": "libssl-dev", "curl/curl.h": "libcurl4-openssl-dev", "zstd.h": "libzstd-dev",
        "rapidjson/document.h": "rapidjson-dev",
    }  # fmt: skip
    asked = "".join(f"#include <{header}>\n" for header in headers)
    if subprocess.run(["g++", "-E", "-x", "c++", "-"], input=asked, capture_output=True, text=True).returncode:
        pytest.skip(f"needs headers that are not installed (Debian: apt-get install {' '.join(headers.values())})")
    return interop_librdkafka.prepare()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What they call KAFKA_PATH, as far as they use it."""
    folder = tmp_path_factory.mktemp("kafka")
    (folder / "bin").mkdir()
    classes = f"{jars('kafka')}/*:{jars('broker')}/*"
    for script, main in {"kafka-topics.sh": "TopicCommand", "kafka-acls.sh": "AclCommand"}.items():
        path = folder / "bin" / script
        java = f"java -Xmx256m -XX:TieredStopAtLevel=1 -cp '{classes}' org.apache.kafka.tools.{main}"
        path.write_text(f'#!/bin/sh\nexec {java} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    run_class = folder / "bin" / "kafka-run-class.sh"
    run_class.write_text(f'#!/bin/sh\nexec java -Xmx256m -cp "$CLASSPATH:{jars("kafka")}/*" "$@"\n')
    run_class.chmod(run_class.stat().st_mode | stat.S_IXUSR)
    (folder / "libs").symlink_to(jars("kafka"))
    return folder


def check(found: dict[str, Outcome], *, whole: bool = False) -> None:
    """None failed but those that have to, and none was skipped but in a run of all."""
    print(f"librdkafka: {interop_librdkafka.said(found)}")
    assert any(outcome.kind == "passed" for outcome in found.values())
    failed = {name: outcome.why for name, outcome in found.items() if outcome.kind == "failed"}
    assert failed.keys() <= FAILS.keys() | MAY_FAIL.keys(), failed
    skipped = {name: outcome.why for name, outcome in found.items() if outcome.kind == "skipped"}
    assert skipped.items() <= (SKIPS.items() if whole else {}.items()), skipped


def test_the_suite(tests: Path, kafka: Path, tmp_path: Path) -> None:
    with Broker(config=AS_KAFKA) as broker:
        found = interop_librdkafka.run(
            tests, broker.client_config(), left_out=[COMPACTION, CLOSES_SOCKETS],
            environment={"KAFKA_PATH": str(kafka)}, log=tmp_path / "suite.log",
        )  # fmt: skip
        found |= interop_librdkafka.run(tests, broker.client_config(), [CLOSES_SOCKETS], log=tmp_path / "alone.log")
    check(found, whole=True)
    assert len(found) > 100


def test_topics_are_not_created_by_the_way(tests: Path, kafka: Path, tmp_path: Path) -> None:
    with Broker(config=AS_KAFKA | {"topics": {"partitions": 4, "auto_create": False}}) as broker:
        found = interop_librdkafka.run(
            tests, broker.client_config(), scenario="noautocreate", environment={"KAFKA_PATH": str(kafka)},
            log=tmp_path / "suite.log",
        )  # fmt: skip
    check(found)


def test_groups_of_kip_848(tests: Path, kafka: Path, tmp_path: Path) -> None:
    with Broker(config=AS_KAFKA) as broker:
        found = interop_librdkafka.run(
            tests, broker.client_config(), left_out=[COMPACTION, CLOSES_SOCKETS], group_protocol="consumer",
            quick=True, environment={"KAFKA_PATH": str(kafka)}, log=tmp_path / "suite.log",
        )  # fmt: skip
    check(found, whole=True)


def test_compaction(tests: Path, kafka: Path, tmp_path: Path) -> None:
    """It sets the size of the topic's segments, which all topics share here, and waits 20 seconds."""
    with Broker(config=AS_KAFKA | {"log": {"segment_bytes": "1MiB", "cleaner": {"interval": "5s"}}}) as broker:
        found = interop_librdkafka.run(
            tests, broker.client_config(), [COMPACTION], environment={"KAFKA_PATH": str(kafka)},
            log=tmp_path / "suite.log",
        )  # fmt: skip
    check(found)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_by_password(tests: Path, mechanism: str, tmp_path: Path) -> None:
    """Other passwords while a client runs, logging in again each five seconds, and the admin API."""
    listener = {"reauthenticate": "5s"}
    security = SECURITY | {"super_users": []}
    with Broker(secure=True, config=AS_KAFKA | {"listeners": {"kafka": listener}, "security": security}) as broker:
        found = interop_librdkafka.run(
            tests, broker.client_config() | {"sasl.mechanism": mechanism},
            [LOGIN, REAUTHENTICATION, ADMINISTRATION], log=tmp_path / "suite.log",
        )  # fmt: skip
    check(found)


class Provider:
    """Theirs, of trivup: its tokens last a minute, and it takes secrets as well as signed assertions (RFC 7523)."""

    def __init__(self, tests: Path, folder: Path) -> None:
        (trivup,) = (tests / "trivup").glob("trivup-*.tar.gz")
        library = folder / "provider"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(library)]
        subprocess.run([*install, str(trivup), "jwcrypto", "requests"], check=True)
        key = rsa.generate_private_key(65537, 2048)
        password = "another password"
        self.environment = {"OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": password}
        for name, protection in (("", NoEncryption()), ("_ENCRYPTED", BestAvailableEncryption(password.encode()))):
            path = folder / f"client{name}.pem"
            path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection))
            self.environment[f"OAUTHBEARER_CLIENT_PRIVATE_KEY{name}"] = str(path)
        public = folder / "client.jwk"
        public.write_text(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
        port = free_port()
        self._at = f"http://localhost:{port}"
        program = [sys.executable, "-m", "trivup.apps.OauthbearerOIDCApp", "--port", str(port)]
        self._process = subprocess.Popen(
            [*program, "--client-public-key", str(public)],
            env={**os.environ, "PYTHONPATH": str(library)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(lambda: listens(port), 30, "the provider of tokens")
        self.keys = folder / "keys.json"
        with urllib.request.urlopen(f"{self._at}/keys", timeout=10) as answer:
            self.keys.write_bytes(answer.read())
        self.environment |= {
            "VALID_OIDC_URL": f"{self._at}/retrieve", "INVALID_OIDC_URL": f"{self._at}/retrieve/badformat",
            "EXPIRED_TOKEN_OIDC_URL": f"{self._at}/retrieve/expire",
        }  # fmt: skip

    def client(self) -> dict[str, str]:
        return {
            "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "OIDC", "sasl.oauthbearer.client.id": "123",
            "sasl.oauthbearer.client.secret": "abc", "sasl.oauthbearer.scope": "test",
            "sasl.oauthbearer.extensions": "ExtensionworkloadIdentity=develC348S,Extensioncluster=lkc123",
            "sasl.oauthbearer.token.endpoint.url": self.environment["VALID_OIDC_URL"],
        }  # fmt: skip

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def provider(tests: Path, tmp_path: Path) -> Iterator[Provider]:
    made = Provider(tests, tmp_path)
    yield made
    made.stop()


def test_access_tokens(tests: Path, provider: Provider, tmp_path: Path) -> None:
    listener: dict[str, Any] = {"sasl": ["OAUTHBEARER"], "reauthenticate": "5s"}
    oauth = {"jwks_file": str(provider.keys), "issuer": "issuer", "audience": ["api://default"]}
    config = AS_KAFKA | {"listeners": {"kafka": listener}, "security": SECURITY | {"oauth": oauth, "super_users": []}}
    with Broker(secure=True, config=config) as broker:
        configuration = {
            name: value for name, value in broker.client_config().items()
            if name not in ("sasl.username", "sasl.password")
        }  # fmt: skip
        found = interop_librdkafka.run(
            tests, configuration | provider.client(), [TOKENS, REAUTHENTICATION],
            environment=provider.environment, log=tmp_path / "suite.log",
        )  # fmt: skip
    check(found)
