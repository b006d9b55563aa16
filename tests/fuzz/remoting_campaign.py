"""Random cases against RocketMQ's ports, one after the other, each with a seed of its own (see campaign.py).

A case sends one request, valid or spoilt, on a connection of its own, and a request for a route behind it. What has to
come of it is worked out by a parser of our own: a request that can be read is answered, or it was said that no answer
is wanted; one that cannot closes its connection; of one that is not whole nothing comes. A valid request never closes
its connection.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections import Counter
from random import Random
from typing import NamedTuple

from tests.fuzz.campaign import MEMORY_BYTES
from tests.fuzz.canary import Canary
from tests.fuzz.peer import ClosedError
from tests.fuzz.process import BrokerProcess, MemoryWatch
from tests.fuzz.remoting import (
    CREATE,
    DELETE,
    HEARTBEAT,
    ONEWAY,
    RESPONSE,
    ROCKETMQ,
    ROUTE,
    SEND,
    SUCCESS,
    TOPICS,
    Command,
    Remote,
    parsed,
    request,
    said,
    sending,
)
from tests.fuzz.remoting_cases import STORED, USER, World, case, corpus

LISTENERS = {"listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}}
SHARE_OF_VALID = 0.35
NUMBER = 42
"""Of each case's request: the golden frames' own."""
BEHIND = 77
PROBE = request(ROUTE, BEHIND, said(topic="nobody-made-this"))
ANSWER_S = 5.0
MAX_FRAME_BYTES, MAX_HEADER_BYTES, MAX_FIELDS = 16 << 20, 1 << 20, 1_000
PUT_VALUE, CREATE_USER = 100, 3001
TIDY_EVERY, CREATE_EVERY = 400, 20
INT32 = range(-(2**31), 2**31)


class Due(NamedTuple):
    """What has to come of some bytes."""

    answers: Counter[int]
    """By number."""
    may_close: bool
    """A frame cannot be read, or that is a matter of taste: some JSON is none to one parser, and is to another."""
    must_close: bool


def due(data: bytes) -> Due:
    answers: Counter[int] = Counter()
    may_close = False
    while len(data) >= 4:
        (size,) = struct.unpack_from(">i", data)
        if not 4 <= size <= MAX_FRAME_BYTES:
            return Due(answers, True, True)
        if len(data) < 4 + size:
            break
        frame, data = data[4 : 4 + size], data[4 + size :]
        mark = int.from_bytes(frame[:4], "big")
        if mark >> 24 > 1 or mark & 0xFFFFFF > min(MAX_HEADER_BYTES, size - 4):
            return Due(answers, True, True)
        try:
            command = parsed(frame)
        except (ValueError, struct.error, RecursionError):
            if mark >> 24 == ROCKETMQ:
                return Due(answers, True, True)
            may_close = True
            continue
        if len(command.fields) > MAX_FIELDS:
            return Due(answers, True, True)
        whole = all(number in INT32 for number in (command.code, command.opaque, command.flag))
        may_close |= not whole or b"\\u" in frame
        if not command.flag & (RESPONSE | ONEWAY):
            answers[command.opaque] += 1
    return Due(answers, may_close, False)


def exchange(address: tuple[str, int], data: bytes) -> tuple[str, list[Command]]:
    """Send bytes, and a request behind them, on a connection of its own; what has become of it, and the answers. Raises
    AssertionError if that is not what is due."""
    wanted = due(data + PROBE)
    left = wanted.answers.copy()
    heard: list[Command] = []
    with Remote(address) as peer:
        peer.send(data + PROBE)
        try:
            while left or wanted.must_close:
                answer = parsed(peer.frame(ANSWER_S))
                if not answer.flag & RESPONSE:
                    continue
                assert answer.opaque in left or wanted.may_close, f"an answer to {answer.opaque}: {answer}"
                left -= Counter([answer.opaque])
                heard.append(answer)
        except ClosedError:
            assert wanted.may_close, f"closed; still to come: {left}"
            return "closed", heard
        except TimeoutError:
            raise AssertionError(f"no answer, and not closed; still to come: {left}") from None
    return "answered" if wanted.answers[BEHIND] else "waiting", heard


class Resident:
    """A consumer that stays, so that there is one to ask about: it says what it wants, and answers what it is asked."""

    def __init__(self, address: tuple[str, int], group: str, client_id: str, topics: list[str]) -> None:
        self._peer = Remote(address)
        wanted = [{"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1} for topic in topics]
        consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": wanted}
        self._heartbeat = json.dumps(
            {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": group}]}
        ).encode()
        self._thread = threading.Thread(target=self._run, name="resident", daemon=True)
        self._peer.well(HEARTBEAT, {}, self._heartbeat)
        self._thread.start()

    def heartbeat(self) -> None:
        """Say it all again: others may have joined, and left, in its name."""
        self._peer.say(HEARTBEAT, {}, self._heartbeat)

    def close(self) -> None:
        self._peer.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._peer.close()

    def _run(self) -> None:
        with contextlib.suppress(ClosedError):
            while True:
                with contextlib.suppress(TimeoutError):
                    asked = parsed(self._peer.frame(60))
                    if not asked.flag & (RESPONSE | ONEWAY):
                        self._peer.send(request(SUCCESS, asked.opaque, asked.fields, b"{}", flag=RESPONSE))


class RemotingCampaign:
    """Cases against one broker. A context manager, since it keeps a connection."""

    def __init__(self, broker: BrokerProcess, canaries: list[Canary], memory: MemoryWatch, seed: int) -> None:
        self._broker = broker
        self._canaries = canaries
        self._memory = memory
        self._seed = seed
        self.world = World()
        self.corpus = corpus()
        self.outcomes: Counter[str] = Counter()
        self.succeeded: Counter[int] = Counter()
        """Valid requests that were answered with SUCCESS, by code."""
        self.create()
        world = self.world
        self._resident = Resident(broker.rocketmq, world.groups[0], world.clients[0], world.topics)

    def __enter__(self) -> RemotingCampaign:
        return self

    def __exit__(self, *_: object) -> None:
        self._resident.close()

    def case(self, number: int) -> None:
        """Run the case of that number. Raises AssertionError, with what makes it again."""
        if number % CREATE_EVERY == 0:
            self.create()
            self._resident.heartbeat()
        chance = Random(f"{self._seed}:{number}")
        self._broker.forget_peers()  # the kernel hands out the same ports again
        made = case(chance, self.world, self.corpus, NUMBER, SHARE_OF_VALID)
        address = self._broker.names if chance.random() < 0.1 else self._broker.rocketmq
        try:
            outcome, answers = exchange(address, made.frame)
            self.outcomes[outcome] += 1
            for answer in answers:
                if made.valid and answer.opaque == NUMBER:
                    self._learn(made.code, answer)
            self.check()
        except AssertionError as error:
            raise AssertionError(
                f"case {self._seed}:{number} code {made.code} valid={made.valid}\n{made.frame[:5000]!r}\n{error}"
            ) from error
        if number % TIDY_EVERY == TIDY_EVERY - 1:
            self.tidy()

    def check(self) -> None:
        """What must hold after every case."""
        self._broker.check()
        for canary in self._canaries:
            canary.check()
        grown = self._memory.grown_bytes
        assert grown < MEMORY_BYTES, f"{grown >> 20} MiB more memory than at the start"

    def _learn(self, code: int, answer: Command) -> None:
        if answer.code != SUCCESS:
            return
        self.succeeded[code] += 1
        if code == SEND:
            self.world.physical = [int(answer.fields["msgId"][-16:], 16), *self.world.physical[:5]]

    def create(self) -> None:
        """Make the topics that cases name, with a message each, since some cases delete them; a half message; a user;
        and a value of the name server's."""
        with Remote(self._broker.rocketmq) as peer:
            peer.tell(PUT_VALUE, said(**STORED, value="v"))
            peer.tell(CREATE_USER, said(username=USER), b'{"password": "p"}')
            half = f"TRAN_MSG\1true\2PGROUP\1{self.world.groups[0]}\2UNIQ_KEY\1U\2"
            peer.tell(SEND, sending("fuzz-half", properties=half), b"half")
            for name in self.world.topics:
                if not name.startswith("%"):
                    peer.tell(CREATE, said(topic=name, readQueueNums=2, writeQueueNums=2, perm=6))
                    peer.tell(SEND, sending(name, properties="UNIQ_KEY\1U\2KEYS\1k\2TAGS\1A\2"), b"made")

    def tidy(self) -> None:
        """Delete all topics but the canaries', and wait for the canaries to go on."""
        with Remote(self._broker.rocketmq) as peer:
            for name in json.loads(peer.well(TOPICS, {}).body)["topicList"]:
                if "canary" not in name:
                    peer.tell(DELETE, said(topic=name))
        for canary in self._canaries:
            canary.wait_for_rounds(2)
