"""Crowds of strangers: silent ones, slow ones, ones that speak something else, ones that guess passwords."""

from __future__ import annotations

import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from halfmoon.auth.scram import ScramClient
from tests.fuzz.peer import ClosedError, Peer, framed
from tests.fuzz.process import eventually
from tests.hostile.secured import AUTHENTICATE, HANDSHAKE, MECHANISM, Hostile, Start, until_closed

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
FIRST_BYTE = b"\x16"
"""Of a TLS record: a handshake."""
SPARE = 200
"""Descriptors that the test and the broker need for other things."""


@contextmanager
def crowd(address: tuple[str, int], count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """As many connections as there may be descriptors, from sixteen addresses; each sends the bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made: list[socket.socket] = []
    try:
        for number in range(min(count, hard - SPARE)):
            each = socket.socket()
            made.append(each)
            each.bind((f"127.0.0.{2 + number % 16}", 0))
            each.settimeout(20)
            each.connect(address)
            if said:
                each.sendall(said)
        yield made
    finally:
        for each in made:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


pytestmark = pytest.mark.timeout(180)  # of a machine that does other things, too
COUNTS = pytest.mark.parametrize("count", [2_000, 10_000])


@COUNTS
@pytest.mark.parametrize("said", [b"", FIRST_BYTE], ids=["silent", "one byte"])
def test_who_opens_thousands_of_connections_has_few_at_a_time(hostile: Start, said: bytes, count: int) -> None:
    """What 500 of them cost in their handshakes (46 KiB each) and in those that were broken off; a second
    crowd costs no more."""
    found = hostile()
    before = found.broker.sockets()
    for grown_bytes in (96 << 20, 64 << 20):
        with found.watched(grown_bytes=grown_bytes), crowd(found.broker.address, count, said) as made:
            assert len(made) > 500
            found.witness.wait_for_rounds(20)
            eventually(lambda: found.broker.sockets() - before <= 500 + 1, 30)
        eventually(lambda: found.broker.sockets() == before, 30)


@COUNTS
def test_silent_ones_that_are_let_stay_cost_little(hostile: Start, count: int) -> None:
    """With limits of somebody who does not care: less than eight kilobytes each."""
    found = hostile(limits={"max_unauthenticated": 20_000, "authentication_timeout": "5m", "max_connections": 20_000})
    before = found.broker.sockets()
    with found.watched(grown_bytes=(16 << 20) + 8_000 * count), crowd(found.broker.address, count) as made:
        eventually(lambda: found.broker.sockets() - before >= len(made), 30)
        found.witness.wait_for_rounds(20)
    eventually(lambda: found.broker.sockets() == before, 30)


def test_a_crowd_in_its_handshakes(hostile: Start) -> None:
    """Each has had the broker answer its hello, and says nothing more."""
    found = hostile()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    speaker = found.authority.client().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        speaker.do_handshake()
    hello = outgoing.read()
    before = found.broker.sockets()
    with found.watched(grown_bytes=96 << 20), crowd(found.broker.address, 1_000, hello):
        found.witness.wait_for_rounds(20)
        eventually(lambda: found.broker.sockets() - before <= 500 + 1, 30)


SAID = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a long record": b"\x16\x03\x01\xff\xff" + bytes(70_000),
    "a hello of 16 MiB": b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff",
    "SSL 2": b"\x80\x2e\x01\x00\x02",
    "a request without TLS": API_VERSIONS,
    "zeroes": bytes(70_000),
}


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain"])
def test_other_protocols(hostile: Start, tls: bool) -> None:
    found = hostile(tls=tls, limits={"authentication_timeout": "2s"})
    for what, said in SAID.items():
        with found.watched():
            for _ in range(60):
                with found.stranger() as stranger:
                    stranger.send(said)
            with found.stranger() as stranger:
                stranger.send(said)
                assert until_closed(stranger), what


def test_large_requests_of_strangers(hostile: Start) -> None:
    """A hundred that say they produce 100 MiB, and send a megabyte each if they are let."""
    found = hostile(tls=False)
    with found.watched(grown_bytes=16 << 20):
        strangers = [found.stranger() for _ in range(100)]
        for stranger in strangers:
            stranger.socket.settimeout(2)
            stranger.send(struct.pack(">ihhih", 100 << 20, 0, 9, 7, -1) + bytes(1 << 20))
        for stranger in strangers:
            assert until_closed(stranger)
            stranger.close()


def test_a_crowd_half_way_through_the_largest_that_a_stranger_may_send(hostile: Start) -> None:
    """500 times 64 KiB, but for a byte: what strangers can hold at all."""
    found = hostile(tls=False, limits={"authentication_timeout": "2s"})
    size = 64 << 10
    begun = struct.pack(">ihhih", size, 36, 2, 7, -1) + bytes(size - 11)
    with found.watched(grown_bytes=72 << 20):
        strangers = [found.stranger() for _ in range(500)]
        for stranger in strangers:
            assert stranger.ask(HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
            stranger.send(begun)
        found.witness.wait_for_rounds(5)
        for stranger in strangers:
            assert until_closed(stranger)
            stranger.close()


def guess(found: Hostile, name: str) -> None:
    with found.stranger() as stranger:
        stranger.ask(HANDSHAKE, 1, mechanism=MECHANISM.name)
        scram = ScramClient(MECHANISM, name, "wrong", "nonce")
        challenge = stranger.ask(AUTHENTICATE, 2, auth_bytes=scram.first())
        last = f"c=biws,r={bytes(challenge.auth_bytes).decode().split(',')[0][2:]},p=" + "A" * 43 + "="
        assert stranger.ask(AUTHENTICATE, 2, auth_bytes=last.encode()).error_code == 58


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_passwords_guessed_as_fast_as_one_can(hostile: Start, mechanism: str) -> None:
    """By thirty at once, each of whom is told a tenth of a second later; a witness logs in meanwhile."""
    found = hostile(tls=False)
    over = threading.Event()
    guessed: list[int] = []

    def run() -> None:
        count = 0
        while not over.is_set():
            try:
                if mechanism == "PLAIN":
                    with found.stranger() as stranger:
                        stranger.ask(HANDSHAKE, 1, mechanism="PLAIN")
                        stranger.ask(AUTHENTICATE, 2, auth_bytes=b"\0witness\0wrong")
                else:
                    guess(found, "witness")
            except ClosedError:
                pass  # too many authenticate just now
            count += 1
        guessed.append(count)

    with found.watched():
        threads = [threading.Thread(target=run) for _ in range(30)]
        for each in threads:
            each.start()
        end = time.monotonic() + 3
        while time.monotonic() < end:
            found.logged_in("witness").close()
            time.sleep(0.1)
        over.set()
        for each in threads:
            each.join(20)
    assert sum(guessed) > 100
    assert max(guessed) <= 3 / 0.1 + 10


def test_a_name_that_would_write_into_the_log(hostile: Start) -> None:
    """As client id, user, mechanism: each is one line, and no other."""
    found = hostile(tls=False)
    bad = "x\n2026-01-01 00:00:00 level=ERROR event=forged\r\x1b[2J\u2028\x00 user=admin"
    with found.watched():
        for mechanism in ("PLAIN", bad):
            with found.stranger() as stranger:
                stranger.ask(HANDSHAKE, 1, mechanism=mechanism)
                if mechanism == "PLAIN":
                    said = bad.replace("\0", "").encode()
                    stranger.ask(AUTHENTICATE, 2, auth_bytes=b"\0" + said + b"\0" + said)
        with found.stranger() as stranger:
            spelled = bad.encode()
            stranger.send(framed(struct.pack(">hhih", 3, 1, 7, len(spelled)) + spelled + bytes(4)))
            assert until_closed(stranger)
    logged = found.broker.lines
    assert not [line for line in logged if line.startswith("2026-01-01") or "\x1b" in line or "\x00" in line]


def test_those_who_begin_and_leave(hostile: Start) -> None:
    """At every step of logging in, a thousand times, without a word."""
    found = hostile(tls=False)
    before = found.broker.sockets()
    with found.watched():
        for number in range(1_000):
            with Peer(found.broker.address) as stranger:
                if number % 4 == 1:
                    stranger.send(API_VERSIONS)
                elif number % 4 == 2:
                    stranger.ask(HANDSHAKE, 1, mechanism="PLAIN")
                    stranger.send(stranger.request(AUTHENTICATE, 2, auth_bytes=b"\0witness\0wrong"))
                elif number % 4 == 3:
                    stranger.ask(HANDSHAKE, 1, mechanism=MECHANISM.name)
                    stranger.send(stranger.request(AUTHENTICATE, 2, auth_bytes=b"n,,n=witness,r=nonce"))
    eventually(lambda: found.broker.sockets() == before, 30)
