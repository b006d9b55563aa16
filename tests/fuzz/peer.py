"""A client made of a bare socket: it sends whatever bytes, and parses what comes back."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import Counter
from typing import Any

from tests.kafka_messages import read_answer, request_bytes

TIMEOUT_S = 5.0
OPENED: Counter[str] = Counter()
"""How many connections had this address, since somebody cleared it: of thousands, some have the same port."""


class ClosedError(Exception):
    """The broker closed the connection."""


class Peer:
    """One connection."""

    def __init__(self, address: tuple[str, int], *, receive_bytes: int = 0) -> None:
        """`receive_bytes`: the kernel's receive buffer, where it should be small."""
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(TIMEOUT_S)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        host, port = self.socket.getsockname()
        OPENED[f"{host}:{port}"] += 1
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._correlation_id = 0

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send all, or as much as goes before the broker closes."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def frame(self, timeout_s: float = TIMEOUT_S) -> bytes:
        """The next whole response, without its size. Raises ClosedError, TimeoutError."""
        deadline = time.monotonic() + timeout_s
        received = self._received
        while True:
            if len(received) >= 4:
                (size,) = struct.unpack_from(">i", received)
                assert size >= 4, f"a response of {size} bytes"
                if len(received) >= 4 + size:
                    frame = bytes(received[4 : 4 + size])
                    del received[: 4 + size]
                    return frame
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionError:
                raise ClosedError from None
            if not data:
                raise ClosedError
            received += data

    def is_closed_within(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether the broker closes; answers that still come are thrown away."""
        try:
            while True:
                self.frame(timeout_s)
        except ClosedError:
            return True
        except TimeoutError:
            return False

    def ask(self, key: int, version: int, timeout_s: float = TIMEOUT_S, **fields: Any) -> Any:
        """Send one well-formed request, and decode its answer."""
        self.send(self.request(key, version, **fields))
        return self.answer(key, version, timeout_s)

    def request(self, key: int, version: int, **fields: Any) -> bytes:
        """A framed request."""
        self._correlation_id += 1
        return request_bytes(key, version, self._correlation_id, "canary", **fields)

    def answer(self, key: int, version: int, timeout_s: float = TIMEOUT_S) -> Any:
        """The next answer, which must be to the newest request."""
        frame = self.frame(timeout_s)
        assert struct.unpack_from(">i", frame)[0] == self._correlation_id, "an answer to something else"
        return read_answer(key, version, frame)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
