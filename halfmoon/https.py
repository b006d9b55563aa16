"""One request over HTTPS, in the caller's thread: no redirects, no proxies, bounds on its time and on its answer."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

TIMEOUT_S = 5.0


class HttpsError(Exception):
    """No answer that could be used. The text names no secret."""


def request(
    url: str,
    *,
    ca: str | None = None,
    authorities: str = "",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    most_bytes: int = 64 << 10,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """The body of a 200. `ca`: a PEM file with the authorities of the other end's certificate, `authorities`: the same
    as a text; without both: the machine's. `body`: is posted. The time is that of all together, except for the name's
    look-up. Raises HttpsError."""
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.hostname is None:
        raise HttpsError(f"{url} is not https://HOST/PATH")
    is_over = threading.Event()
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        context = ssl.create_default_context(cafile=ca, cadata=authorities or None)
        plain = socket.create_connection((parts.hostname, parts.port or 443), timeout_s)
        with plain, context.wrap_socket(
            plain, server_hostname=parts.hostname, do_handshake_on_connect=False
        ) as encrypted:  # fmt: skip
            # A timeout of the socket's is for each read: who sends a byte now and then would never reach it.
            ends = threading.Timer(timeout_s, _hang_up, (encrypted, is_over))
            ends.daemon = True
            ends.start()
            try:
                encrypted.do_handshake()
                found = _asked(encrypted, parts.netloc, path, body, headers or {}, most_bytes)
            except HttpsError:
                if not is_over.is_set():
                    raise
            finally:
                ends.cancel()
            if is_over.is_set():  # to a reader the end that we made looks like the server's
                raise TimeoutError
            return found
    except ssl.SSLCertVerificationError as error:
        raise HttpsError(f"its certificate is not trusted: {error.verify_message}") from None
    except TimeoutError:
        raise HttpsError(f"no answer within {timeout_s:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if is_over.is_set():
            raise HttpsError(f"no answer within {timeout_s:g} s") from None
        raise HttpsError(str(error) or type(error).__name__) from None


def _asked(
    encrypted: ssl.SSLSocket, host: str, path: str, body: bytes | None, headers: Mapping[str, str], most_bytes: int
) -> bytes:
    connection = http.client.HTTPConnection(host)
    connection.sock = encrypted
    given = {"Accept": "application/json", "Connection": "close", **headers}
    connection.request("GET" if body is None else "POST", path, body, given)
    with connection.getresponse() as answer:
        if answer.status != http.HTTPStatus.OK:
            raise HttpsError(f"it answered with status {answer.status}")
        found = answer.read(most_bytes + 1)
        if len(found) > most_bytes:
            raise HttpsError(f"it answered with more than {most_bytes} bytes")
        if answer.length:
            raise HttpsError("its answer was cut short")
        return found


def _hang_up(encrypted: ssl.SSLSocket, is_over: threading.Event) -> None:
    is_over.set()
    try:
        encrypted.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is over, or was not begun
