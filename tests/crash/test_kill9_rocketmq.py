"""kill −9 while RocketMQ's clients send, commit half messages and consume; each is a bare socket."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chance import seeded
from tests.crash.serving import Serving, free_port, wait_until
from tests.fuzz import remoting
from tests.fuzz.peer import ClosedError
from tests.fuzz.remoting import Command, Remote, said, sending, stored

TOPIC, HALVES = "orders", "paid"
QUEUES = 2
GROUP, PRODUCERS = "readers", "shop"
KILLS = 5
DEADLINE_S = 120.0
QUERY_OFFSET, UPDATE_OFFSET, HEARTBEAT, VIEW, END, CHECK_STATE = 14, 15, 34, 33, 37, 39
COMMIT, ROLLBACK = 8, 12
ONE_IN = 3
"""One half message in so many is rolled back."""


class Client(threading.Thread):
    """Does `step` over and over; a connection that breaks is made again, and the step repeated."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.stopping = threading.Event()
        self.errors: list[str] = []
        self.reconnects = 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    with Remote(self.address) as remote:
                        self.connected(remote)
                        while not self.stopping.is_set():
                            self.step(remote)
                except (ClosedError, OSError):
                    self.reconnects += 1
                    time.sleep(0.02)
        except Exception as error:
            self.errors.append(f"{type(self).__name__}: {error!r}")
            raise

    def connected(self, remote: Remote) -> None:
        pass

    def step(self, remote: Remote) -> None:
        raise NotImplementedError


class Sender(Client):
    """Sends numbers to one queue."""

    def __init__(self, address: tuple[str, int], queue: int) -> None:
        super().__init__(address)
        self.queue = queue
        self.next = 0
        self.acknowledged: dict[int, tuple[int, str]] = {}
        """Number → queue offset and message id."""

    def step(self, remote: Remote) -> None:
        text = f"UNIQ_KEY\1s{self.queue}-{self.next}\2"
        sent = remote.well(remoting.SEND, sending(TOPIC, queue=self.queue, properties=text), b"%d" % self.next)
        self.acknowledged[self.next] = int(sent.fields["queueOffset"]), sent.fields["msgId"]
        self.next += 1


class Transactor(Client):
    """Sends half messages and ends them, and those that it is asked about."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.next = 0
        self.acknowledged: set[int] = set()
        self.asked = 0
        self.is_sending = True
        self.has_stopped_sending = False
        """Its last message is answered too: nothing is acknowledged any more."""

    def connected(self, remote: Remote) -> None:
        body = {"clientID": "transactor", "producerDataSet": [{"groupName": PRODUCERS}], "consumerDataSet": []}
        remote.well(HEARTBEAT, {}, json.dumps(body).encode())

    def step(self, remote: Remote) -> None:
        if self.is_sending:
            text = f"TRAN_MSG\1true\2PGROUP\1{PRODUCERS}\2UNIQ_KEY\1t{self.next}\2"
            remote.well(remoting.SEND, sending(HALVES, properties=text), b"%d" % self.next)
            self.acknowledged.add(self.next)
            self._end(remote, self.next)
            self.next += 1
        else:
            self.has_stopped_sending = True
            self.connected(remote)  # to hear what it is asked
            time.sleep(0.05)
        told, remote.told = remote.told, []
        for command in told:
            self._answer(remote, command)

    def _answer(self, remote: Remote, command: Command) -> None:
        assert command.code == CHECK_STATE, command
        self.asked += 1
        self._end(remote, int(command.fields["transactionId"][1:]))

    def _end(self, remote: Remote, number: int) -> None:
        state = ROLLBACK if number % ONE_IN == 0 else COMMIT
        fields = said(
            producerGroup=PRODUCERS, tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=state,
            fromTransactionCheck=False, msgId=f"t{number}", transactionId=f"t{number}", topic=HALVES,
        )  # fmt: skip
        remote.say(END, fields, flag=remoting.ONEWAY)


class Reader(Client):
    """Consumes both queues and says how far it is; where it begins again, the broker tells it."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.said = [0] * QUEUES
        """Offsets that the broker has acknowledged."""
        self.offsets = [0] * QUEUES
        self.seen: list[dict[int, bytes]] = [{} for _ in range(QUEUES)]

    def connected(self, remote: Remote) -> None:
        for queue in range(QUEUES):
            answer = remote.tell(QUERY_OFFSET, said(consumerGroup=GROUP, topic=TOPIC, queueId=queue))
            known = int(answer.fields["offset"]) if answer.code == remoting.SUCCESS else 0
            assert known >= self.said[queue], f"queue {queue}: {known}, but {self.said[queue]} was acknowledged"
            self.offsets[queue] = known

    def step(self, remote: Remote) -> None:
        for queue in range(QUEUES):
            fields = {**remoting.pulling(TOPIC, self.offsets[queue], 100, group=GROUP), "queueId": str(queue)}
            pulled = remote.tell(remoting.PULL, fields)
            if pulled.code != remoting.SUCCESS:
                assert pulled.code in (remoting.NOT_FOUND, remoting.RETRY_AT_ONCE), pulled
                continue
            for message in stored(pulled.body):
                known = self.seen[queue].setdefault(message.queue_offset, message.body)
                assert known == message.body, f"offset {message.queue_offset} was {known!r}, is {message.body!r}"
            self.offsets[queue] = int(pulled.fields["nextBeginOffset"])
            fields = said(consumerGroup=GROUP, topic=TOPIC, queueId=queue, commitOffset=self.offsets[queue])
            remote.well(UPDATE_OFFSET, fields)
            self.said[queue] = self.offsets[queue]


