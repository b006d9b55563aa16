"""The Python client with `access_key`, `secret_key` and `tls`, and what strangers of the listener get."""

from __future__ import annotations

import json
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import halfmoon.client
from halfmoon.auth.access_key import signature
from halfmoon.client import (
    BrokerRefusedError,
    ClientError,
    ConfigError,
    ConsumeFrom,
    Message,
    Producer,
    Status,
    TransactionState,
)
from halfmoon.remoting import command as wire
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import JSON, Command
from halfmoon.schema.control import AclRule
from tests.adapters.rocketmq.rocketmq_rig import sending
from tests.client.live.shells import Aio, Threads
from tests.security.acting import rule
from tests.security.authority import Authority
from tests.security.conftest import Secure, Secured

SECRETS = {"alice": "secret of alice", "bob": "secret of bob"}


def let(found: Secured, *said: str) -> None:
    """`alice write topic orders`"""
    rules: list[AclRule] = []
    for each in said:
        name, _, right = each.partition(" ")
        rules.append(rule(name, right))
    found.in_loop(lambda: found.app.node.acls.change(rules))


@pytest.fixture
def found(secured: Secure, authority: Authority) -> Secured:
    made = secured(
        listeners={"rocketmq": authority.signed_rocketmq()},
        topics={"partitions": 1},
        limits={"authentication_timeout": "2s"},
    )
    for name, secret in SECRETS.items():
        made.in_loop(lambda name=name, secret=secret: made.app.node.users.create(name, secret=secret))
    let(made, "alice create topic orders", "alice write topic orders", "alice read topic orders", "alice read group g")
    return made


@pytest.fixture(params=[Threads, Aio], ids=["threads", "aio"])
def shell(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    made.stop()


def options(found: Secured, name: str = "alice", **more: Any) -> dict[str, Any]:
    return {
        "namesrv": found.broker.namesrv, "access_key": name, "secret_key": SECRETS[name], "tls": found.authority.path,
    } | more  # fmt: skip


def until(said: Callable[[], bool], timeout_s: float = 20) -> None:
    end_s = time.monotonic() + timeout_s
    while not said():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def stored(found: Secured) -> int:
    """Messages that consumers may see."""
    return sum(each.stable_offset for each in found.app.node.kernel.catalog.topic("orders").partitions)


def test_producing_and_consuming(found: Secured, shell: Any) -> None:
    producer = shell.make("Producer", "p", **options(found))
    producer.start()
    # Larger than a record of TLS, than what is hashed in the loop, and than what the client compresses well.
    large = random.Random(7).randbytes(1 << 20) + b"the end"
    bodies = [b"one", large, *(b"%d" % number for number in range(20))]
    for body in bodies:
        producer.send(Message("orders", body))
    got: list[bytes] = []

    def listener(messages: Any, context: Any) -> Status:
        got.extend(message.body for message in messages)
        return Status.SUCCESS

    consumer = shell.make(
        "PushConsumer", "g", listener, "orders", consume_from=ConsumeFrom.FIRST, **options(found, tls=context(found))
    )
    consumer.start()
    until(lambda: len(got) >= len(bodies))
    assert sorted(got) == sorted(bodies)
    consumer.close()
    producer.close()
    assert found.app.rocketmq.signatures.results["failed"] == 0


def context(found: Secured) -> ssl.SSLContext:
    return found.authority.client()


def test_what_a_user_may_not(found: Secured, shell: Any) -> None:
    producer = shell.make("Producer", "p", **options(found, "bob"))
    producer.start()
    with pytest.raises(ClientError):
        producer.send(Message("orders", b"one"))
    producer.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret_key": "wrong"},
        {"access_key": "nobody"},
        {"access_key": None, "secret_key": None},
        {"tls": None},
    ],
    ids=["secret", "user", "unsigned", "plain"],
)
def test_who_is_not_let_in(found: Secured, shell: Any, wrong: dict[str, Any]) -> None:
    producer = shell.make("Producer", "p", timeout_ms=2_000, **{**options(found), **wrong})
    producer.start()
    with pytest.raises(ClientError):
        producer.send(Message("orders", b"one"))
    producer.close()


