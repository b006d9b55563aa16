"""Connections: frames in pieces, answers that are none, pauses between attempts."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from typing import Any

import pytest

from halfmoon.client.engine.kernel import Kernel, Pending
from halfmoon.client.engine.network import Connection, Network
from halfmoon.client.errors import ConnectionFailedError, NotRunningError, RequestTimeoutError
from halfmoon.remoting import command as wire
from halfmoon.remoting.command import Command

A = "10.0.0.1:10911"


class Shell:
    """What the network asks for."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.network = Network(self.kernel, self, random.Random(1))
        self.opened: list[Connection] = []
        self.closed: list[Connection] = []
        self.written = b""

    def connect(self, connection: Connection) -> None:
        self.opened.append(connection)

    def write(self, connection: Connection, data: bytes) -> None:
        self.written += data

    def close(self, connection: Connection) -> None:
        self.closed.append(connection)

    def submit(self, works: Any) -> None:
        raise AssertionError

    def connected(self) -> Connection:
        """The connection that was asked for last is open."""
        self.network.connected(self.opened[-1])
        return self.opened[-1]

    def sent(self) -> list[Command]:
        found = []
        while self.written:
            (size,) = struct.unpack_from(">i", self.written)
            found.append(wire.decode(memoryview(self.written)[4 : 4 + size]))
            self.written = self.written[4 + size :]
        return found


@pytest.fixture
def shell() -> Shell:
    return Shell()


def answer(opaque: int, code: int = 0, body: bytes = b"", **fields: str) -> bytes:
    return wire.encode(Command(code, opaque, wire.RESPONSE, fields=fields, body=body))


def ask(shell: Shell, code: int = 11, **options: Any) -> Pending[Command]:
    return shell.network.request(A, code, {"a": "b"}, **options)


def test_requests_are_signed_where_that_is_wanted(shell: Shell) -> None:
    shell.network.sign = lambda fields, body: {**fields, "signed": f"{sorted(fields)} {len(body)}"}
    ask(shell, body=b"abc")
    shell.network.oneway(A, 15, {"c": "d"})
    shell.connected()
    assert [command.fields for command in shell.sent()] == [
        {"a": "b", "signed": "['a'] 3"},
        {"c": "d", "signed": "['c'] 0"},
    ]


def test_requests_wait_for_the_connection_and_then_go_in_order(shell: Shell) -> None:
    first, second = ask(shell, 11), ask(shell, 12)
    assert len(shell.opened) == 1
    assert not shell.written
    connection = shell.connected()
    assert [command.code for command in shell.sent()] == [11, 12]
    shell.network.received(connection, answer(2, 5) + answer(1, 7, b"body", x="y"))
    assert second.result().code == 5
    assert (first.result().code, bytes(first.result().body), first.result().fields) == (7, b"body", {"x": "y"})
    assert shell.network.in_flight == 0


@pytest.mark.parametrize("size", [1, 3, 7, 1_000])
def test_frames_come_in_pieces(shell: Shell, size: int) -> None:
    asked = [ask(shell) for _ in range(5)]
    connection = shell.connected()
    data = b"".join([answer(number + 1, number, b"x" * 500 * number) for number in range(5)])
    for at in range(0, len(data), size):
        shell.network.received(connection, data[at : at + size])
    assert [(each.result().code, len(each.result().body)) for each in asked] == [(n, 500 * n) for n in range(5)]


def test_a_large_frame_in_small_pieces_takes_no_longer_than_its_bytes(shell: Shell) -> None:
    asked = ask(shell)
    connection = shell.connected()
    data = answer(1, 0, bytes(4 << 20))
    for at in range(0, len(data), 4_096):
        shell.network.received(connection, data[at : at + 4_096])
    assert len(asked.result().body) == 4 << 20


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", struct.pack(">ii", 8, 100) + b"xxxx", struct.pack(">ii", 6, 2) + b"{]"],
)
def test_a_frame_that_is_none_ends_the_connection(shell: Shell, garbage: bytes) -> None:
    asked = ask(shell)
    connection = shell.connected()
    shell.network.received(connection, garbage)
    assert shell.closed == [connection]
    with pytest.raises(ConnectionFailedError):
        asked.result()


