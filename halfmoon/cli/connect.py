"""Connections of the client commands: consumers and producers by kafka-python, with its noise turned into one line.

Whether anything listens is asked with a plain connect first: kafka-python would go on trying for half a minute, and say
at the end only that time ran out.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from halfmoon.cli.brokers import Address, Brokers, Server
from halfmoon.cli.errors import CliError
from halfmoon.cli.kafka_connection import Connection
from halfmoon.securing import clients as securing

if TYPE_CHECKING:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    from halfmoon.cli.admin_client import AdminClient, Offsets

CONNECT_TIMEOUT_S = 5.0
BOOTSTRAP_TIMEOUT_MS = 15_000
RETRY_FOR_S = 15.0
RETRY_PAUSE_S = 0.25
RECONNECT_MS = 250
CLIENT_ID = "halfmoon-cli"
METADATA = 3

AnswerT = TypeVar("AnswerT")


@contextmanager
def admin(brokers: Brokers, *, local: bool = False) -> Iterator[AdminClient]:
    """An admin client, closed at the end. `local`: as of Brokers.servers."""
    from halfmoon.cli.admin_client import AdminClient

    servers = brokers.servers(local=local)
    reached = reach(servers, nobody)
    found = [address for _, address in servers[reached:]]
    with _closing(AdminClient(found, CLIENT_ID, brokers.security)) as client:
        yield client


@contextmanager
def connection(brokers: Brokers, *, local: bool = False) -> Iterator[Connection]:
    """To the first broker that answers, closed at the end. `local`: as of Brokers.servers."""
    servers = brokers.servers(local=local)
    with _closing(Connection(servers[reach(servers, nobody)][1], CLIENT_ID, brokers.security)) as opened:
        yield opened


@contextmanager
def consumer(brokers: Brokers, **settings: Any) -> Iterator[KafkaConsumer]:
    """A consumer that creates no topics and commits nothing by itself, closed at the end."""
    from kafka import KafkaConsumer

    fixed = {
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
        "reconnect_backoff_max_ms": RECONNECT_MS,  # kafka-python's default of 30 s is for many clients of a cluster
    }
    with _closing(KafkaConsumer(**_common(brokers), **fixed, **settings), autocommit=False) as client:
        yield client


@contextmanager
def producer(brokers: Brokers, **settings: Any) -> Iterator[KafkaProducer]:
    """A producer; what it still holds when an error or Ctrl-C ends the command is given a moment, then dropped."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaTimeoutError

    class Producer(KafkaProducer):  # type: ignore[misc]
        def flush(self, timeout: float | None = None) -> None:
            """With a timeout: what is not answered by then is left. kafka-python raises, and then `close` neither ends
            the producer's thread nor lets the error through that ended the command."""
            with suppress(*(() if timeout is None else (KafkaTimeoutError,))):
                super().flush(timeout)

    with _closing(Producer(**_common(brokers), metrics_enabled=False, **settings), timeout=2) as client:
        yield client


def patiently(ask: Callable[[], AnswerT]) -> AnswerT:
    """`ask()`, again while the broker says "later": a Kafka whose coordinator is still loading does."""
    from kafka.errors import BrokerResponseError, KafkaError, UnknownTopicOrPartitionError

    deadline = time.monotonic() + RETRY_FOR_S
    while True:
        try:
            return ask()
        except KafkaError as error:
            later = isinstance(error, BrokerResponseError) and error.retriable
            if not later or isinstance(error, UnknownTopicOrPartitionError) or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE_S)


def offsets_of(client: AdminClient, queues: Iterable[TopicPartition], *at: int) -> list[Offsets]:
    """Of these partitions at each of these times, as AdminClient.offsets has them, patiently: a partition's leader may
    just have changed."""
    asked = list(queues)
    return [patiently(partial(client.offsets, asked, time_ms)) for time_ms in at]


def nobody(problem: str) -> CliError:
    return CliError(
        f"no broker answers at {problem}; start one (halfmoon serve) or specify another address (-b HOST:PORT)"
    )


def _common(brokers: Brokers) -> dict[str, Any]:
    from kafka import KafkaConsumer

    servers = brokers.tcp_servers()
    reached = reach(servers, nobody)
    # kafka-python would try a wrong password again and again, and a listener that wants another protocol, too.
    probe = Connection(servers[reached][1], CLIENT_ID, brokers.security)
    try:
        probe.ask(METADATA, topics=[], allow_auto_topic_creation=False)
    finally:
        probe.close()
    common: dict[str, Any] = {"bootstrap_servers": [server for server, _ in servers], "client_id": CLIENT_ID}
    common |= securing.kafka_python(brokers.security)
    if "bootstrap_timeout_ms" in KafkaConsumer.DEFAULT_CONFIG:  # not in kafka-python 2, which tries once
        common["bootstrap_timeout_ms"] = BOOTSTRAP_TIMEOUT_MS
    return common


def reach(servers: Sequence[Server], unreached: Callable[[str], CliError]) -> int:
    """Which of the servers is the first to accept a connection. Raises what `unreached` makes of the first problem."""
    problem = ""
    for number, (server, address) in enumerate(servers):
        try:
            _touch(address)
            return number
        except OSError as error:
            problem = problem or f"{server}: {error.strerror or error}"
    raise unreached(problem)


def _touch(address: Address) -> None:
    """Raises OSError where nothing listens."""
    if isinstance(address, Path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as touching:
            touching.settimeout(CONNECT_TIMEOUT_S)
            touching.connect(os.fspath(address))
    else:
        socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()


@contextmanager
def _closing(client: Any, **how: Any) -> Iterator[Any]:
    try:
        yield client
    except BaseException:
        with suppress(Exception):  # what has ended the command counts; kafka-python may fail when it is closed then
            client.close(**how)
        raise
    client.close(**how)
