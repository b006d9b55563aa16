"""kcat, a program of its own with its own librdkafka (2.0 in Debian 12): produce, consume, group and metadata."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from halfmoon.testing import Broker
from tests.clients.polling import until

MakeTopic = Callable[..., str]
TIMEOUT_S = 30

PROGRAM = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="kcat is not installed (Debian: apt-get install kcat)")


class Kcat:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        assert PROGRAM is not None
        # Two settings that only save time: how long a consumer waits before it asks for its first offsets and records.
        quick = ["-X", "fetch.error.backoff.ms=10", "-X", "reconnect.backoff.ms=10"]
        return subprocess.run(
            [PROGRAM, "-b", self._servers, *quick, *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S
        )

    def ok(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def read(self, topic: str, *arguments: str) -> bytes:
        return self.ok("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", *arguments)

    def read_json(self, topic: str, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.read(topic, "-J", *arguments).splitlines()]


@pytest.fixture
def kcat(bootstrap_servers: str) -> Kcat:
    return Kcat(bootstrap_servers)


LINES = b"".join(b"%d\n" % number for number in range(1_000))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(kcat: Kcat, topic: str, acks: str) -> None:
    kcat.ok("-P", "-t", topic, "-X", f"acks={acks}", stdin=LINES)
    if acks == "0":  # nobody says when they are there
        until(lambda: kcat.read(topic) == LINES)
    assert kcat.read(topic) == LINES


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(kcat: Kcat, topic: str, codec: str) -> None:
    kcat.ok("-P", "-t", topic, "-z", codec, "-X", "enable.idempotence=true", stdin=LINES)
    assert kcat.read(topic, "-X", "check.crcs=true") == LINES


def test_keys_headers_and_tombstones(kcat: Kcat, topic: str) -> None:
    kcat.ok("-P", "-t", topic, "-K", ":", "-Z", "-H", "a=b", "-H", "c=", stdin=b"key:value\ntombstone:\n:keyless\n")
    first, tombstone, keyless = kcat.read_json(topic)
    assert (first["key"], first["payload"], first["headers"]) == ("key", "value", ["a", "b", "c", ""])
    assert (tombstone["key"], tombstone["payload"]) == ("tombstone", None)
    assert (keyless["key"], keyless["payload"]) == (None, "keyless")
    assert [record["offset"] for record in (first, tombstone, keyless)] == [0, 1, 2]


def test_a_record_over_the_largest_size_is_refused(kcat: Kcat, make_topic: MakeTopic) -> None:
    topic = make_topic(1, **{"max.message.bytes": "10000"})
    kcat.ok("-P", "-t", topic, stdin=b"x" * 9_900)
    refused = kcat.run("-P", "-t", topic, stdin=b"x" * 10_000)
    assert refused.returncode != 0
    assert b"Message size too large" in refused.stderr
    assert kcat.read(topic) == b"x" * 9_900 + b"\n"


def test_offsets_and_times(kcat: Kcat, topic: str) -> None:
    kcat.ok("-P", "-t", topic, stdin=LINES)
    assert kcat.ok("-Q", "-t", f"{topic}:0:-2") == f"{topic} [0] offset 0\n".encode()
    assert kcat.ok("-Q", "-t", f"{topic}:0:-1") == f"{topic} [0] offset 1000\n".encode()
    assert kcat.ok("-Q", "-t", f"{topic}:0:1") == f"{topic} [0] offset 0\n".encode()
    assert kcat.ok("-C", "-t", topic, "-p", "0", "-o", "500", "-c", "1", "-q") == b"500\n"
    assert kcat.ok("-C", "-t", topic, "-p", "0", "-o", "-5", "-e", "-q") == LINES[-20:]
    assert kcat.ok("-C", "-t", topic, "-p", "0", "-o", "s@1", "-c", "1", "-q") == b"0\n"


def test_a_group_resumes_at_its_commit(kcat: Kcat, topic: str, name: str, admin: AdminClient) -> None:
    kcat.ok("-P", "-t", topic, stdin=LINES)
    read = ["-X", "auto.offset.reset=earliest", "-e", "-q"]
    assert kcat.ok("-G", name, *read, topic) == LINES
    assert kcat.ok("-G", name, *read, topic) == b""
    kcat.ok("-P", "-t", topic, stdin=b"more\n")
    assert kcat.ok("-G", name, *read, topic) == b"more\n"
    assert name in {group.group_id for group in admin.list_consumer_groups().result(10).valid}


def test_it_goes_on_after_a_restart(own_broker: Broker, name: str) -> None:
    kcat = Kcat(own_broker.bootstrap_servers)
    kcat.ok("-P", "-t", name, "-p", "0", stdin=LINES)
    own_broker.restart()
    kcat.ok("-P", "-t", name, "-p", "0", stdin=b"more\n")
    assert kcat.read(name) == LINES + b"more\n"


def test_metadata(kcat: Kcat, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    topic = make_topic(3)
    listed = json.loads(kcat.ok("-L", "-J", "-t", topic))
    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap_servers]
    (described,) = listed["topics"]
    assert described["topic"] == topic
    assert sorted(partition["partition"] for partition in described["partitions"]) == [0, 1, 2]
