"""One connection to a Kafka broker that asks one request at a time, in the newest version that both ends know."""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any

from halfmoon.kafka_wire.errors import MalformedRequest
from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES
from halfmoon.kafka_wire.primitives import encode_string

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
TIMEOUT_S = 30.0
MOST_ANSWER_BYTES = 256 << 20


class Connection:
    """Raises kafka-python's errors, as all that the command line asks does: KafkaConnectionError where the broker does
    not answer, UnsupportedVersionError where it does not know the request."""

    def __init__(self, address: tuple[str, int], client_id: str) -> None:
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._where = f"{address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        except OSError as error:
            raise self._lost(error) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        answer = self._exchange(API_VERSIONS, 0, {})
        self._offered: dict[int, tuple[int, int]] = {
            row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
        }

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, key: int, /, at_most: int | None = None, **fields: Any) -> Any:
        """The answer to a request, in version `at_most` or an older one."""
        return self._exchange(key, self.version(key, at_most), fields)

    def version(self, key: int, at_most: int | None = None) -> int:
        """The one that a request is sent in. Raises UnsupportedVersionError."""
        from kafka.errors import UnsupportedVersionError

        known = REQUESTS[key].api.last_version if at_most is None else at_most
        first, last = self._offered.get(key, (0, -1))
        if min(known, last) < first:
            raise UnsupportedVersionError(REQUESTS[key].name)
        return min(known, last)

    def _exchange(self, key: int, version: int, fields: dict[str, Any]) -> Any:
        request, flexible = REQUESTS[key], REQUESTS[key].api.is_flexible(version)
        number = next(self._correlation_ids)
        header = struct.pack(">hhi", key, version, number) + encode_string(self._client_id, False) + b"\0" * flexible
        said = header + request(**fields).encode(version)
        try:
            self._socket.sendall(struct.pack(">i", len(said)) + said)
            answer = self._receive()
        except OSError as error:
            raise self._lost(error) from None
        if int.from_bytes(answer[:4], "big") != number:
            raise self._lost("an answer to another request")
        start = 4 + (flexible and key != API_VERSIONS)
        try:
            return RESPONSES[key].decode(memoryview(answer)[start:], version)
        except MalformedRequest as error:
            raise self._lost(error) from None

    def _receive(self) -> bytes:
        """Raises OSError."""
        head = self._stream.read(4)
        size = int.from_bytes(head, "big")
        if len(head) < 4 or size > MOST_ANSWER_BYTES:
            raise ConnectionError("the broker closed the connection" if len(head) < 4 else f"an answer of {size} bytes")
        answer = self._stream.read(size)
        if len(answer) < size:
            raise ConnectionError("the broker closed the connection")
        return answer

    def _lost(self, reason: object) -> Exception:
        from kafka.errors import KafkaConnectionError

        said: Exception = KafkaConnectionError(f"{self._where}: {reason}")
        return said
