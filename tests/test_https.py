"""Requests over HTTPS: what a server may not do to who asks it."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from halfmoon import https
from halfmoon.https import HttpsError
from tests.security.authority import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def answering(authority: Authority, answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Where a server is that does this with its first connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.pair("server")
    context.load_cert_chain(pair["cert"], pair["key"])

    def serve() -> None:
        try:
            accepted, _ = server.accept()
            with accepted, context.wrap_socket(accepted, server_side=True) as encrypted:
                encrypted.recv(8_192)
                answer(encrypted)
        except OSError:
            pass  # who asked has hung up

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://localhost:{server.getsockname()[1]}/x"
        thread.join(10)


def says(text: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(text)


def test_an_answer(authority: Authority) -> None:
    with answering(authority, says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")) as url:
        assert https.request(url, ca=authority.path) == b"{}"


@pytest.mark.parametrize(("answer", "said"), [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "cut short"),
    (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_001, "more than 1000 bytes"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 1_001, "more than 1000 bytes"),
    (b"HTTP/1.1 301 Moved\r\nLocation: https://localhost/\r\n\r\n", "status 301"),
    (b"SSH-2.0-OpenSSH_9.0\r\n", "SSH-2.0"),
    (b"", "closed connection without response"),
])  # fmt: skip
def test_what_is_no_answer(authority: Authority, answer: bytes, said: str) -> None:
    with answering(authority, says(answer)) as url, pytest.raises(HttpsError, match=said):
        https.request(url, ca=authority.path, most_bytes=1_000)


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"])
def test_the_time_is_that_of_all_together(authority: Authority, begin: bytes) -> None:
    """A server that says a byte now and then keeps nobody."""

    def drips(connection: socket.socket) -> None:
        connection.sendall(begin)
        for _ in range(100):
            connection.sendall(b"x")
            time.sleep(0.1)

    with answering(authority, drips) as url:
        begun_s = time.monotonic()
        with pytest.raises(HttpsError, match=r"no answer within 0\.5 s"):
            https.request(url, ca=authority.path, timeout_s=0.5)
        assert time.monotonic() - begun_s < 4


@pytest.mark.parametrize("url", ["http://localhost:1/x", "https:///x", "file:///etc/passwd"])
def test_nothing_but_https(url: str) -> None:
    with pytest.raises(HttpsError, match="is not https"):
        https.request(url)
