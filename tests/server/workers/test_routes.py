"""Nodes ask each other over TLS, and nobody else is heard."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from halfmoon.cluster.asking import Told
from halfmoon.cluster.messages import CatalogChanged, Done
from halfmoon.cluster.receiving import PROCESS, Inbox
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.workers import routes as routes_module
from halfmoon.server.workers.links import Links
from halfmoon.server.workers.routes import TlsRoutes, contexts
from halfmoon.testing.ports import free_ports
from tests.server.server_rig import played


def certified(folder: Path, authority: trustme.CA, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    issued = authority.issue_cert("127.0.0.1", common_name=name)
    ca, certificate, key = (folder / f"{name}-{what}.pem" for what in ("ca", "cert", "key"))
    authority.cert_pem.write_to_path(ca)
    issued.private_key_pem.write_to_path(key)
    for at, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(certificate, append=bool(at))
    return contexts(ca, certificate, key)


class Nodes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = trustme.CA()
        self.ports = dict(enumerate(free_ports(3)))
        self.links: dict[int, Links] = {}
        self.heard: list[tuple[int, int]] = []
        """(node, version) of each question."""

    def make(self, number: int, others: range, authority: trustme.CA | None = None) -> Links:
        loop = asyncio.get_running_loop()
        pair = certified(self._folder, authority or self.authority, f"node-{number}")
        routes = TlsRoutes(loop, ("127.0.0.1", self.ports[number]), self._address_of, *pair)

        def answer(question: CatalogChanged, told: Told) -> None:
            self.heard.append((number, question.version))
            told(Done())

        inboxes = {PROCESS: Inbox({CatalogChanged: answer})}
        self.links[number] = Links(loop, number, others, routes, [0, 1], inboxes, lambda process: None)
        return self.links[number]

    def _address_of(self, number: int) -> tuple[str, int] | None:
        return ("127.0.0.1", self.ports[number]) if number in self.ports else None

    async def ask(self, asker: int, asked: int, version: int) -> Any:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.links[asker].ask_process(asked, CatalogChanged(version), answer.set_result)
        return await answer

    def stop(self) -> None:
        for links in self.links.values():
            links.stop()


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Nodes], Any]], None]:
    def play(story: Callable[[Nodes], Any]) -> None:
        async def run() -> None:
            nodes = Nodes(tmp_path)
            try:
                await story(nodes)
            finally:
                nodes.stop()
                await asyncio.sleep(0.01)

        played(run())

    return play


def test_nodes_ask_each_other(run: Any) -> None:
    async def story(nodes: Nodes) -> None:
        for number in (0, 1):
            await nodes.make(number, range(2)).start()
        for links in nodes.links.values():
            await links.connected(5)
        assert isinstance(await nodes.ask(0, 1, 7), Done)
        assert isinstance(await nodes.ask(1, 0, 8), Done)
        assert nodes.heard == [(1, 7), (0, 8)]

    run(story)


def test_a_node_that_comes_later_and_one_that_goes(run: Any) -> None:
    async def story(nodes: Nodes) -> None:
        first = nodes.make(0, range(1))
        await first.start()
        assert _fault(await nodes.ask(0, 1, 7)) is Fault.NOT_LEADER_OR_FOLLOWER
        await nodes.make(1, range(2)).start()
        first.add(1)
        first.add(1)
        await first.connected(5)
        assert isinstance(await nodes.ask(0, 1, 7), Done)
        first.remove(1)
        assert _fault(await nodes.ask(0, 1, 7)) is Fault.NOT_LEADER_OR_FOLLOWER
        assert first.others() == {}

    run(story)


def test_one_that_does_not_answer_is_not_waited_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "CONNECT_S", 0.1)

    async def story(nodes: Nodes) -> None:
        with socket.create_server(("127.0.0.1", nodes.ports[1])):  # takes connections, and says nothing
            pair = certified(nodes._folder, nodes.authority, "node-0")
            loop = asyncio.get_running_loop()
            routes = TlsRoutes(loop, ("127.0.0.1", nodes.ports[0]), nodes._address_of, *pair)
            async with asyncio.timeout(5):
                with pytest.raises(TimeoutError):  # an OSError
                    await routes.connect(1, asyncio.Protocol)

    run(story)


def test_who_has_no_certificate_of_the_cluster_is_not_heard(run: Any) -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.make(0, range(1)).start()
        stranger = nodes.make(1, range(2), trustme.CA())
        await stranger.start()
        await stranger.connected(0.5)
        assert stranger.others() == {0: False}
        assert _fault(await nodes.ask(1, 0, 7)) is Fault.NOT_LEADER_OR_FOLLOWER

        def without() -> bytes:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            plain = socket.create_connection(("127.0.0.1", nodes.ports[0]))
            try:
                with plain, context.wrap_socket(plain) as connected:
                    connected.sendall(b"\0" * 100)
                    return connected.recv(100)
            except OSError:
                return b""

        assert await asyncio.to_thread(without) == b""
        assert nodes.heard == []

    run(story)


def _fault(answer: object) -> Fault | None:
    return answer.fault if isinstance(answer, BrokerError) else None