def test_a_broker_that_is_not_trusted(found: Secured, shell: Any, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    producer = shell.make("Producer", "p", timeout_ms=2_000, **options(found, tls=other.path))
    producer.start()
    with pytest.raises(ClientError, match=r"certificate|cannot be reached|name server"):
        producer.send(Message("orders", b"one"))
    producer.close()


def test_transactions(found: Secured, shell: Any) -> None:
    let(found, "alice write transactional_id p")
    told = shell.transactions(lambda message, argument: argument, lambda message: TransactionState.COMMIT)
    producer = shell.make("TransactionProducer", "p", told, **options(found))
    producer.start()
    for state in (TransactionState.COMMIT, TransactionState.ROLLBACK):
        assert producer.send_in_transaction(Message("orders", state.name.encode()), state).state is state
    until(lambda: stored(found) == 1)
    producer.close()


def test_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="belong together"):
        Producer("p", access_key="alice")
    with pytest.raises(ConfigError, match="belong together"):
        Producer("p", access_key="alice", secret_key="")
    with pytest.raises(ConfigError, match="expected an ssl"):
        Producer("p", tls=True)
    with pytest.raises(ConfigError, match="nowhere"):
        Producer("p", tls=tmp_path / "nowhere")
    (tmp_path / "none.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"none\.pem"):
        halfmoon.client.PullConsumer("g", tls=tmp_path / "none.pem")


# Strangers.


class Stranger:
    """A connection by TLS that speaks as it likes."""

    def __init__(self, found: Secured, address: str) -> None:
        host, _, port = address.rpartition(":")
        plain = socket.create_connection((host, int(port)), 20)
        self._socket = context(found).wrap_socket(plain, server_hostname=host)
        self._stream = self._socket.makefile("rb")

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        self.send(code, body, **fields)
        return self.answer()

    def send(self, code: int, body: bytes = b"", **fields: Any) -> None:
        said = {name: str(value) for name, value in fields.items()}
        self._socket.sendall(wire.encode(Command(code, 7, 0, 479, "JAVA", None, said, body, JSON)))

    def answer(self) -> Command:
        start = self._stream.read(4)
        if not start:
            raise EOFError
        (size,) = struct.unpack(">i", start)
        return wire.decode(memoryview(self._stream.read(size)))

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@pytest.fixture
def strangers(found: Secured) -> Iterator[Callable[..., Stranger]]:
    made: list[Stranger] = []

    def connect(address: str = "") -> Stranger:
        made.append(Stranger(found, address or found.broker.rocketmq))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def signed(name: str, secret: str, body: bytes = b"", **fields: Any) -> dict[str, str]:
    said = {each: str(value) for each, value in fields.items()} | {"AccessKey": name}
    return {**said, "Signature": signature(secret, said, body, 479)}


def test_strangers_on_both_ports(found: Secured, strangers: Callable[..., Stranger]) -> None:
    for address in (found.broker.rocketmq, found.broker.namesrv):
        stranger = strangers(address)
        for given in ({}, {"AccessKey": "alice"}, signed("alice", "wrong", topic="orders")):
            begun_s = time.monotonic()
            answer = stranger.ask(105, **{"topic": "orders", **given})
            assert answer.code == Code.NO_PERMISSION
            assert time.monotonic() - begun_s >= 0.1
        right = signed("alice", SECRETS["alice"], topic="orders")
        assert stranger.ask(105, **right).code == Code.TOPIC_NOT_EXIST
        assert stranger.ask(105, **{**right, "topic": "others"}).code == Code.NO_PERMISSION
    assert found.app.rocketmq.signatures.results == {"failed": 8, "ok": 2}


def ask_on(stranger: Stranger) -> None:
    """Until the connection ends."""
    while True:
        assert stranger.ask(105, topic="orders").code == Code.NO_PERMISSION


def test_who_never_signs_is_closed(found: Secured, strangers: Callable[..., Stranger]) -> None:
    silent, wrong = (strangers() for _ in range(2))
    begun_s = time.monotonic()
    with pytest.raises((EOFError, OSError)):
        ask_on(wrong)
    assert time.monotonic() - begun_s < 6
    with pytest.raises((EOFError, OSError)):
        silent.answer()


def test_others_are_served_while_somebody_guesses(found: Secured) -> None:
    stop = threading.Event()

    def guess() -> None:
        while not stop.is_set():
            stranger = Stranger(found, found.broker.rocketmq)
            for number in range(5):
                stranger.send(310, b"x", **signed("alice", f"guess {number}", b"x", **sending("orders", 0, "")))
            stranger.close()

    guessing = [threading.Thread(target=guess) for _ in range(4)]
    for each in guessing:
        each.start()
    try:
        with Producer("p", **options(found)) as producer:
            for _ in range(50):
                producer.send(Message("orders", b"one"))
    finally:
        stop.set()
        for each in guessing:
            each.join()
    assert stored(found) == 50


def test_disabling_ends_what_waits(found: Secured, strangers: Callable[..., Stranger]) -> None:
    """A pull that is held is answered to nobody; nor is anything that comes next."""
    with Producer("p", default_queues=1, **options(found)) as producer:
        producer.send(Message("orders", b"one"))
    alice = strangers()
    pull = {
        "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 1, "maxMsgNums": 1, "sysFlag": 6,
        "commitOffset": 0, "suspendTimeoutMillis": 15_000,
    }  # fmt: skip
    alice.send(11, **signed("alice", SECRETS["alice"], **pull))
    until(lambda: any(each.held for each in found.app.rocketmq._connections if hasattr(each, "held")))
    begun_s = time.monotonic()
    found.in_loop(lambda: found.app.node.users.set_flags("alice", disabled=True))
    with pytest.raises((EOFError, OSError)):
        alice.answer()
    assert time.monotonic() - begun_s < 5
    with Producer("p", timeout_ms=2_000, **options(found)) as producer, pytest.raises(ClientError):
        producer.send(Message("orders", b"two"))


def test_by_the_next_request_a_right_is_gone(found: Secured) -> None:
    with Producer("p", **options(found)) as producer:
        producer.send(Message("orders", b"one"))
        let(found, "alice deny write topic orders")
        with pytest.raises(BrokerRefusedError) as refused:
            producer.send(Message("orders", b"two"))
    assert refused.value.code == Code.NO_PERMISSION


def test_what_is_counted(found: Secured, strangers: Callable[..., Stranger]) -> None:
    stranger = strangers()
    stranger.ask(105, topic="orders")
    stranger.ask(206, **signed("alice", SECRETS["alice"]))
    listed = json.loads(bytes(stranger.ask(206, **signed("bob", SECRETS["bob"])).body))
    assert listed == {"topicList": []}
    assert found.app.rocketmq.signatures.results == {"failed": 1, "ok": 2}