def read_all(remote: Remote, topic: str, queue: int) -> list[remoting.Stored]:
    found: list[remoting.Stored] = []
    offset = 0
    while True:
        fields = {**remoting.pulling(topic, offset), "queueId": str(queue)}
        pulled = remote.tell(remoting.PULL, fields)
        if pulled.code != remoting.SUCCESS:
            return found
        found += stored(pulled.body)
        offset = int(pulled.fields["nextBeginOffset"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["sync", "interval"])
def test_nothing_acknowledged_is_lost(tmp_path: Path, flush: str) -> None:
    dice = seeded()
    port = free_port()
    serving = Serving(
        tmp_path, log_flush=flush, listeners_rocketmq_bind=f"127.0.0.1:{port}",
        listeners_rocketmq_namesrv=f"127.0.0.1:{free_port()}", plugins_transaction_timeout="1s",
        plugins_transaction_check_interval="1s",
    )  # fmt: skip
    serving.start()
    address = ("127.0.0.1", port)
    with Remote(address) as admin:
        for topic in TOPIC, HALVES:
            admin.well(remoting.CREATE, said(topic=topic, readQueueNums=QUEUES, writeQueueNums=QUEUES, perm=6))
    senders = [Sender(address, queue) for queue in range(QUEUES)]
    transactor, reader = Transactor(address), Reader(address)
    clients: list[Client] = [*senders, transactor, reader]

    def go_on(kill: int) -> Callable[[], bool]:
        before = [sender.next for sender in senders], transactor.next, sum(reader.said)

        def went_on() -> bool:
            assert not any(client.errors for client in clients), [client.errors for client in clients]
            sent = all(sender.next > known + 50 for sender, known in zip(senders, before[0], strict=True))
            return sent and transactor.next > before[1] + 50 and sum(reader.said) > before[2] + 50

        return went_on

    try:
        for client in clients:
            client.start()
        for kill in range(KILLS):
            wait_until(go_on(kill), DEADLINE_S, f"all go on, {kill}")
            time.sleep(dice.random() * 0.5)
            serving.kill()
            serving.start()
        wait_until(go_on(KILLS), DEADLINE_S, "all go on in the end")
        for sender in senders:
            sender.stopping.set()
            sender.join(DEADLINE_S)
        transactor.is_sending = False
        wait_until(lambda: transactor.has_stopped_sending, DEADLINE_S, "the last half message is answered")
        wait_until(
            lambda: sum(reader.said) >= sum(sender.acknowledged[sender.next - 1][0] + 1 for sender in senders),
            DEADLINE_S, "the consumer gets it all",
        )  # fmt: skip
        with Remote(address) as remote:
            wanted = {number for number in transactor.acknowledged if number % ONE_IN}

            def delivered() -> list[int]:
                return [int(message.body) for message in read_all(remote, HALVES, 0)]

            wait_until(lambda: wanted <= set(delivered()), DEADLINE_S, "what was committed is delivered")
            found = Counter(delivered())
            queues = [read_all(remote, TOPIC, queue) for queue in range(QUEUES)]
            for sender in senders:
                number = dice.choice(list(sender.acknowledged))
                offset, message_id = sender.acknowledged[number]
                viewed = remote.well(VIEW, said(offset=int(message_id[-16:], 16)))
                assert [(each.queue_offset, each.body) for each in stored(viewed.body)] == [(offset, b"%d" % number)]
    finally:
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(DEADLINE_S)
        serving.stop()
    assert not any(client.errors for client in clients), [client.errors for client in clients]
    assert min(client.reconnects for client in clients) >= KILLS
    for sender, queue in zip(senders, queues, strict=True):
        bodies = [message.body for message in queue]
        assert [message.queue_offset for message in queue] == list(range(len(queue)))
        assert all(bodies[offset] == b"%d" % number for number, (offset, _) in sender.acknowledged.items())
        # What had no answer before the kill was sent again: it may be there twice, in place.
        numbers = [int(each) for each in bodies]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(sender.next)) | ({sender.next} & set(numbers))
        assert len(numbers) - len(set(numbers)) <= KILLS
        assert reader.seen[sender.queue] == dict(enumerate(bodies))
    assert set(found) - {transactor.next} == wanted
    assert max(found.values()) == 1, "a half message was delivered twice"
    assert len(wanted) > 200
    print(f"{sum(map(len, queues))} messages, {len(wanted)} commits, {transactor.asked} asked about")