def test_an_answer_that_nobody_waits_for_is_passed_over(shell: Shell) -> None:
    ask(shell)
    connection = shell.connected()
    shell.network.received(connection, answer(77) + answer(1))
    shell.network.received(connection, answer(1))
    assert connection.is_open


def test_no_answer_in_time(shell: Shell) -> None:
    asked = ask(shell, timeout_ms=500)
    connection = shell.connected()
    shell.kernel.advance(499)
    assert not asked.is_done
    shell.kernel.advance(500)
    with pytest.raises(RequestTimeoutError, match=r"request 11 to .* no answer within 500 ms"):
        asked.result()
    shell.network.received(connection, answer(1))
    assert connection.is_open, "it was late, that is all"


def test_a_connection_that_does_not_open(shell: Shell) -> None:
    asked = ask(shell, timeout_ms=60_000)
    shell.kernel.advance(3_000)
    with pytest.raises(ConnectionFailedError, match="no connection within 3 s"):
        asked.result()
    assert shell.closed == shell.opened


def test_pauses_between_attempts_grow_to_ten_seconds(shell: Shell) -> None:
    pauses = []
    for _ in range(12):
        ask(shell)
        shell.network.closed(shell.opened[-1], "refused")
        pauses.append(shell.network.wait_ms(A))
        with pytest.raises(ConnectionFailedError, match="next attempt in"):
            ask(shell).result()
        shell.kernel.advance(shell.kernel.now_ms + pauses[-1])
    assert len(shell.opened) == 12
    assert 80 <= pauses[0] <= 120
    assert all(1.3 < after / before < 3.1 for before, after in pairwise(pauses[:7]))
    assert all(8_000 <= pause <= 12_000 for pause in pauses[-3:])


def test_an_answer_makes_the_next_attempt_come_at_once(shell: Shell) -> None:
    for _ in range(3):
        ask(shell)
        shell.network.closed(shell.opened[-1], "refused")
        shell.kernel.advance(shell.kernel.now_ms + 20_000)
    ask(shell)
    connection = shell.connected()
    shell.network.received(connection, answer(shell.sent()[-1].opaque))
    lost: list[str] = []
    shell.network.on_lost = lost.append
    shell.network.closed(connection, "reset")
    assert lost == [A]
    assert shell.network.wait_ms(A) == 0
    # One that opens and ends at once, again and again, is not asked without a pause.
    ask(shell)
    shell.network.closed(shell.connected(), "reset")
    assert shell.network.wait_ms(A) > 0


def test_what_is_under_way_fails_with_its_connection(shell: Shell) -> None:
    asked = [ask(shell) for _ in range(3)]
    shell.network.closed(shell.connected(), "reset by peer")
    for each in asked:
        with pytest.raises(ConnectionFailedError, match="reset by peer"):
            each.result()


def test_after_the_end_nothing_is_asked(shell: Shell) -> None:
    asked = ask(shell)
    shell.connected()
    shell.network.close()
    for each in asked, ask(shell):
        with pytest.raises(NotRunningError):
            each.result()
    assert shell.closed == shell.opened
    shell.network.oneway(A, 15, {})


def test_what_a_node_asks_is_answered_in_its_own_header(shell: Shell) -> None:
    ask(shell)
    connection = shell.connected()
    shell.sent()
    shell.network.on_request = lambda connection, command: shell.network.answer(connection, command, 3, "no", b"body")
    for kind in wire.JSON, wire.ROCKETMQ:
        shell.network.received(connection, wire.encode(Command(307, 9, 0, kind=kind)))
        (said,) = shell.sent()
        assert (said.opaque, said.code, said.remark, bytes(said.body), said.kind) == (9, 3, "no", b"body", kind)
    shell.network.received(connection, wire.encode(Command(40, 10, wire.ONEWAY)))
    assert not shell.sent()
