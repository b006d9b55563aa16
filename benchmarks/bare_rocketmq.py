"""The least that a broker for RocketMQ's clients in Python has to do: `python -m benchmarks.bare_rocketmq FILE`.

As bare_loop.py for Kafka's: a uvloop server, name service and broker at one address, that writes what it is sent into a
file and answers. Messages are kept in memory as they came, and written out as clients read them when they are pulled
first. Half messages are thrown away, and so are their ends. Nothing is looked at that clients do not need to go on.

It takes what the peer's program (rocketmq_peer.py) sends when it sends, consumes and measures latencies; not filters,
delays and check-backs. Printed: `ready HOST:PORT`.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
import zlib
from collections.abc import Callable
from typing import cast

import msgspec
import uvloop

from halfmoon.remoting.json_header import JsonHeader
from halfmoon.remoting.message import Host, StoredMessage, encode_stored

FILE_BYTES = 256 << 20
AUTO_CREATE_TOPIC = "TBW102"
QUEUES = 8
"""Of a topic that is made because somebody sends to it."""
KEPT_TOPICS = 2
"""Those that were made last: a section of the program uses no more, and a producer leaves gigabytes."""
ONEWAY = 2
HALF = 4
"""Of a message's system flags: it is prepared (MessageSysFlag.TRANSACTION_PREPARED_TYPE)."""
MAY_WAIT = 2
"""Of a pull's (PullSysFlag.FLAG_SUSPEND)."""
NO_MESSAGES, NO_SUCH_TOPIC, NO_SUCH_OFFSET = 19, 17, 22
_LENGTHS = struct.Struct(">iI")
_BATCHED = struct.Struct(">iiiii")
"""Of a message of a batch: size, magic, CRC, flag, length of the body."""
_UNIQUE = "UNIQ_KEY\1"
_decode = msgspec.json.Decoder(JsonHeader).decode

Fields = dict[str, str | None]
Batch = tuple[int, int, bytes, str | None]
"""Messages that came together and are not written out yet: how many, when they were born (Unix ms), their bytes, and
the properties of the only one; None: as the body of a batch has them."""


class Queue:
    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic.encode()
        self.number = number
        self.end = 0
        """The next offset."""
        self.messages: list[bytes] = []
        """Written out as clients read them."""
        self._raw: list[Batch] = []
        self.waiting: list[Callable[[], None]] = []

    def add(self, batch: Batch) -> int:
        first = self.end
        self._raw.append(batch)
        self.end += batch[0]
        return first

    def write_out(self, host: Host) -> None:
        raw, self._raw = self._raw, []
        now_ms = time.time_ns() // 1_000_000
        for _, born_ms, data, said in raw:
            for body, properties in _messages(data) if said is None else [(data, said.encode())]:
                offset = len(self.messages)
                self.messages.append(
                    encode_stored(
                        StoredMessage(
                            self.number, 0, offset, offset, 0, born_ms, host, now_ms, host, 0, 0, body, self.topic,
                            properties,
                        )
                    )
                )  # fmt: skip


def _messages(data: bytes) -> list[tuple[bytes, bytes]]:
    """Body and properties of each message of a batch."""
    found, at = [], 0
    while at < len(data):
        size, _, _, _, body = _BATCHED.unpack_from(data, at)
        begin = at + _BATCHED.size
        found.append((data[begin : begin + body], data[begin + body + 2 : at + size]))
        at += size
    return found


def _count(data: bytes) -> int:
    count = at = 0
    while at < len(data):
        at += int.from_bytes(data[at : at + 4], "big")
        count += 1
    return count


