"""The cases of tests/fuzz at a listener with SASL: by strangers at every step of logging in, by a user without any
right, and by one who may do everything."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any

import pytest

from halfmoon.auth.scram import ScramClient
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from tests.fuzz.campaign import MEMORY_BYTES, SETTINGS, Campaign, versions
from tests.fuzz.grammar import World, join, valid_request
from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.peer import ClosedError, Peer, framed
from tests.hostile.secured import AUTHENTICATE, HANDSHAKE, MECHANISM, WITNESS, Hostile, Start

API_VERSIONS, METADATA = 18, 3
LOGGING_IN = (HANDSHAKE, API_VERSIONS, AUTHENTICATE)
FUZZER, NOBODY = "fuzzer", "nobody"
STRANGERS, CASES, AT_ONCE = 1_000, 500, 16
FAILED = 58
OFFERED = [*versions(), *[pair for pair in versions() if pair[0] in LOGGING_IN] * 25]
"""APIs and versions. Those by which one logs in come often."""

SECTIONS: dict[str, Any] = {**SETTINGS, "security": {"super_users": [f"User:{WITNESS}", f"User:{FUZZER}"]}}
"""No case takes the witness's rights."""


def started(hostile: Start) -> Hostile:
    found = hostile(tls=False, **SECTIONS)
    for name in (FUZZER, NOBODY):
        found.admin.user(name)
    return found


def step(peer: Peer, number: int) -> None:
    """The first steps of logging in."""
    if number >= 1:
        peer.ask(API_VERSIONS, 0)
    if number >= 2:
        peer.ask(HANDSHAKE, 1, mechanism=MECHANISM.name)
    if number >= 3:
        peer.ask(AUTHENTICATE, 2, auth_bytes=ScramClient(MECHANISM, WITNESS, "wrong", "nonce").first())


def answers_to(peer: Peer, body: bytes) -> list[int]:
    """Correlation ids of the answers to it, and to a request that no stranger may make; until the connection ends."""
    peer.send(framed(body) + framed(struct.pack(">hhihi", METADATA, 1, -7, -1, 0)))
    found: list[int] = []
    try:
        while True:
            found.append(struct.unpack_from(">i", peer.frame(5))[0])
    except ClosedError:
        return found


def strange(found: Hostile, number: int) -> int:
    """How many answers somebody gets who has not logged in."""
    chance = Random(f"20130411:{number}")
    key, version = chance.choice(OFFERED)
    tokens = valid_request(chance, World(), key, version, number)
    body = join(tokens) if chance.random() < 0.3 else chance.choice(MUTATIONS)(chance, tokens)
    with found.stranger() as peer:
        step(peer, chance.randrange(4))
        ids = answers_to(peer, body)
    assert -7 not in ids, f"case {number}: a stranger was told of topics {body.hex()}"
    really = struct.unpack_from(">h", body)[0] if len(body) > 1 else None
    assert len(ids) <= 1, f"case {number}: {ids} {body.hex()}"
    assert not ids or really in LOGGING_IN, f"case {number}: {body.hex()}"
    return len(ids)


def test_strangers(hostile: Start) -> None:
    found = started(hostile)
    with found.watched(), ThreadPoolExecutor(AT_ONCE) as pool:
        answered = sum(pool.map(partial(strange, found), range(STRANGERS)))
    assert answered > STRANGERS * 0.05


@pytest.mark.parametrize("name", [FUZZER, NOBODY])
def test_users(hostile: Start, name: str) -> None:
    found = started(hostile)
    with found.watched(grown_bytes=MEMORY_BYTES, lines=CASES) as memory:
        campaign = Campaign(
            found.broker, found.witness, memory, 20130508,
            connect=lambda: found.logged_in(name), keeper=lambda: found.logged_in(FUZZER),
        )  # fmt: skip
        for number in range(CASES):
            campaign.case(number)
        campaign.tidy()
        if name == NOBODY:
            assert left_behind(found) == {"topics": ["canary"], "groups": [], "transactions": [], "rules": 0}
    assert campaign.outcomes["answered"] > CASES * 0.3
    assert campaign.outcomes["closed"] > CASES * 0.1


def left_behind(found: Hostile) -> dict[str, Any]:
    """What there is besides what the keeper has made."""
    admin = found.admin
    listed = admin.ask(66, 0, state_filters=[], producer_id_filters=[])
    return {
        "topics": [each.name for each in admin.ask(3, 7, topics=None).topics if each.name != AUDIT_TOPIC],
        "groups": [each.group_id for each in admin.ask(16, 2).groups if not each.group_id.startswith("fuzz-group-")],
        "transactions": [each.transactional_id for each in listed.transaction_states],
        "rules": len(admin.rules_of(NOBODY)),
    }


def spoilt(found: Hostile, number: int) -> None:
    """A login in which one byte is another, or the rest is missing, of the first or of the second message."""
    chance = Random(f"20130601:{number}")
    with found.stranger() as peer:
        peer.ask(HANDSHAKE, 1, mechanism=MECHANISM.name)
        scram = ScramClient(MECHANISM, WITNESS, "a password", f"nonce{number}")
        message = bytearray(scram.first())
        if number % 2:
            message = bytearray(scram.final(bytes(peer.ask(AUTHENTICATE, 2, auth_bytes=bytes(message)).auth_bytes)))
        at = chance.randrange(len(message))
        if number % 3:
            message[at] ^= 1 << chance.randrange(8)
        else:
            del message[at:]
        answer = peer.ask(AUTHENTICATE, 2, auth_bytes=bytes(message))
        if number % 2:
            assert answer.error_code == FAILED, message
        else:  # another name or nonce is no error yet
            assert answer.error_code in (0, FAILED), message
            assert b",v=" not in answer.auth_bytes


def test_logins_that_are_spoilt(hostile: Start) -> None:
    found = started(hostile)
    with found.watched(), ThreadPoolExecutor(AT_ONCE) as pool:
        assert sum(1 for _ in pool.map(partial(spoilt, found), range(200))) == 200
