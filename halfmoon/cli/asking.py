"""Asking the broker what no API of Kafka's can say: HalfmoonMessages (adapters/kafka/api/api_18502_messages.py)."""

from __future__ import annotations

import socket
import struct

import msgspec

from halfmoon.cli.connect import CLIENT_ID, CONNECT_TIMEOUT_S, addresses, nobody
from halfmoon.cli.errors import CliError
from halfmoon.services.keyindex.questions import Answer, Find, Nacked, Show

API_KEY = 18502
ANSWER_TIMEOUT_S = 60.0


def ask(bootstrap_server: str, question: Find | Show | Nacked) -> Answer:
    """Raises CliError where the broker refuses, or knows no such question."""
    problem = ""
    for server, address in addresses(bootstrap_server):
        try:
            connection = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            problem = problem or f"{server}: {error.strerror or error}"
            continue
        with connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            try:
                answer = _exchange(connection, msgspec.json.encode(question))
            except EOFError:
                raise CliError(f"{server} closed the connection: it is not Halfmoon, or an older version") from None
            except TimeoutError:
                raise CliError(f"{server} did not answer within {ANSWER_TIMEOUT_S:.0f} s") from None
        if answer.fault:
            raise CliError(answer.message or answer.fault)
        return answer
    raise nobody(problem)


def _exchange(connection: socket.socket, body: bytes) -> Answer:
    """Raises EOFError where the broker hangs up."""
    client = CLIENT_ID.encode()
    request = struct.pack(">hhih", API_KEY, 0, 1, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    return msgspec.json.decode(_receive(connection, size)[4:], type=Answer)


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
