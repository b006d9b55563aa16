"""Requests' heads and answers, as bytes. What is refused is in test_http.py, with what becomes of the connection."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from halfmoon.server.http_message import Answer, BadRequestError, encode, parse


def test_a_request_is_parsed() -> None:
    request = parse(b"GET /metrics?a=b HTTP/1.1\r\nHOST: here:80\r\nAccept:text/plain \r\naccept: */*\r\n\r\n")
    assert (request.method, request.path, request.keep_alive) == ("GET", "/metrics", True)
    assert request.headers == {"host": "here:80", "accept": "text/plain, */*"}
    assert not request.wants_json


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [("1.1", None, True), ("1.1", "Close", False), ("1.0", None, False), ("1.0", "Keep-Alive", True)],
)
def test_whether_the_connection_is_kept(version: str, connection: str | None, kept: bool) -> None:
    line = "" if connection is None else f"Connection: {connection}\r\n"
    assert parse(f"GET / HTTP/{version}\r\nHost: here\r\n{line}\r\n".encode()).keep_alive is kept


def test_a_nul_in_a_header_is_refused() -> None:
    with pytest.raises(BadRequestError, match="not a header line"):
        parse(b"GET / HTTP/1.1\r\nHost: he\x00re\r\n\r\n")


def test_an_answer_is_encoded() -> None:
    answer = Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"no\n", headers=(("Allow", "GET"),))
    expected = (
        b"HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n"
        b"Cache-Control: no-store\r\nConnection: close\r\nAllow: GET\r\n\r\n"
    )
    assert encode(answer, keep_alive=False) == [expected, b"no\n"]
    assert encode(answer, keep_alive=False, with_body=False) == [expected]
