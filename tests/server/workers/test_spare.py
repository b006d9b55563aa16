"""The process that stands by, and how a process gets the orders and sockets of a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from halfmoon.server.workers import spare
from halfmoon.server.workers.orders import MOST_FDS, Orders, receive, send
from halfmoon.server.workers.plan import Plan
from halfmoon.server.workers.spare import Spare
from halfmoon.testing import Broker


def orders(sockets: list[socket.socket]) -> Orders:
    admin, *others = sockets
    listening = [("127.0.0.1", port, each.fileno()) for port, each in enumerate(others)]
    return Orders(Plan("/data", 0, 1, 16, {}, {}), None, {"node.data_dir": "/ü" * 1_000}, [], admin.fileno(), listening)


@pytest.mark.parametrize("count", [1, 2, MOST_FDS, MOST_FDS + 5])
def test_orders_come_with_their_sockets(count: int) -> None:
    ours, theirs = socket.socketpair()
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    sent = orders(sockets)
    try:
        send(ours, sent)
        found = receive(theirs)
        assert found is not None
        assert found.plan == sent.plan
        assert found.flags == sent.flags
        fds = [found.admin_fd, *(fd for _, _, fd in found.listening)]
        received = [socket.socket(fileno=fd) for fd in fds]
        assert [each.getsockname() for each in received] == [each.getsockname() for each in sockets]
        assert [place[:2] for place in found.listening] == [place[:2] for place in sent.listening]
        assert not any(os.get_inheritable(fd) for fd in fds)
        for each in received:
            each.close()
    finally:
        for each in (*sockets, ours, theirs):
            each.close()


def test_a_supervisor_that_is_gone_has_no_orders() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b'{"plan"')
    ours.close()
    with theirs:
        assert receive(theirs) is None


def run(use: Callable[[Spare], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare, "AFTER_S", 0.0)

    async def body() -> None:
        found = Spare()
        try:
            await use(found)
        finally:
            await found.stop()

    asyncio.run(body())


async def there(found: Spare) -> spare.Spawned:
    found.prepare()
    while found._spare is None:
        await asyncio.sleep(0.01)
    return found._spare


def test_one_stands_by_and_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(found: Spare) -> None:
        waiting = await there(found)
        found.prepare()  # there is one
        taken = await found.take()
        assert taken is waiting
        other = await found.take()
        assert other.process.pid != taken.process.pid
        for each in (taken, other):
            assert each.process.returncode is None
            each.control.close()
            assert await asyncio.wait_for(each.process.wait(), 20) == 0, "it ends with its supervisor"

    run(use, monkeypatch)


def test_one_that_has_died_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(found: Spare) -> None:
        waiting = await there(found)
        waiting.process.kill()
        await waiting.process.wait()
        taken = await found.take()
        assert taken.process.returncode is None
        taken.control.close()
        await taken.process.wait()

    run(use, monkeypatch)


def test_it_ends_with_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[spare.Spawned] = []

    async def use(found: Spare) -> None:
        waiting.append(await there(found))

    run(use, monkeypatch)
    assert waiting[0].process.returncode == 0


def children(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def until(met: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_a_worker_that_dies_is_replaced_by_it() -> None:
    with Broker(workers=2) as broker:
        assert broker._workers is not None
        process = broker._workers._process
        assert process is not None
        first = children(process.pid)
        until(lambda: len(children(process.pid)) == 3)
        (standing_by,) = children(process.pid) - first
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert len(admin.list_topics(timeout=10).brokers) == 2
        os.kill(min(first), signal.SIGKILL)
        until(lambda: broker._workers is not None and "event=worker_started" in broker._workers.said())
        until(lambda: len(children(process.pid)) == 3)
        assert {*first, standing_by} - children(process.pid) == {min(first)}
        assert len(admin.list_topics(timeout=10).brokers) == 2
