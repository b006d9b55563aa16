"""The admin port over real sockets, with an app behind it that says what a test wants."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest
from server_rig import in_loop, until

from halfmoon.server import metrics, readings
from halfmoon.server.http import HttpLimits, HttpServer, health_answer
from halfmoon.server.reading_types import Readings

GET = b"GET %s HTTP/1.1\r\nHost: here\r\n\r\n"


class StubApp:
    def __init__(self, problems: list[str] | None = None) -> None:
        self.problems = problems or []

    def health(self) -> list[str]:
        return self.problems

    def warnings(self) -> list[str]:
        return []


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: bytes, *, body: bool = True) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        content = await self.reader.readexactly(int(headers["Content-Length"])) if body else b""
        return int(status_line.split(" ")[1]), headers, content

    async def hung_up(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def serving(app: StubApp, **limits: Any) -> AsyncIterator[tuple[HttpServer, Callable[[], Awaitable[Client]]]]:
    server = HttpServer(app, HttpLimits(**limits))  # type: ignore[arg-type]
    address = await server.start(("127.0.0.1", 0))
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection(*address)))
        return clients[-1]

    try:
        yield server, connect
    finally:
        for client in clients:
            client.writer.close()
        await server.stop()


@in_loop
async def test_healthz_says_ok() -> None:
    async with serving(StubApp()) as (_, connect):
        status, headers, body = await (await connect()).ask(GET % b"/healthz")
    assert (status, body, headers["Content-Type"]) == (200, b"ok\n", "text/plain; charset=utf-8")


@in_loop
async def test_healthz_gives_the_reasons_one_to_a_line() -> None:
    async with serving(StubApp(["the disk\nis full", "so is the moon"])) as (_, connect):
        status, _, body = await (await connect()).ask(GET % b"/healthz?verbose")
    assert (status, body) == (503, b"the disk is full\nso is the moon\n")


@in_loop
async def test_healthz_in_json_where_accept_says_so() -> None:
    app = StubApp()
    async with serving(app) as (_, connect):
        client = await connect()
        request = b"GET /healthz HTTP/1.1\r\nHost: here\r\naccept: text/html, Application/JSON;q=0.5\r\n\r\n"
        well, app.problems = await client.ask(request), ["broken"]
        ill = await client.ask(request)
    assert well[1]["Content-Type"] == "application/json"
    assert (well[0], json.loads(well[2])) == (200, {"status": "ok", "reasons": [], "warnings": []})
    assert (ill[0], json.loads(ill[2])) == (503, {"status": "unhealthy", "reasons": ["broken"], "warnings": []})


def test_health_answer_is_the_same_whoever_asks() -> None:
    assert health_answer([], [], json_wanted=False).status is HTTPStatus.OK
    assert health_answer(["no"], [], json_wanted=True).status is HTTPStatus.SERVICE_UNAVAILABLE


def test_a_warning_is_told_and_no_reason_to_take_a_node_out_of_service() -> None:
    plain, machine = health_answer([], ["look\nhere"], json_wanted=False), health_answer([], ["x"], json_wanted=True)
    assert (plain.status, plain.body) == (HTTPStatus.OK, b"ok\nwarning: look here\n")
    assert (machine.status, json.loads(machine.body)) == (
        HTTPStatus.OK,
        {"status": "warning", "reasons": [], "warnings": ["x"]},
    )
    both = health_answer(["no"], ["x"], json_wanted=True)
    assert json.loads(both.body) == {"status": "unhealthy", "reasons": ["no"], "warnings": ["x"]}


@in_loop
async def test_head_answers_without_the_body_but_with_its_length() -> None:
    async with serving(StubApp()) as (_, connect):
        client = await connect()
        status, headers, _ = await client.ask(b"HEAD /healthz HTTP/1.1\r\nHost: here\r\n\r\n", body=False)
        assert (status, headers["Content-Length"]) == (200, "3")
        # Had the body been sent, this answer would begin with it.
        assert (await client.ask(GET % b"/healthz"))[0] == 200


@in_loop
async def test_unknown_paths_and_methods() -> None:
    async with serving(StubApp()) as (server, connect):
        client = await connect()
        assert (await client.ask(GET % b"/"))[0] == 404
        assert (await client.ask(GET % b"/healthz/"))[0] == 404
        status, headers, _ = await client.ask(b"DELETE /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        assert (await client.ask(GET % b"/healthz"))[0] == 200, "the connection lives on"
        assert server.counters.malformed == 0


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x00\x00\x10\x00\x12\x00\x03 what a Kafka client says\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: here\r\n\r\n",
        b"GET http://here/healthz HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\nHost: here\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: here\r\n folded\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost : here\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nok",
        b"GET /healthz HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_malformed_input_gets_a_400_and_is_hung_up_on(request_bytes: bytes) -> None:
    @in_loop
    async def test() -> None:
        async with serving(StubApp()) as (server, connect):
            client, other = await connect(), await connect()
            assert (await other.ask(GET % b"/healthz"))[0] == 200
            status, headers, _ = await client.ask(request_bytes)
            assert (status, headers["Connection"]) == (400, "close")
            assert await client.hung_up()
            assert (await other.ask(GET % b"/healthz"))[0] == 200, "other connections are not disturbed"
            assert server.counters.malformed == 1

    test()


@in_loop
async def test_a_request_that_is_too_large_is_refused() -> None:
    async with serving(StubApp(), head_bytes=512) as (_, connect):
        client = await connect()
        status, _, _ = await client.ask(b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: " + b"x" * 600)
        assert status == 431
        assert await client.hung_up()


@in_loop
async def test_a_request_that_does_not_end_runs_out_of_time() -> None:
    async with serving(StubApp(), request_s=0.02) as (_, connect):
        client = await connect()
        client.writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert await client.hung_up()


@in_loop
async def test_a_silent_connection_is_closed() -> None:
    async with serving(StubApp(), idle_s=0.02) as (_, connect):
        assert await (await connect()).hung_up()


@in_loop
async def test_connections_over_the_limit_are_hung_up_on_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is silent."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(server: HttpServer) -> bytes:
        asked.set()
        await go_on.wait()
        return b""

    monkeypatch.setattr(HttpServer, "_read_and_render", slowly)
    async with serving(StubApp(), connections=1) as (server, connect):
        first = await connect()
        asking = asyncio.create_task(first.ask(GET % b"/metrics"))
        await asked.wait()
        assert await (await connect()).hung_up()
        assert (server.counters.connections, server.counters.accepted, server.counters.refused) == (1, 1, 1)
        go_on.set()
        assert (await asking)[0] == 200
        await first.ask(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert await first.hung_up()
        await until(lambda: not server.counters.connections)
        assert (await (await connect()).ask(GET % b"/healthz"))[0] == 200


@in_loop
async def test_who_says_nothing_gives_way() -> None:
    """Silent, in the middle of a request, or between two of them: the longest silent one first."""
    async with serving(StubApp(), connections=3) as (server, connect):
        silent, begun, between = [await connect() for _ in range(3)]
        begun.writer.write(b"GET /heal")
        assert (await between.ask(GET % b"/healthz"))[0] == 200
        for number, gone in enumerate((silent, begun, between), 1):
            assert (await (await connect()).ask(GET % b"/healthz"))[0] == 200
            assert await gone.hung_up()
            assert server.counters.refused == number
        await until(lambda: server.counters.connections == 3)


@in_loop
async def test_malformed_requests_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(StubApp()) as (server, connect):
        for _ in range(20):
            assert (await (await connect()).ask(b"nonsense\r\n\r\n"))[0] == 400
        assert server.counters.malformed == 20
    assert sum("event=malformed_request" in record.getMessage() for record in caplog.records) < 20


@in_loop
async def test_connection_close_is_heeded_after_pipelined_requests() -> None:
    async with serving(StubApp()) as (_, connect):
        client = await connect()
        last = b"GET /nowhere HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        assert (await client.ask(GET % b"/healthz" + last))[0] == 200
        assert (await client.ask(b""))[0] == 404
        assert await client.hung_up()


@in_loop
async def test_stop_hangs_up_on_everybody() -> None:
    async with serving(StubApp()) as (server, connect):
        client = await connect()
        await client.ask(GET % b"/healthz")
        await server.stop()
        assert await client.hung_up()


@in_loop
async def test_metrics_are_rendered_off_the_loop_and_a_scrape_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    async def take(app: object) -> Readings:
        taken.append(app)
        await asyncio.sleep(0)
        return Readings()

    monkeypatch.setattr(readings, "take", take)
    monkeypatch.setattr(metrics, "render", lambda of: f"{len(taken)} {threading.current_thread().name}".encode())
    async with serving(StubApp()) as (server, connect):
        status, headers, body = await (await connect()).ask(GET % b"/metrics")
        assert (status, headers["Content-Type"]) == (200, metrics.CONTENT_TYPE)
        assert body.startswith(b"1 halfmoon-metrics")
        first, second = await asyncio.gather(server._metrics(), server._metrics())
        assert first == second
        assert len(taken) == 2


@in_loop
async def test_a_failing_scrape_is_a_500_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([OSError("no")])

    async def take(app: object) -> Readings:
        for failure in failures:
            raise failure
        return Readings()

    monkeypatch.setattr(readings, "take", take)
    monkeypatch.setattr(metrics, "render", lambda of: b"fine")
    async with serving(StubApp()) as (_, connect):
        client = await connect()
        assert (await client.ask(GET % b"/metrics"))[0] == 500
        assert (await client.ask(GET % b"/metrics"))[::2] == (200, b"fine")


@in_loop
async def test_a_client_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(app: object) -> Readings:
        return Readings()

    monkeypatch.setattr(readings, "take", take)
    monkeypatch.setattr(metrics, "render", lambda of: bytes(50 << 20))
    async with serving(StubApp(), send_s=0.05) as (server, connect):
        client = await connect()
        client.writer.write(GET % b"/metrics")
        await until(lambda: server.counters.connections == 1)
        await until(lambda: server.counters.connections == 0)
