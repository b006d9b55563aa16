"""The suites of franz-go and of Sarama, as their modules bring them.

The Go module proxy has a module's tests, too; nothing of them is in this repository. What each leaves out needs what
one node without Docker cannot have; the reason stands beside the name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfmoon.testing import Broker
from tests.crash.serving import free_port, listens, wait_until
from tests.security.authority import Authority
from tests.security.conftest import Secure
from tests.security.conftest import authority as authority
from tests.security.conftest import secured as secured

FRANZ_GO = "github.com/twmb/franz-go@v1.22.2"
SARAMA = "github.com/IBM/sarama@v1.61.1"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"

SARAMA_BROKERS = [29091, 29092, 29093, 29094, 29095]
"""Where the suite expects its five brokers; proxies to the same one are there."""
SARAMA_LEFT_OUT = {
    "TestFuncAdminListConsumerGroupOffsets": "stops a broker by docker compose",
    "TestFuncTxnProduceWithBrokerFailure": "stops a broker by docker compose",
    "TestFuncIdempotentBufferedSequence": "reads a broker's log by docker compose",
    "TestFuncAdminAlterPartitionReassignments": "needs two brokers",
    "TestFuncAdminDescribeLogDirs": "asks five brokers",
}
FRANZ_GO_SCRAM = {"TestSCRAMAuth", "TestSCRAMAuthBadCredentials"}
"""Skipped where it is told of no listener with SCRAM."""
FRANZ_GO_NOT_BY_TLS = {"TestIssue769"}
"""It has a dialer of its own, which the client does not take together with TLS."""
FRANZ_GO_SKIPS = {"TestIssueProduceBrokerTooOldFailsRecords"}
"""By the suite itself: the broker takes Produce version 3, of which the test asks less."""

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_200)]


def suite(module: str, folder: Path) -> Path:
    """A copy of the module's source. Skips without Go."""
    if shutil.which("go") is None:
        pytest.skip("needs Go: go is not installed (Debian: apt-get install golang)")
    said = subprocess.run(
        ["go", "mod", "download", "-json", module], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    source = folder / "source"
    shutil.copytree(json.loads(said)["Dir"], source)
    for path in source.rglob("*"):
        path.chmod(path.stat().st_mode | 0o200)
    return source


def outcomes(said: str) -> dict[str, set[str]]:
    """Names of whole tests, by what became of them: PASS, FAIL, SKIP."""
    found: dict[str, set[str]] = {"PASS": set(), "FAIL": set(), "SKIP": set()}
    for outcome, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", said, re.MULTILINE):
        found[outcome].add(name)
    return found


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the suite as a program, kgo.test."""
    tests = suite(FRANZ_GO, tmp_path_factory.mktemp("franz-go")) / "pkg" / "kgo"
    subprocess.run(["go", "test", "-c", "-o", "kgo.test", "."], cwd=tests, check=True)
    return tests


def run_franz_go(tests: Path, *options: str, **environment: str) -> dict[str, set[str]]:
    """Outcomes; none is a failure."""
    done = subprocess.run(
        [str(tests / "kgo.test"), "-test.v", "-test.timeout=1100s", *options],
        cwd=tests, env={**os.environ, "KGO_TEST_RF": "1", **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = outcomes(done.stdout)
    assert done.returncode == 0, f"{found['FAIL']}\n{done.stdout[-5_000:]}"
    print(f"franz-go: {len(found['PASS'])} passed")
    return found


def test_franz_go(franz_go: Path) -> None:
    with Broker(config={"topics": {"partitions": 4}}) as broker:
        found = run_franz_go(franz_go, KGO_SEEDS=broker.bootstrap_servers, KGO_TEST_RECORDS="50000")
    assert found["SKIP"] == FRANZ_GO_SKIPS | FRANZ_GO_SCRAM


def test_franz_go_by_tls(franz_go: Path, authority: Authority, secured: Secure) -> None:
    """By a certificate of its own, while access rules hold; and its tests of SCRAM at a second listener."""
    certificates = {"client_ca": authority.path, "client_auth": "require", "principal_rules": "RULE:^CN=(.*?),.*$/$1/"}
    listeners = [
        {"bind": "127.0.0.1:0", "tls": authority.pair("broker") | certificates},
        {"name": "scram", "bind": "127.0.0.1:0", "sasl": ["SCRAM-SHA-256"]},
    ]
    broker = secured(
        tls=True, listeners={"kafka": listeners}, topics={"partitions": 4},
        security={"super_users": ["User:suite", "User:alice"]},
    )  # fmt: skip
    broker.user("alice", "secret")
    mine = authority.pair("suite")
    found = run_franz_go(
        franz_go, f"-test.skip=^({'|'.join(FRANZ_GO_NOT_BY_TLS)})$",
        KGO_SEEDS=broker.broker.bootstrap_servers, KGO_TEST_RECORDS="20000",
        KGO_TEST_TLS=f"ca:{authority.path},cert:{mine['cert']},key:{mine['key']}",
        KGO_TEST_SCRAM_SEEDS=str(broker.app.kafka_addresses["scram"]), KGO_TEST_SCRAM="alice:secret",
    )  # fmt: skip
    assert found["SKIP"] == FRANZ_GO_SKIPS
    assert found["PASS"] >= FRANZ_GO_SCRAM
    assert ("scram", "SCRAM-SHA-256", "failed") in broker.app.kafka.authentications


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[str]:
    """The address of toxiproxy, which has a proxy for each broker of Sarama's suite, all to one broker of ours."""
    (tmp_path / "bin").mkdir()
    subprocess.run(["go", "install", TOXIPROXY], check=True, env={**os.environ, "GOBIN": str(tmp_path / "bin")})
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    config = {
        "listeners": {"kafka": {"bind": "127.0.0.1:0", "advertise": f"127.0.0.1:{SARAMA_BROKERS[0]}"}},
        "topics": {"auto_create": False},
    }
    server = subprocess.Popen(
        [str(tmp_path / "bin" / "server"), "-host", "127.0.0.1", "-port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: listens(port), 30, "toxiproxy")
        with Broker(config=config) as broker:
            assert broker.app is not None
            for number, listen in enumerate(SARAMA_BROKERS, 1):
                proxy = {
                    "name": f"kafka{number}", "listen": f"127.0.0.1:{listen}", "enabled": True,
                    "upstream": str(broker.app.kafka_address),
                }  # fmt: skip
                ask = urllib.request.Request(f"{address}/proxies", data=json.dumps(proxy).encode())
                urllib.request.urlopen(ask, timeout=10).close()
            yield address
    finally:
        server.kill()
        server.wait()


def test_sarama(tmp_path: Path, proxied: str) -> None:
    source = suite(SARAMA, tmp_path)
    for path in source.glob("functional*_test.go"):  # one node has one replica
        path.write_text(re.sub(r"(ReplicationFactor:\s+)3", r"\g<1>1", path.read_text()))
    program = str(tmp_path / "sarama.test")
    subprocess.run(["go", "test", "-tags", "functional", "-c", "-o", program, "."], cwd=source, check=True)
    left_out = f"^({'|'.join(SARAMA_LEFT_OUT)})$"
    environment = {"TOXIPROXY_ADDR": proxied, "KAFKA_VERSION": "4.0.0"}
    done = subprocess.run(
        [program, "-test.v", "-test.timeout=1100s", "-test.run=^TestFunc", f"-test.skip={left_out}"],
        cwd=source, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = outcomes(done.stdout)
    assert done.returncode == 0, f"{found['FAIL']}\n{done.stdout[-5_000:]}"
    assert len(found["PASS"]) >= 40
    assert found["SKIP"] == {"TestFuncJavaInteropCooperativeRebalance"}, "it runs Java by docker compose"
    print(f"Sarama: {len(found['PASS'])} passed")
