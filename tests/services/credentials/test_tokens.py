"""Delegation tokens: Kafka's rules, logging in with them, their time, and that they are there after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from halfmoon.auth.principals import Principal, user
from halfmoon.auth.scram import MECHANISMS, SHA_256, Login, ScramClient, ScramServer
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.credentials.tokens import (
    LONGEST_RENEWERS,
    MOST_OF_OWNER,
    MOST_RENEWERS,
    DelegationTokens,
    Token,
    password,
)
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, fill, open_broker, turn

ALICE, BOB, CAROL = user("alice"), user("bob"), user("carol")
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return open_broker(fs, clock)


@pytest.fixture
def tokens(broker: BareNode) -> DelegationTokens:
    return broker.services.get(DelegationTokens)


def make(tokens: DelegationTokens, owner: Principal = ALICE, *renewers: Principal, lifetime_ms: int = -1) -> Token:
    token, _ = tokens.create(owner, owner, renewers, lifetime_ms)
    return token


def log_in(tokens: DelegationTokens, token: Token, mechanism=SHA_256) -> Login | None:
    """Raises AuthenticationError."""
    find = lambda name, is_token: tokens.find(mechanism, name) if is_token else None  # noqa: E731
    served = ScramServer(mechanism, find, "sn", b"key")
    client = ScramClient(mechanism, token.said.id, password(token), "cn", {"tokenauth": "true"})
    client.verify(served.final(client.final(served.first(client.first()))))
    return served.login


def refusal(ask: Any) -> Fault:
    with pytest.raises(BrokerError) as refused:
        ask()
    return refused.value.fault


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda each: each.name)
def test_a_token_logs_its_owner_in(tokens: DelegationTokens, clock: VirtualClock, mechanism) -> None:
    made = make(tokens)
    assert log_in(tokens, made, mechanism) == Login(ALICE, made.said.id, clock.now_ms + DAY)
    assert make(tokens) != made
    assert repr(made.hmac) not in repr(made)


def test_lifetimes(tokens: DelegationTokens, clock: VirtualClock) -> None:
    now = clock.now_ms

    def times(lifetime_ms: int) -> tuple[int, int, int]:
        said = make(tokens, lifetime_ms=lifetime_ms).said
        return said.issued_ms - now, said.expires_ms - now, said.max_ms - now

    assert times(-1) == times(0) == times(2**63 - 1) == (0, DAY, 7 * DAY)
    assert times(2 * DAY) == (0, DAY, 2 * DAY)
    assert times(HOUR) == (0, HOUR, HOUR)


def test_renewing(tokens: DelegationTokens, clock: VirtualClock) -> None:
    made = make(tokens, ALICE, BOB)
    begun = clock.now_ms
    clock.now_ms += HOUR
    assert tokens.renew(made.hmac, BOB, -1)[0] == begun + HOUR + DAY
    assert tokens.renew(made.hmac, ALICE, HOUR)[0] == begun + 2 * HOUR
    assert tokens.renew(made.hmac, ALICE, 100 * DAY)[0] == begun + HOUR + DAY
    for day in range(1, 7):
        clock.now_ms = begun + day * DAY
        tokens.renew(made.hmac, ALICE, -1)
    assert tokens.renew(made.hmac, ALICE, -1)[0] == begun + 7 * DAY, "no longer than it was made for"
    assert refusal(lambda: tokens.renew(made.hmac, CAROL, -1)) is Fault.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refusal(lambda: tokens.renew(b"other", ALICE, -1)) is Fault.DELEGATION_TOKEN_NOT_FOUND
    clock.now_ms = begun + 7 * DAY + 1
    assert refusal(lambda: tokens.renew(made.hmac, ALICE, -1)) is Fault.DELEGATION_TOKEN_EXPIRED
    assert refusal(lambda: tokens.renew(made.hmac, CAROL, -1)) is Fault.DELEGATION_TOKEN_EXPIRED, "as Kafka asks"


def test_expiring(tokens: DelegationTokens, clock: VirtualClock) -> None:
    made = make(tokens, ALICE, BOB)
    gone: list[str] = []
    tokens.on_removed.append(gone.append)
    assert tokens.set_expiry(made.hmac, BOB, HOUR)[0] == clock.now_ms + HOUR
    assert tokens.set_expiry(made.hmac, ALICE, 0)[0] == clock.now_ms
    assert log_in(tokens, made), "until this millisecond is over"
    clock.now_ms += 1
    assert refusal(lambda: tokens.set_expiry(made.hmac, ALICE, HOUR)) is Fault.DELEGATION_TOKEN_EXPIRED
    assert refusal(lambda: tokens.set_expiry(made.hmac, CAROL, HOUR)) is Fault.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refusal(lambda: tokens.set_expiry(b"", ALICE, HOUR)) is Fault.DELEGATION_TOKEN_NOT_FOUND
    assert gone == []
    assert tokens.set_expiry(made.hmac, ALICE, -1)[0] == clock.now_ms
    assert gone == [made.said.id]
    assert refusal(lambda: tokens.set_expiry(made.hmac, ALICE, -1)) is Fault.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_that_has_expired_logs_nobody_in_and_is_removed(
    broker: BareNode, tokens: DelegationTokens, clock: VirtualClock
) -> None:
    made, longer = make(tokens, lifetime_ms=HOUR), make(tokens)
    gone: list[str] = []
    tokens.on_removed.append(gone.append)
    assert tokens.next_deadline() == clock.now_ms + HOUR + 1
    clock.now_ms += HOUR
    broker.timers.expire(clock.mono_ms())
    assert log_in(tokens, made)
    clock.now_ms += 1
    found = tokens.find(SHA_256, made.said.id)
    assert found is not None
    assert not found.usable
    broker.timers.expire(clock.mono_ms())
    assert gone == [made.said.id]
    assert tokens.find(SHA_256, made.said.id) is None
    assert tokens.next_deadline() == clock.now_ms + DAY - HOUR
    tokens.renew(longer.hmac, ALICE, -1)
    broker.timers.expire(clock.mono_ms())
    assert log_in(tokens, longer)


def test_a_full_disk_keeps_tokens_that_have_expired_and_lets_nobody_in_by_them(
    broker: BareNode, tokens: DelegationTokens, clock: VirtualClock, fs: FaultyFileSystem
) -> None:
    broker.create_topic("t", 1, {})
    made = make(tokens, lifetime_ms=HOUR)
    fill(broker, fs)
    clock.now_ms += 2 * HOUR
    broker.timers.expire(clock.mono_ms())
    found = tokens.find(SHA_256, made.said.id)
    assert found is not None
    assert not found.usable
    assert refusal(lambda: make(tokens)) is Fault.KAFKA_STORAGE_ERROR


def test_the_token_of_a_user_that_is_disabled_logs_nobody_in(broker: BareNode, tokens: DelegationTokens) -> None:
    broker.users.create("alice")
    made = make(tokens)
    broker.users.set_flags("alice", disabled=True)
    found = tokens.find(SHA_256, made.said.id)
    assert found is not None
    assert not found.usable
    broker.users.set_flags("alice", disabled=False)
    assert log_in(tokens, made)


def test_describing(tokens: DelegationTokens) -> None:
    first, second, third = make(tokens, ALICE, BOB), make(tokens, BOB), make(tokens, CAROL)

    def seen(asker: Principal, owners: list[Principal] | None, may: bool = False) -> list[Token]:
        return tokens.describe(asker, owners, lambda token: may)

    assert seen(ALICE, None) == [first]
    assert seen(BOB, None) == [first, second]
    assert seen(BOB, [ALICE]) == [first]
    assert seen(BOB, [BOB]) == [first, second], "owner or renewer"
    assert seen(BOB, [CAROL]) == []
    assert seen(BOB, []) == []
    assert seen(BOB, None, may=True) == [first, second, third]
    assert seen(BOB, [CAROL], may=True) == [third]


def test_whom_a_token_may_name(tokens: DelegationTokens) -> None:
    token, _ = tokens.create(ALICE, BOB, [CAROL], -1)
    assert (token.said.owner, token.said.requester, token.said.renewers) == ("User:alice", "User:bob", ["User:carol"])
    other = Principal("Group", "x")
    assert refusal(lambda: tokens.create(ALICE, ALICE, [BOB, other], -1)) is Fault.INVALID_PRINCIPAL_TYPE
    assert refusal(lambda: tokens.create(ALICE, ALICE, [BOB] * (MOST_RENEWERS + 1), -1)) is Fault.INVALID_REQUEST


def test_nobody_has_more_than_a_thousand(broker: BareNode, tokens: DelegationTokens) -> None:
    """Who has logged in makes them without any other right, and the broker keeps them in memory."""
    made = [make(tokens) for _ in range(MOST_OF_OWNER)]
    assert refusal(lambda: make(tokens)) is Fault.POLICY_VIOLATION
    assert refusal(lambda: tokens.create(ALICE, BOB, (), -1)) is Fault.POLICY_VIOLATION
    make(tokens, BOB)
    tokens.renew(made[0].hmac, ALICE, HOUR)
    tokens.set_expiry(made[0].hmac, ALICE, -1)
    make(tokens)
    assert refusal(lambda: make(tokens)) is Fault.POLICY_VIOLATION


def test_renewers_have_names_of_so_many_characters(tokens: DelegationTokens) -> None:
    names = [user(f"{number:04}" * 4) for number in range(MOST_RENEWERS)]
    make(tokens, ALICE, *names)
    assert refusal(lambda: make(tokens, ALICE, user("x" * LONGEST_RENEWERS), BOB)) is Fault.INVALID_REQUEST


def test_tokens_may_be_off(tokens: DelegationTokens) -> None:
    made = make(tokens)
    tokens.limits = replace(tokens.limits, enabled=False)
    for ask in (
        lambda: make(tokens),
        lambda: tokens.renew(made.hmac, ALICE, -1),
        lambda: tokens.set_expiry(made.hmac, ALICE, -1),
        lambda: tokens.describe(ALICE, None, lambda token: True),
    ):
        assert refusal(ask) is Fault.DELEGATION_TOKEN_AUTH_DISABLED
    assert tokens.find(SHA_256, made.said.id) is None


@pytest.mark.parametrize("end", ["close", "kill", "power loss"])
def test_tokens_are_there_after_a_restart(fs: FaultyFileSystem, clock: VirtualClock, end: str) -> None:
    broker = open_broker(fs, clock)
    made, removed = make(broker.tokens, ALICE, BOB), make(broker.tokens)
    broker.tokens.renew(made.hmac, BOB, 2 * HOUR)
    broker.tokens.set_expiry(removed.hmac, ALICE, -1)
    turn(broker)
    expected = dict(broker.state.credentials.tokens)
    assert broker.state.credentials.owned == {"User:alice": 1}
    assert list(expected) == [made.said.id]
    if end == "close":
        broker.close()
    else:
        fs = fs.kill() if end == "kill" else fs.power_loss()
    again = open_broker(fs, clock)
    assert again.state.credentials.tokens == expected
    assert log_in(again.tokens, made) == Login(ALICE, made.said.id, clock.now_ms + 2 * HOUR)
    assert again.tokens.next_deadline() == clock.now_ms + 2 * HOUR + 1
    assert again.tokens.renew(made.hmac, BOB, -1)
