"""The listener with real sockets and uvloop: what a list of fake transports cannot show."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import socket
import struct
import threading
from contextlib import asynccontextmanager

import pytest
import uvloop
from kafka_rig import batch

from halfmoon.adapters.kafka.access import guarded
from halfmoon.adapters.kafka.auditing import recorded
from halfmoon.adapters.kafka.protocol import FetchRequest, ProduceRequest
from halfmoon.adapters.kafka.server import Server
from halfmoon.adapters.tcp.access import RuleAccess
from halfmoon.config.settings import load_settings
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.core.storage.log_files import SyncJob
from halfmoon.server.clock import SystemClock
from halfmoon.server.sync_place import SyncPlace
from halfmoon.server.tick import Ticker
from halfmoon.services.acls.state import AclsState
from halfmoon.services.audit.service import Audit
from halfmoon.services.authorization.service import Authorization
from halfmoon.services.quotas.service import CONSUMED, PRODUCED, Alteration, Quotas
from halfmoon.testing.node import BareNode
from tests.kafka_messages import read_answer, request_bytes

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


@asynccontextmanager
async def running(directory, **given):
    loop = asyncio.get_running_loop()
    options = {"log.segment_bytes": "16MiB", "log.low_disk_bytes": 0}
    settings = load_settings(None, {}, options | {path.replace("__", "."): value for path, value in given.items()})
    broker = BareNode(OsFileSystem(directory), settings, SystemClock(), os.urandom)
    broker.open()
    ticker = Ticker(broker.kernel, loop)
    ticker.start()
    server = Server(broker.kernel, broker.services, settings, loop)
    address = await server.start(("127.0.0.1", 0))
    try:
        yield server, address
    finally:
        await server.stop()
        await ticker.stop()
        broker.close()


def run(main):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main, 30))


async def answer(reader):
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def produce_request(name, value):
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=0, records=batch(value))]
    topics = [topic(name=name, partition_data=data)]
    return request_bytes(0, 9, 1, "socket", acks=-1, timeout_ms=1000, topic_data=topics)


def fetch_request(name, offset, max_wait_ms):
    topic = FetchRequest.FetchTopic
    wanted = topic.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=64 << 20,
    )
    return request_bytes(
        1, 12, 2, "socket",
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=64 << 20,
        topics=[topic(topic=name, partitions=[wanted])],
        forgotten_topics_data=[],
    )  # fmt: skip


def test_megabytes_go_in_and_come_out_again(tmp_path):
    async def main():
        async with running(tmp_path) as (server, address):
            server.core.administration.create_topic("t", 1)
            reader, writer = await asyncio.open_connection(*address)
            values = [bytes((number,)) * 1_500_000 for number in range(8)]
            for value in values:
                writer.write(produce_request("t", value))
            for _ in values:
                found = read_answer(0, 9, await answer(reader))
                assert found.responses[0].partition_responses[0].error_code == 0
            writer.write(fetch_request("t", 0, 100))
            fetched = read_answer(1, 12, await answer(reader))
            records = bytes(fetched.responses[0].partitions[0].records)
            assert [records.count(value) for value in values] == [1] * len(values)
            writer.close()
            await writer.wait_closed()

    run(main())


def test_a_slow_reader_gets_everything_and_delays_nobody(tmp_path):
    async def main():
        async with running(tmp_path) as (server, address):
            server.core.administration.create_topic("t", 1)
            reader, writer = await asyncio.open_connection(*address)
            for _ in range(4):
                writer.write(produce_request("t", os.urandom(2_000_000)))
                await answer(reader)
            slow_reader, slow = await asyncio.open_connection(*address, limit=1 << 10)
            for _ in range(20):
                slow.write(fetch_request("t", 0, 100))
            sizes = []
            for _ in range(20):
                writer.write(API_VERSIONS)
                await answer(reader)
                sizes.append(len(await answer(slow_reader)))
            assert len(set(sizes)) == 1
            assert sizes[0] > 8_000_000
            for each in (slow, writer):
                each.close()
                await each.wait_closed()

    run(main())


def test_a_stop_answers_parked_fetches_and_closes(tmp_path):
    async def main():
        async with running(tmp_path) as (server, address):
            server.core.administration.create_topic("t", 1)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(API_VERSIONS)
            await answer(reader)
            writer.write(fetch_request("t", 0, 30_000))
            while not len(server.core.hold):
                await asyncio.sleep(0)
            await server.stop()
            found = read_answer(1, 12, await answer(reader))
            assert found.responses[0].partitions[0].error_code == 0
            assert await reader.read() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)
            writer.close()

    run(main())


class NoSink:
    def put(self, line, *, echo):
        pass


@pytest.mark.parametrize("more", ["nothing", "quotas", "audit"])
def test_connections_leave_nothing_for_the_garbage_collector(tmp_path, more):
    """A broker process lets it look seldom (`server.garbage`), so what is done with must go by itself."""
    ends = itertools.count(1)

    def visit(address, count):
        """`count` clients, each with all requests; one waits for its time to be over, the last is still held when it
        goes."""
        for end in itertools.islice(ends, count):
            requests = produce_request("t", b"x"), fetch_request("t", 0, 100), fetch_request("t", end, 1), API_VERSIONS
            held = fetch_request("t", end, 10_000)
            with socket.create_connection(address) as client:
                for request in requests:
                    client.sendall(request)
                    (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
                    client.recv(size, socket.MSG_WAITALL)
                client.sendall(held)

    async def garbage(server, address, count):
        gc.collect()
        await asyncio.to_thread(visit, address, count)
        while server.counters.connections:
            await asyncio.sleep(0.01)
        return gc.collect()

    async def main():
        async with running(tmp_path) as (server, address):
            server.core.administration.create_topic("t", 1)
            if more == "audit":
                audit = server.audit = Audit("all", server.core.clock)
                audit.sinks = (NoSink(),)
                server.shared.access = RuleAccess(Authorization(AclsState(), lambda principal: True))
                server.shared.routes = recorded(guarded(server.routes), audit)
            if more == "quotas":
                server.services.get(Quotas).alter(Alteration([("user", None)], [(CONSUMED, 1e12), (PRODUCED, 1e12)]))
                assert server.shared.throttling is not None
            await garbage(server, address, 2)
            assert await garbage(server, address, 60) < 50

    run(main())


def test_the_limit_on_connections_holds(tmp_path):
    async def main():
        async with running(tmp_path, limits__max_connections=1) as (server, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(API_VERSIONS)
            await answer(reader)
            second, other = await asyncio.open_connection(*address)
            other.write(API_VERSIONS)
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await answer(second)
            assert server.counters.refused == 1
            for each in (other, writer):
                each.close()

    run(main())


def test_idle_connections_are_closed_by_the_sweep(tmp_path):
    async def main():
        async with running(tmp_path, limits__idle_timeout="100ms") as (server, address):
            reader, writer = await asyncio.open_connection(*address)
            assert await reader.read() == b""
            assert server.counters.idle_closed == 1
            writer.close()

    run(main())


def test_a_port_in_use_is_an_os_error(tmp_path):
    async def main():
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            async with running(tmp_path) as (server, _):
                other = Server(server.core, server.services, server.core.settings, server.loop)
                with pytest.raises(OSError, match="address"):
                    await other.start(taken.getsockname())

    run(main())


@pytest.mark.pure
@pytest.mark.parametrize("in_loop", [True, False])
def test_with_sync_an_answer_leaves_when_the_disk_has_it_or_refuses_it(tmp_path, monkeypatch, in_loop):
    """Wherever the sync runs: in the loop, or in its thread."""
    loop_thread = threading.get_ident()
    threads = []
    run_sync = SyncJob.run

    def counted(job):
        threads.append(threading.get_ident())
        run_sync(job)

    monkeypatch.setattr(SyncPlace, "in_loop", lambda self, nbytes, requests: in_loop)
    monkeypatch.setattr(SyncJob, "run", counted)

    async def main():
        async with running(tmp_path) as (server, address):
            log = server.core.log
            server.core.administration.create_topic("t", 1)
            reader, writer = await asyncio.open_connection(*address)

            async def send(value):
                writer.write(produce_request("t", value))
                found = read_answer(0, 9, await answer(reader))
                return found.responses[0].partition_responses[0].error_code

            assert await send(b"first") == 0  # with it go the new segment's name and the topic: never in the loop
            for value in (b"second", b"third"):
                threads.clear()
                assert await send(value) == 0
                assert log.flushed == log.end
                assert [thread == loop_thread for thread in threads] == [in_loop]
            monkeypatch.setattr(SyncJob, "run", refuse)
            assert await send(b"lost") == 7  # REQUEST_TIMED_OUT
            assert await send(b"refused") == 7
            assert str(log.failed) == "[Errno 5] the disk is gone"
            writer.close()
            await writer.wait_closed()

    def refuse(job):
        raise OSError(5, "the disk is gone")

    run(main())
