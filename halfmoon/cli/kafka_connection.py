"""One connection to a Kafka broker that asks one request at a time, in the newest version that both ends know."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.scram import MECHANISMS, ScramClient
from halfmoon.kafka_wire.errors import MalformedRequest
from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES
from halfmoon.kafka_wire.primitives import encode_string
from halfmoon.securing import clients as securing
from halfmoon.securing.properties import PLAINTEXT, Security

if TYPE_CHECKING:
    from halfmoon.cli.brokers import Address
    from halfmoon.securing.access_tokens import OauthLogin

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
UNSUPPORTED_VERSION = 35
TIMEOUT_S = 60.0
MOST_ANSWER_BYTES = 256 << 20
CLOSED = "the broker closed the connection"


class Connection:
    """Encrypted, and authenticated, as `security` says.

    Raises kafka-python's errors, as all that the command line asks does: KafkaConnectionError where the broker does
    not answer, UnsupportedVersionError where it does not know the request, BrokerResponseErrors where it does not let
    us in. Raises SecurityError for a certificate that cannot be used.
    """

    def __init__(self, address: Address, client_id: str, security: Security = PLAINTEXT) -> None:
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._where = str(address) if isinstance(address, Path) else f"{address[0]}:{address[1]}"
        self._hint = ""
        try:
            self.socket = _opened(address, security)
        except OSError as error:
            raise self._lost(securing.said(error)) from None
        self._stream = self.socket.makefile("rb")
        if security is PLAINTEXT and not isinstance(address, Path):
            self._hint = "; does it ask for TLS or for a password (--command-config)?"
        try:
            self._begin(security)
        except BaseException:
            self.close()
            raise

    def _begin(self, security: Security) -> None:
        answer = self._exchange(API_VERSIONS, 0, {})
        self._offered: dict[int, tuple[int, int]] = {
            row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
        }
        if security.mechanism:
            self._log_in(security)

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def release(self) -> socket.socket:
        """The socket, for the caller to close."""
        self._stream.detach()
        return self.socket

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

    def ask_own(self, key: int, body: bytes) -> bytes:
        """The answer to an API of Halfmoon's own, which has version 0 alone."""
        number = next(self._correlation_ids)
        return self._answer(struct.pack(">hhi", key, 0, number) + encode_string(self._client_id, False) + body, number)

    def _log_in(self, security: Security) -> None:
        """Raises what the broker says of it."""
        from kafka.errors import SaslAuthenticationFailedError, for_code

        answer = self.ask(SASL_HANDSHAKE, mechanism=security.mechanism)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise for_code(answer.error_code)(f"{security.mechanism}; the broker offers {offered or 'none'}")
        if security.oauth is not None:
            self._say_token(security.oauth)
            return
        if security.mechanism == "PLAIN":
            self._say(f"\0{security.username}\0{security.password}".encode())
            return
        more = {"tokenauth": "true"} if security.is_token else None
        mechanism = MECHANISMS[security.mechanism]
        client = ScramClient(mechanism, security.username, security.password, secrets.token_urlsafe(24), more)
        try:
            client.verify(self._say(client.final(self._say(client.first()))))
        except AuthenticationError as error:
            raise SaslAuthenticationFailedError(str(error)) from None

    def _say_token(self, login: OauthLogin) -> None:
        """Raises what the broker says of it, and SecurityError where there is no token."""
        from kafka.errors import SaslAuthenticationFailedError

        from halfmoon.auth.oauth import ACKNOWLEDGED, message
        from halfmoon.securing.access_tokens import source_of

        source = source_of(login)
        refusal = self._say(message(source.token(), source.extensions))
        if refusal:
            self._say(ACKNOWLEDGED)  # which the broker answers by an error
            raise SaslAuthenticationFailedError(refusal.decode("ascii", "replace"))

    def _say(self, token: bytes) -> bytes:
        from kafka.errors import for_code

        answer = self.ask(SASL_AUTHENTICATE, auth_bytes=token)
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or "")
        said: bytes = answer.auth_bytes
        return said

    def _exchange(self, key: int, version: int, fields: dict[str, Any]) -> Any:
        request, flexible = REQUESTS[key], REQUESTS[key].api.is_flexible(version)
        number = next(self._correlation_ids)
        header = struct.pack(">hhi", key, version, number) + encode_string(self._client_id, False) + b"\0" * flexible
        answer = self._answer(header + request(**fields).encode(version), number)
        try:
            return RESPONSES[key].decode(memoryview(answer)[flexible and key != API_VERSIONS :], version)
        except MalformedRequest as error:
            raise self._lost(error) from None

    def _answer(self, request: bytes, number: int) -> bytes:
        """What stands behind the answer's correlation id."""
        try:
            self.socket.sendall(struct.pack(">i", len(request)) + request)
            answer = self._receive()
        except (BrokenPipeError, ConnectionResetError):
            raise self._lost(CLOSED + self._hint) from None
        except OSError as error:
            raise self._lost(securing.said(error) + self._hint) from None
        if int.from_bytes(answer[:4], "big") != number:
            raise self._lost("an answer to another request")
        return answer[4:]

    def _receive(self) -> bytes:
        """Raises OSError."""
        head = self._stream.read(4)
        size = int.from_bytes(head, "big")
        if len(head) < 4 or size > MOST_ANSWER_BYTES:
            raise ConnectionError(CLOSED if len(head) < 4 else f"an answer of {size} bytes")
        answer = self._stream.read(size)
        if len(answer) < size:
            raise ConnectionError(CLOSED)
        return answer

    def _lost(self, reason: object) -> Exception:
        from kafka.errors import KafkaConnectionError

        said: Exception = KafkaConnectionError(f"{self._where}: {reason}")
        return said


def _opened(address: Address, security: Security) -> socket.socket:
    """Raises OSError, and SecurityError."""
    if isinstance(address, Path):
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        opened = socket.create_connection(address, timeout=TIMEOUT_S)
    try:
        opened.settimeout(TIMEOUT_S)
        if isinstance(address, Path):
            opened.connect(os.fspath(address))
            return opened
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security.encrypts:
            return securing.context(security).wrap_socket(opened, server_hostname=address[0])
    except BaseException:
        opened.close()
        raise
    return opened
