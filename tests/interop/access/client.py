"""A connection that logs in with SCRAM-SHA-256 and asks anything, in our own codec."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import struct
from typing import Any

from halfmoon.kafka_wire.messages import RESPONSES
from tests.kafka_messages import read_answer, request_bytes

HANDSHAKE, AUTHENTICATE = 17, 36
MECHANISM = "SCRAM-SHA-256"


class ClosedError(ConnectionError):
    """The broker has ended the connection."""


class Connection:
    def __init__(self, bootstrap: str, user: str, password: str, *, token: bool = False) -> None:
        """`token`: user and password are a delegation token's id, and its HMAC in base64."""
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._correlation_id = 0
        assert self.ask(HANDSHAKE, 1, mechanism=MECHANISM).error_code == 0
        self._log_in(user, password, ",tokenauth=true" if token else "")

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """The answer. Its bytes are exactly what our codec makes of it. Raises ClosedError."""
        self._correlation_id += 1
        frame = self.exchange(request_bytes(key, version, self._correlation_id, "access", **fields))
        answer = read_answer(key, version, frame)
        body = RESPONSES[key].encoder(version)(answer)
        assert frame.endswith(body), f"the codec reads what it does not write: {frame.hex()} {body.hex()}"
        return answer

    def ask_by_hand(self, key: int, version: int, body: bytes) -> bytes:
        """The body of the answer to a request that the codec does not know, of a flexible version."""
        self._correlation_id += 1
        said = struct.pack(">hhih", key, version, self._correlation_id, 6) + b"access" + b"\0" + body
        return self.exchange(struct.pack(">i", len(said)) + said)[5:]

    def say(self, key: int, version: int, /, **fields: Any) -> None:
        """Ask what is not answered."""
        self._correlation_id += 1
        self._socket.sendall(request_bytes(key, version, self._correlation_id, "access", **fields))

    def exchange(self, request: bytes) -> bytes:
        """An answer's frame, from its correlation id on, to a request of any kind."""
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        assert frame[:4] == request[8:12], "the correlation id is another"
        return frame

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise ClosedError
            found += more
        return bytes(found)

    def _log_in(self, user: str, password: str, extension: str) -> None:
        """RFC 5802, the client's side."""
        first = f"n={user},r={base64.b64encode(os.urandom(18)).decode()}{extension}"
        said = self._authenticate(f"n,,{first}")
        challenge = dict(part.split("=", 1) for part in said.split(","))
        salted = salt_password(password, base64.b64decode(challenge["s"]), int(challenge["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={challenge['r']}"
        signature = hmac.digest(hashlib.sha256(key).digest(), f"{first},{said},{last}".encode(), "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._authenticate(f"{last},p={base64.b64encode(proof).decode()}")

    def _authenticate(self, said: str) -> str:
        answer = self.ask(AUTHENTICATE, 2, auth_bytes=said.encode())
        assert answer.error_code == 0, answer
        return bytes(answer.auth_bytes).decode()

    def close(self) -> None:
        self._socket.close()


def salt_password(password: str, salt: bytes, iterations: int = 4096) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
