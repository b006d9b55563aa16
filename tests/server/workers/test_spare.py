"""The process that stands by, and how a process gets the orders and sockets of a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from halfmoon.server.workers import spare
from halfmoon.server.workers.orders import MOST_FDS, Orders, receive, send
from halfmoon.server.workers.plan import Plan
from halfmoon.server.workers.spare import Spare
from halfmoon.testing import Broker
from halfmoon.testing.workers import Workers
from tests.clients.polling import wait_for


def orders(sockets: list[socket.socket]) -> Orders:
    admin, *others = sockets
    listening = [("127.0.0.1", port, each.fileno()) for port, each in enumerate(others)]
    return Orders(
        Plan("/data", 0, 1, 16, {}, {}),
        None,
        None,
        None,
        {"node.data_dir": "/ü" * 1_000},
        [],
        admin.fileno(),
        listening,
    )


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


def test_ctrl_c_is_left_to_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's comes to all, also while a process still imports."""

    async def use(found: Spare) -> None:
        taken = await found.take()
        os.kill(taken.process.pid, signal.SIGINT)
        await asyncio.sleep(0.05)
        os.kill(taken.process.pid, signal.SIGINT)
        taken.control.close()
        assert await asyncio.wait_for(taken.process.wait(), 20) == 0
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())

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


class Served:
    """A broker of two workers, whose processes can be looked at."""

    def __init__(self, broker: Broker) -> None:
        assert isinstance(broker.processes, Workers)
        self._workers = broker.processes
        assert self._workers._process is not None
        self.pid = self._workers._process.pid
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    @property
    def config(self) -> Path:
        """Its broker.yaml."""
        assert self._workers._process is not None
        return self._workers._process.config

    def children(self) -> set[int]:
        return set(map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()))

    def said(self, event: str) -> int:
        """How often."""
        return self._workers.said(1_000).count(f"event={event}")

    def kill(self, pid: int) -> None:
        """One of the workers; returns when there is another one in its place."""
        before = self.said("worker_started")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.said("worker_started") > before)

    def retention_ms(self, node: int) -> int:
        """As a worker has it."""
        asked = ConfigResource(ConfigResource.Type.BROKER, str(node))
        (found,) = self.admin.describe_configs([asked]).values()
        return int(found.result(10)["log.retention.ms"].value)


def test_a_worker_that_dies_is_replaced_by_it() -> None:
    with Broker(workers=2) as broker:
        served = Served(broker)
        first = served.children()
        wait_for(lambda: len(served.children()) == 3)
        (standing_by,) = served.children() - first
        assert len(served.admin.list_topics(timeout=10).brokers) == 2
        served.kill(min(first))
        wait_for(lambda: len(served.children()) == 3)
        assert {*first, standing_by} - served.children() == {min(first)}
        assert len(served.admin.list_topics(timeout=10).brokers) == 2


def test_a_worker_that_is_started_again_has_the_settings_of_the_others() -> None:
    """Whatever has become of broker.yaml: what was reloaded counts, and nothing else does."""
    with Broker(workers=2, config={"log": {"retention": "7d"}}) as broker:
        served = Served(broker)
        workers = sorted(served.children())
        text = served.config.read_text()
        served.config.write_text("listeners: {kafka: {bind: 127.0.0.1:1}, other: ")
        os.kill(served.pid, signal.SIGHUP)
        wait_for(lambda: served.said("reload_failed") == 2)
        served.kill(workers[0])
        assert served.retention_ms(1) == served.retention_ms(2) == 7 * 86_400_000
        served.config.write_text(text.replace('"7d"', '"9d"'))
        os.kill(served.pid, signal.SIGHUP)
        wait_for(lambda: served.said("reloaded") == 2)
        served.config.write_text("nothing of the kind")
        served.kill(workers[1])
        assert served.retention_ms(1) == served.retention_ms(2) == 9 * 86_400_000
