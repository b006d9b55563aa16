"""Listeners with TLS, by clients that speak it, speak it badly, or do not."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

import halfmoon.testing
from halfmoon.adapters.tcp.listener import ENDS_LOGGED
from tests.security.authority import Authority
from tests.several_workers import metric, of_one_process

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
"""A request that every broker answers, whole."""

_ASK = b'{"code":28,"opaque":7,"language":"JAVA","version":407,"flag":0}'
ROUTES = struct.pack(">ii", 4 + len(_ASK), len(_ASK)) + _ASK
"""The same of RocketMQ's clients, on both ports: a code that nobody knows."""


Serve = Callable[..., halfmoon.testing.Broker]


@pytest.fixture
def serve(authority: Authority) -> Iterator[Serve]:
    started: list[halfmoon.testing.Broker] = []

    def start(limits: dict[str, Any] | None = None, **tls: Any) -> halfmoon.testing.Broker:
        listener = {"bind": "127.0.0.1:0", "tls": authority.pair("broker") | tls}
        broker = halfmoon.testing.Broker(config={"listeners": {"kafka": listener}, "limits": limits or {}})
        started.append(broker.start())
        return broker

    yield start
    for broker in started:
        broker.stop()


def address_of(broker: halfmoon.testing.Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


def connected(broker: halfmoon.testing.Broker) -> socket.socket:
    return socket.create_connection(address_of(broker), timeout=20)


def asked(stream: socket.socket) -> int:
    """The correlation id of the answer."""
    stream.sendall(API_VERSIONS)
    (size,) = struct.unpack(">i", read(stream, 4))
    return int.from_bytes(read(stream, size)[:4])


def read(stream: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = stream.recv(size - len(found))
        assert piece, "the connection was closed"
        found += piece
    return found


def was_closed(stream: socket.socket) -> bool:
    """Whether the other side ends the connection, within its time-out."""
    try:
        return stream.recv(1) == b""
    except (ConnectionResetError, ssl.SSLError):
        return True


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_turned_away(context: ssl.SSLContext, broker: halfmoon.testing.Broker) -> bool:
    """With TLS 1.3 a client hears of it where its first answer should be."""
    try:
        with context.wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
            stream.sendall(API_VERSIONS)
            return was_closed(stream)
    except (ssl.SSLError, ConnectionError):
        return True


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_records_through_librdkafka_and_kafka_python(serve: Serve, authority: Authority) -> None:
    broker = serve()
    config = {"bootstrap.servers": broker.bootstrap_servers, **authority.librdkafka()}
    producer = Producer(config)
    producer.produce("t", b"one")
    assert producer.flush(20) == 0
    other = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL", ssl_cafile=authority.path
    )
    other.send("t", b"two").get(20)
    other.close()
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found = [message.value() for message in (consumer.poll(20), consumer.poll(20)) if message is not None]
    consumer.close()
    assert found == [b"one", b"two"]
    app = broker.app
    assert app is not None
    (tls,) = app.kafka.tls
    assert tls.handshakes["ok"] >= 3
    assert set(tls.handshakes) == {"ok"}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(serve: Serve, authority: Authority, version: ssl.TLSVersion) -> None:
    context = authority.client()
    context.maximum_version = context.minimum_version = version
    with context.wrap_socket(connected(serve()), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7


def test_old_versions_are_refused(serve: Serve, authority: Authority) -> None:
    broker = serve()
    context = authority.client()
    with pytest.deprecated_call():
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError), connected(broker) as plain:
        context.wrap_socket(plain, server_hostname="127.0.0.1")
    with authority.client().wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7


@of_one_process
@pytest.mark.parametrize("said", [API_VERSIONS, b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", b"\0"])
def test_who_speaks_no_tls_is_closed(
    serve: Serve, authority: Authority, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    broker = serve()
    with caplog.at_level(logging.WARNING, "halfmoon.kafka"), connected(broker) as stream:
        stream.sendall(said)
        assert was_closed(stream)
    assert f"this port takes TLS only, and the first byte is {said[0]:#04x}" in caplog.text
    with authority.client().wrap_socket(connected(broker), server_hostname="127.0.0.1") as good:
        assert asked(good) == 7
    assert broker.app is not None
    assert broker.app.kafka.tls[0].handshakes["failed"] == 1


def test_tls_to_a_port_without_it_is_closed() -> None:
    with halfmoon.testing.Broker() as broker:
        context = ssl._create_unverified_context()
        with pytest.raises((ssl.SSLError, ConnectionError)), connected(broker) as plain:
            context.wrap_socket(plain)
        with connected(broker) as stream:
            assert asked(stream) == 7


def test_those_who_say_nothing_count_and_are_closed_in_time(serve: Serve, authority: Authority) -> None:
    """With asyncio's own door nobody would see them."""
    broker = serve({"authentication_timeout": "1s"})
    assert broker.app is not None
    kafka = broker.app.kafka
    silent = [connected(broker) for _ in range(20)]
    until(lambda: kafka.counters.connections == 20)
    assert len(kafka.newcomers) == 20
    for stream in silent:
        with stream:
            assert was_closed(stream)
    until(lambda: kafka.counters.connections == 0)
    assert len(kafka.newcomers) == 0


def test_a_hello_that_comes_byte_by_byte_has_no_more_time(serve: Serve, authority: Authority) -> None:
    broker = serve({"authentication_timeout": "1s"})
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    speaker = authority.client().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        speaker.do_handshake()
    hello = outgoing.read()
    with connected(broker) as stream:
        stream.settimeout(0.05)
        for at in range(len(hello) - 1):
            try:
                stream.sendall(hello[at : at + 1])
                assert not stream.recv(1)
                break  # it was closed
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("it had all the time in the world")
    assert broker.app is not None
    until(lambda: broker.app is not None and broker.app.kafka.counters.connections == 0)
    assert broker.app.kafka.tls[0].handshakes == {"timeout": 1}


def test_a_crowd_of_silent_ones_keeps_nobody_out(serve: Serve, authority: Authority) -> None:
    broker = serve({"max_unauthenticated": 10})
    silent = [connected(broker) for _ in range(50)]
    assert broker.app is not None
    kafka = broker.app.kafka
    until(lambda: kafka.newcomers.evicted == 40)
    with authority.client().wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7
    assert len(kafka.newcomers) <= 10
    for each in silent:
        each.close()
    until(lambda: kafka.counters.connections == 0)


@of_one_process
def test_connections_of_one_address_are_limited(serve: Serve, authority: Authority) -> None:
    broker = serve({"max_connections_per_ip": 2})
    client = authority.client()
    with (
        client.wrap_socket(connected(broker), server_hostname="127.0.0.1") as first,
        client.wrap_socket(connected(broker), server_hostname="127.0.0.1") as second,
    ):
        assert asked(first) == asked(second) == 7
        with connected(broker) as third:
            assert was_closed(third)
    assert broker.app is not None
    until(lambda: broker.app is not None and broker.app.kafka.counters.connections == 0)
    with client.wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7


def test_clients_show_certificates(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    broker = serve(client_ca=authority.path, client_auth="require")
    mine = authority.client(authority.pair("client"))
    with mine.wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7
        (who,) = users(broker)
        assert who.startswith("User:CN=client,OU=Testing cert ")
        assert who.endswith(",O=Shop")
    stranger = authority.client(Authority(tmp_path, "other").pair("stranger"))
    for context in (authority.client(), stranger):
        assert is_turned_away(context, broker)
    assert broker.app is not None
    until(lambda: broker.app is not None and broker.app.kafka.tls[0].handshakes == {"ok": 1, "failed": 2})


def users(broker: halfmoon.testing.Broker) -> list[str]:
    """Whom the open connections are of."""
    assert broker.app is not None
    return [str(each.principal) for each in broker.app.kafka._connections]  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_are_told_what_was_wrong_with_their_certificate(
    serve: Serve, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """An alert, before the connection is closed; asyncio and uvloop would swallow it."""
    broker = serve(client_ca=authority.path, client_auth="require")
    stranger = Authority(tmp_path, "stranger")
    for shown, alert in ((None, "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"), (stranger.pair("eve"), "UNKNOWN_CA")):
        context = authority.client(shown)
        context.maximum_version = context.minimum_version = version
        with (
            pytest.raises(ssl.SSLError, match=alert), connected(broker) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as stream,
        ):  # fmt: skip
            stream.recv(1)


def test_certificates_are_asked_for_and_need_not_be_there(serve: Serve, authority: Authority) -> None:
    rules = "RULE:^CN=(.*?),.*$/$1/U"
    broker = serve(client_ca=authority.path, client_auth="request", principal_rules=rules)
    with authority.client().wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7
        assert users(broker) == ["User:ANONYMOUS"]
    until(lambda: not users(broker))
    mine = authority.client(authority.pair("client"))
    with mine.wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7
        assert users(broker) == ["User:CLIENT"]


def test_whose_certificate_makes_no_user_is_closed(serve: Serve, authority: Authority) -> None:
    """And is not taken for somebody who may do everything."""
    rules = "RULE:^CN=nobody$/nobody/"
    broker = serve(client_ca=authority.path, client_auth="require", principal_rules=rules)
    mine = authority.client(authority.pair("client"))
    with mine.wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert was_closed(stream)
    until(lambda: not users(broker))


MAPPED = "RULE:^CN=(.*?),.*$/$1/"


@pytest.mark.parametrize("name", ["local-admin", "ANONYMOUS", "mallory"])
def test_a_certificate_lets_nobody_in_who_is_disabled_or_the_broker_itself(
    serve: Serve, authority: Authority, name: str
) -> None:
    """An authority may let its users choose their names: one of these is a super user (`admin.sock`)."""
    broker = serve(client_ca=authority.path, client_auth="require", principal_rules=MAPPED)
    broker._in_loop(lambda app: app.node.users.create("mallory"))
    broker._in_loop(lambda app: app.node.users.set_flags("mallory", disabled=True))
    shown = authority.client(authority.pair(name))
    with shown.wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert was_closed(stream)
    fine = authority.client(authority.pair("alice"))
    with fine.wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7


def test_who_is_let_in_stays(serve: Serve, authority: Authority) -> None:
    broker = serve({"authentication_timeout": "500ms"})
    with authority.client().wrap_socket(connected(broker), server_hostname="127.0.0.1") as stream:
        assert asked(stream) == 7
        time.sleep(2.5)  # two looks at who is late
        assert asked(stream) == 7


def test_a_new_certificate_is_for_new_connections(serve: Serve, authority: Authority) -> None:
    broker = serve()
    client = authority.client()
    with client.wrap_socket(connected(broker), server_hostname="127.0.0.1") as old:
        authority.pair("broker")
        assert broker.app is not None
        assert broker.app.kafka.tls[0].reload(unless_seen=True)
        with client.wrap_socket(connected(broker), server_hostname="127.0.0.1") as new:
            assert asked(old) == asked(new) == 7
            shown = [stream.getpeercert() for stream in (old, new)]
    assert shown[0] is not None
    assert shown[1] is not None
    assert shown[0]["serialNumber"] != shown[1]["serialNumber"]


def test_large_answers_come_whole(serve: Serve, authority: Authority) -> None:
    broker = serve()
    config = {"bootstrap.servers": broker.bootstrap_servers, **authority.librdkafka()}
    admin = AdminClient(config)
    admin.create_topics([NewTopic("t", 1, config={"max.message.bytes": "8000000"})])["t"].result(20)
    producer = Producer({**config, "message.max.bytes": 8_000_000})
    values = [bytes([number]) * 3_000_000 for number in range(8)]
    for value in values:
        producer.produce("t", value)
    assert producer.flush(20) == 0
    consumer = Consumer(
        {**config, "group.id": "g", "auto.offset.reset": "earliest", "fetch.min.bytes": 20_000_000,
         "fetch.wait.max.ms": 500, "fetch.message.max.bytes": 30_000_000, "receive.message.max.bytes": 60_000_000}
    )  # fmt: skip
    consumer.subscribe(["t"])
    found = [message.value() for message in (consumer.poll(20) for _ in values) if message is not None]
    consumer.close()
    assert found == values


def test_it_stops_while_others_are_in_their_handshake(serve: Serve, authority: Authority) -> None:
    broker = serve()
    with connected(broker) as silent, connected(broker) as half:
        half.sendall(b"\x16\x03\x01")
        assert broker.app is not None
        kafka = broker.app.kafka
        until(lambda: len(kafka.newcomers) == 2)
        broker.stop()
        assert was_closed(silent)
        assert was_closed(half)


def test_a_second_listener_has_an_address_and_tls_of_its_own(authority: Authority) -> None:
    listeners = [
        {"name": "local", "bind": "127.0.0.1:0"},
        {"name": "public", "bind": "127.0.0.1:0", "tls": authority.pair("broker")},
    ]
    with halfmoon.testing.Broker(config={"listeners": {"kafka": listeners}}) as broker:
        assert broker.app is not None
        public = broker.app.kafka_addresses["public"]
        plain = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=20)
        encrypted = AdminClient({"bootstrap.servers": str(public), **authority.librdkafka()}).list_topics(timeout=20)
        assert [f"{found.host}:{found.port}" for found in plain.brokers.values()] == [broker.bootstrap_servers]
        assert [f"{found.host}:{found.port}" for found in encrypted.brokers.values()] == [str(public)]


def test_failed_handshakes_leave_nothing_open(serve: Serve, authority: Authority) -> None:
    broker = serve({"authentication_timeout": "1s"}, client_ca=authority.path, client_auth="require")
    assert broker.app is not None
    kafka = broker.app.kafka
    assert is_turned_away(authority.client(), broker)
    until(lambda: kafka.counters.connections == 0)
    before = descriptors()
    for number in range(40):
        if number % 4 == 0:
            assert is_turned_away(authority.client(), broker)
        else:
            with connected(broker) as stream:
                stream.sendall((b"\x16\x03\x01\x00", b"\x16" * 600, API_VERSIONS)[number % 4 - 1])
                if number % 2:
                    assert was_closed(stream)
    until(lambda: kafka.counters.connections == 0)
    until(lambda: descriptors() <= before)


def test_a_crowd_does_not_fill_the_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    broker = serve()
    assert broker.app is not None
    kafka = broker.app.kafka
    with caplog.at_level(logging.WARNING, "halfmoon.kafka"):
        for _ in range(3 * ENDS_LOGGED):
            with connected(broker) as stream:
                stream.sendall(API_VERSIONS)
                assert was_closed(stream)
        until(lambda: kafka.counters.connections == 0)
    assert caplog.text.count("event=connection_closed") <= 2 * ENDS_LOGGED  # there may be a sweep in between


def test_http_over_tls(authority: Authority) -> None:
    listeners = {"http": {"bind": "127.0.0.1:0", "tls": authority.pair("broker")}}
    with halfmoon.testing.Broker(config={"listeners": listeners}) as broker:
        with urllib.request.urlopen(f"https://{broker.http}/metrics", context=authority.client()) as answer:
            told = answer.read().decode()
        assert metric(told, "halfmoon_tls_handshakes_total", listener="http", result="ok") == 1
        assert re.search(r'^halfmoon_tls_certificate_expiry_seconds{.*listener="http".*} 1\.', told, re.MULTILINE)
        host, _, port = broker.http.rpartition(":")
        silent = [socket.create_connection((host, int(port)), timeout=20) for _ in range(100)]
        with urllib.request.urlopen(f"https://{broker.http}/healthz", context=authority.client()) as answer:
            assert answer.read() == b"ok\n"
        for stream in silent:
            stream.close()


@pytest.mark.parametrize("mode", ["enforcing", "permissive"])
def test_rocketmqs_modes(authority: Authority, mode: str) -> None:
    listener = {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0", "tls": authority.pair("broker") | {"mode": mode}}
    with halfmoon.testing.Broker(config={"listeners": {"rocketmq": listener}}) as broker:
        for address in (broker.rocketmq, broker.namesrv):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=20) as plain:
                plain.sendall(ROUTES)
                if mode == "permissive":
                    (size,) = struct.unpack(">i", read(plain, 4))
                    assert b'"opaque":7' in read(plain, size)
                else:
                    assert was_closed(plain)
            plain = socket.create_connection((host, int(port)), timeout=20)
            with authority.client().wrap_socket(plain, server_hostname="127.0.0.1") as stream:
                stream.sendall(ROUTES)
                (size,) = struct.unpack(">i", read(stream, 4))
                assert b'"opaque":7' in read(stream, size)


def test_sighup_takes_the_files(serve: Serve, authority: Authority) -> None:
    broker = serve()
    app = broker.app
    assert app is not None
    before = app.kafka.tls[0].current
    assert app.warnings() == []
    authority.pair("broker", lives=timedelta(days=3))
    app.tls_files.look()
    assert app.kafka.tls[0].current is not before
    (warning,) = app.warnings()
    assert warning.startswith("listener kafka: the certificate ")