class Server:
    """What all connections share."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.at = 0
        self.topics: dict[str, list[Queue]] = {}
        self.members: dict[str, str] = {}
        """Group → its only member."""
        self.host = Host(b"", 0)
        self.address = ""

    def create(self, topic: str, queues: int) -> list[Queue]:
        found = self.topics[topic] = [Queue(topic, number) for number in range(queues)]
        while len(self.topics) > KEPT_TOPICS:
            del self.topics[next(iter(self.topics))]
        return found

    def write(self, pieces: list[bytes]) -> None:
        if self.at + sum(map(len, pieces)) > FILE_BYTES:
            self.at = 0
        self.at += os.pwritev(self.fd, pieces, self.at)


class Bare(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._rest = b""
        self._out: list[bytes] = []
        self._sent: list[bytes] = []
        """To be written into the file."""
        self._answers = {
            17: self._create, 29: self._end, 30: self._end, 31: self._begin, 34: self._beat, 38: self._members,
            14: self._no_offset, 105: self._route, 106: self._cluster, 310: self._send, 320: self._send,
            11: self._pull,
        }  # fmt: skip

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        woken: list[Queue] = []
        while end - at >= 8:
            size, mark = _LENGTHS.unpack_from(data, at)
            if end - at - 4 < size:
                break
            body_at = at + 8 + (mark & 0xFFFFFF)
            at += 4 + size
            header = _decode(data[body_at - (mark & 0xFFFFFF) : body_at])
            handle = self._answers.get(header.code, self._done)
            handle(header, header.extFields or {}, data[body_at:at], woken)
        self._rest = data[at:]
        if self._sent:
            sent, self._sent = self._sent, []
            self._server.write(sent)
        self._flush()
        for queue in woken:
            waiting, queue.waiting = queue.waiting, []
            for wake in waiting:
                wake()

    def _flush(self) -> None:
        if self._out and not self._transport.is_closing():
            out, self._out = self._out, []
            self._transport.write(b"".join(out))

    def _answer(self, header: JsonHeader, fields: str = "", body: bytes = b"", code: int = 0) -> None:
        """`fields` as JSON's, without the braces."""
        if header.flag & ONEWAY:
            return
        text = (
            f'{{"code":{code},"extFields":{{{fields}}},"flag":1,"language":"OTHER","opaque":{header.opaque},'
            f'"serializeTypeCurrentRPC":"JSON","version":479}}'
        ).encode()
        self._out += [_LENGTHS.pack(4 + len(text) + len(body), len(text)), text, body]

    # Requests: header, fields, body, and the queues that others may wait for.

    def _done(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        self._answer(header)

    def _create(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        self._server.create(fields["topic"] or "", int(fields["writeQueueNums"] or 1))
        self._answer(header)

    def _route(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        topic = fields["topic"] or ""
        queues = QUEUES if topic == AUTO_CREATE_TOPIC else len(self._server.topics.get(topic, ()))
        if not queues:
            self._answer(header, code=NO_SUCH_TOPIC)
            return
        of_queues = {
            "brokerName": "bare", "perm": 7, "readQueueNums": queues, "writeQueueNums": queues, "topicSysFlag": 0,
        }  # fmt: skip
        broker = {"brokerAddrs": {"0": self._server.address}, "brokerName": "bare", "cluster": "bare"}
        route = {"brokerDatas": [broker], "filterServerTable": {}, "queueDatas": [of_queues]}
        self._answer(header, body=msgspec.json.encode(route))

    def _cluster(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        broker = {"brokerAddrs": {"0": self._server.address}, "brokerName": "bare", "cluster": "bare"}
        cluster = {"brokerAddrTable": {"bare": broker}, "clusterAddrTable": {"bare": ["bare"]}}
        self._answer(header, body=msgspec.json.encode(cluster))

    def _beat(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        said = msgspec.json.decode(body)
        for group in said.get("consumerDataSet", ()):
            self._server.members[group["groupName"]] = said["clientID"]
        self._answer(header)

    def _members(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        member = self._server.members.get(fields["consumerGroup"] or "")
        self._answer(header, body=msgspec.json.encode({"consumerIdList": [] if member is None else [member]}))

    def _no_offset(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        self._answer(header, code=NO_SUCH_OFFSET)

    def _begin(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        self._answer(header, '"offset":"0"')

    def _end(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        self._answer(header, f'"offset":"{self._queue(fields["topic"], fields["queueId"]).end}"')

    def _queue(self, topic: str | None, number: str | None) -> Queue:
        queues = self._server.topics.get(topic or "") or self._server.create(topic or "", QUEUES)
        return queues[int(number or 0)]

    def _send(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        queue = self._queue(fields["b"], fields["e"])
        offset = 0
        unique = ""
        self._sent.append(body)
        zlib.crc32(body)
        if fields.get("m") == "true":
            offset = queue.add((_count(body), int(fields["g"] or 0), body, None))
        else:
            said = fields.get("i") or ""
            at = said.find(_UNIQUE)
            if at >= 0:
                unique = said[at + len(_UNIQUE) : said.find("\2", at)]
            if not int(fields["f"] or 0) & HALF:
                offset = queue.add((1, int(fields["g"] or 0), body, said))
        if queue.waiting:
            woken.append(queue)
        self._answer(
            header,
            f'"msgId":"{self._server.host.in_hex()}{offset:016X}","queueId":"{queue.number}","queueOffset":"{offset}",'
            f'"transactionId":"{unique}"',
        )

    def _pull(self, header: JsonHeader, fields: Fields, body: bytes, woken: list[Queue]) -> None:
        queue = self._queue(fields["topic"], fields["queueId"])
        offset = int(fields["queueOffset"] or 0)
        if offset >= queue.end and int(fields["sysFlag"] or 0) & MAY_WAIT:
            loop = asyncio.get_running_loop()
            timer: list[asyncio.TimerHandle] = []

            def wake() -> None:
                timer[0].cancel()
                if wake in queue.waiting:
                    queue.waiting.remove(wake)
                self._pulled(header, queue, offset, int(fields["maxMsgNums"] or 32))
                self._flush()

            timer.append(loop.call_later(int(fields["suspendTimeoutMillis"] or 0) / 1e3, wake))
            queue.waiting.append(wake)
            return
        self._pulled(header, queue, offset, int(fields["maxMsgNums"] or 32))

    def _pulled(self, header: JsonHeader, queue: Queue, offset: int, most: int) -> None:
        queue.write_out(self._server.host)
        found = queue.messages[offset : offset + most]
        said = (
            f'"suggestWhichBrokerId":"0","nextBeginOffset":"{offset + len(found)}","minOffset":"0",'
            f'"maxOffset":"{queue.end}"'
        )
        self._answer(header, said, b"".join(found), 0 if found else NO_MESSAGES)


async def main(path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, FILE_BYTES)
    shared = Server(fd)
    server = await asyncio.get_running_loop().create_server(lambda: Bare(shared), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    shared.host, shared.address = Host.parse(host, port), f"{host}:{port}"
    print(f"ready {shared.address}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
