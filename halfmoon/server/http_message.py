"""The little of HTTP/1.1 that an admin port needs: a request's head in, an answer out. Bytes only, no socket.

Strict where leniency has been a way in (RFC 9112): CRLF line ends, one space between the words of the request line, no
folded headers, and no body at all, since nothing here takes one.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import NamedTuple

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (/[!-~]*) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


class BadRequestError(Exception):
    """What was received is no request that is answered here; the connection cannot go on."""


class Request(NamedTuple):
    """`path` is without the query; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool

    @property
    def wants_json(self) -> bool:
        return "application/json" in self.headers.get("accept", "").lower()


class Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def parse(head: bytes) -> Request:
    """A request's head, the empty line at its end included. Raises BadRequestError."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    matched = _REQUEST_LINE.fullmatch(first)
    if matched is None:
        raise BadRequestError("not a request line of HTTP/1.0 or 1.1")
    method, target, minor = matched.groups()
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequestError("not a header line")
        name, value = header[1].decode().lower(), header[2].decode("latin-1").rstrip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if minor == b"1" and "host" not in headers:
        raise BadRequestError("no Host header")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadRequestError("a request with a body")
    connection = headers.get("connection", "keep-alive" if minor == b"1" else "close").lower()
    return Request(method.decode(), target.decode().partition("?")[0], headers, "close" not in connection)


def encode(answer: Answer, *, keep_alive: bool, with_body: bool = True) -> list[bytes]:
    """What to send, piece by piece: bodies are large. Without it (HEAD) the length is the body's all the same."""
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
        *(f"{name}: {value}" for name, value in answer.headers),
    ]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return [head, answer.body] if with_body else [head]
