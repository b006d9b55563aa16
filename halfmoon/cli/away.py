"""Says when the broker goes away, and when it is back, for commands that run on meanwhile.

A thread holds one connection and asks nothing on it. When that ends, it connects anew: where it cannot, nobody is
there. So nothing is polled while all is well, and the news comes at once.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from halfmoon.cli.connect import CLIENT_ID, CONNECT_TIMEOUT_S
from halfmoon.cli.errors import CliError, describe_kafka_error
from halfmoon.cli.kafka_connection import Connection
from halfmoon.securing.properties import PLAINTEXT, Security

RETRY_S = 0.2


class _Refused(Exception):  # noqa: N818
    """It is there, and does not let us in."""


class AwayWatch:
    """Use it as a context. `tell` gets a sentence, in the thread."""

    def __init__(
        self, servers: Sequence[tuple[str, tuple[str, int]]], tell: Callable[[str], None],
        security: Security = PLAINTEXT,
    ) -> None:  # fmt: skip
        """`servers`: each as it was written, and its host and port (`brokers.addresses`). `security`:
        a broker lets go of who does not log in."""
        self._servers = servers
        self._tell = tell
        self._security = security
        self._stopped = threading.Event()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._watch, name="halfmoon-away", daemon=True)

    def __enter__(self) -> AwayWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        connection = self._connection
        if connection is not None:
            _end(connection)
        self._thread.join(timeout=1)

    def _watch(self) -> None:
        is_away = False
        while not self._stopped.is_set():
            connection, problem = self._connect()
            if connection is None:
                if not is_away:
                    self._tell(f"halfmoon: no broker answers at {problem}; waiting for it")
                is_away = True
                self._stopped.wait(RETRY_S)
                continue
            if is_away:
                self._tell("halfmoon: the broker is back")
            is_away = False
            self._until_it_ends(connection)

    def _connect(self) -> tuple[socket.socket | None, str]:
        """A connection to the first server that accepts one, or what is wrong with the first."""
        problem = ""
        for server, address in self._servers:
            try:
                connection = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
            except OSError as error:
                problem = problem or f"{server}: {error.strerror or error}"
                continue
            if self._security is not PLAINTEXT:
                connection.close()
                try:
                    connection = self._let_in(address)
                except _Refused as error:
                    problem = problem or f"{server}: {error}"
                    continue
            connection.settimeout(None)
            return connection, ""
        return None, problem

    def _let_in(self, address: tuple[str, int]) -> socket.socket:
        from kafka.errors import KafkaError

        try:
            return Connection(address, CLIENT_ID, self._security).release()
        except KafkaError as error:
            raise _Refused(describe_kafka_error(error)) from None
        except CliError as error:
            raise _Refused(str(error)) from None

    def _until_it_ends(self, connection: socket.socket) -> None:
        self._connection = connection
        if not self._stopped.is_set():
            try:
                connection.recv(1)
            except OSError:
                pass
            else:
                # It was closed in order, as brokers do with idle connections, and when they stop.
                self._stopped.wait(RETRY_S / 4)
        self._connection = None
        connection.close()


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has ended by itself
