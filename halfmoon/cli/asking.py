"""Asking the broker what no API of Kafka's can say: our own APIs, HalfmoonMessages and HalfmoonUsers
(adapters/kafka/api/api_18502_messages.py, api_18503_users.py)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from halfmoon.cli.connect import CLIENT_ID, CONNECT_TIMEOUT_S, addresses, nobody
from halfmoon.cli.errors import CliError
from halfmoon.cli.options import DEFAULT_BOOTSTRAP_SERVER
from halfmoon.services.credentials import questions as users
from halfmoon.services.keyindex.questions import Answer, Find, Nacked, Show

MESSAGES, USERS = 18502, 18503
ANSWER_TIMEOUT_S = 60.0


def ask(bootstrap_server: str, question: Find | Show | Nacked) -> Answer:
    """Raises CliError where the broker refuses, or knows no such question."""
    answer = msgspec.json.decode(_ask(bootstrap_server, MESSAGES, question), type=Answer)
    return _accepted(answer)


def ask_about_users(bootstrap_server: str, question: users.Question) -> users.Answer:
    """Raises CliError where the broker refuses, or knows no such question."""
    answer = msgspec.json.decode(_ask(bootstrap_server, USERS, question, local=True), type=users.Answer)
    return _accepted(answer)


AnswerT = TypeVar("AnswerT", Answer, users.Answer)


def _accepted(answer: AnswerT) -> AnswerT:
    if answer.fault:
        raise CliError(answer.message or answer.fault)
    return answer


def admin_socket() -> Path | None:
    """Of the broker whose data directory is the default one here, where it has one."""
    path = Path(os.environ.get("HALFMOON_NODE_DATA_DIR") or "./data") / "admin.sock"
    return path if path.is_socket() else None


def _doors(bootstrap_server: str, *, local: bool) -> Iterator[tuple[str, Callable[[], socket.socket]]]:
    """Where to ask, for people, and what connects there. `unix:PATH` is a socket of the file system's. `local`: where
    no broker was named, the administrator's socket comes first."""
    path = admin_socket() if local and bootstrap_server == DEFAULT_BOOTSTRAP_SERVER else None
    if path is not None:
        yield str(path), partial(_at_path, path)
    elif bootstrap_server.startswith("unix:"):
        given = Path(bootstrap_server.removeprefix("unix:"))
        yield str(given), partial(_at_path, given)
    else:
        for server, address in addresses(bootstrap_server):
            yield server, partial(socket.create_connection, address, timeout=CONNECT_TIMEOUT_S)


def _at_path(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(CONNECT_TIMEOUT_S)
    try:
        made.connect(os.fspath(path))
    except OSError:
        made.close()
        raise
    return made


def _ask(bootstrap_server: str, key: int, question: msgspec.Struct, *, local: bool = False) -> bytes:
    problem = ""
    for server, connect in _doors(bootstrap_server, local=local):
        try:
            connection = connect()
        except OSError as error:
            problem = problem or f"{server}: {error.strerror or error}"
            continue
        with connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            try:
                return _exchange(connection, key, msgspec.json.encode(question))
            except (EOFError, ConnectionError):
                raise CliError(f"{server} closed the connection: it is not Halfmoon, or an older version") from None
            except TimeoutError:
                raise CliError(f"{server} did not answer within {ANSWER_TIMEOUT_S:.0f} s") from None
    raise nobody(problem)


def _exchange(connection: socket.socket, key: int, body: bytes) -> bytes:
    """Raises EOFError where the broker hangs up."""
    client = CLIENT_ID.encode()
    request = struct.pack(">hhih", key, 0, 1, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return _receive(connection, size)[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        try:
            part = connection.recv(size - len(received))
        except ConnectionResetError:
            part = b""
        if not part:
            raise EOFError
        received += part
    return bytes(received)
