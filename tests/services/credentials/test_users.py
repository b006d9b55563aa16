"""Users: Kafka's rules of their credentials, what a login finds of them, and that they are there after a restart."""

from __future__ import annotations

import random
from typing import Any

import pytest

from halfmoon.auth import plain, scram
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import Principal, user
from halfmoon.auth.scram import SHA_256, SHA_512, Login, ScramClient, ScramServer
from halfmoon.core.storage.files import read_file
from halfmoon.errors import BrokerError, Fault, StartError
from halfmoon.schema.control import ScramCredential, User, UsersChanged
from halfmoon.services.credentials import node_key
from halfmoon.services.credentials.tokens import DelegationTokens
from halfmoon.services.credentials.users import AT_ONCE, Change, Deletion, Upsertion, Users
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, fill, open_broker, turn

ALICE = user("alice")


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return open_broker(fs, clock)


@pytest.fixture
def users(broker: BareNode) -> Users:
    return broker.services.get(Users)


def upsertion(name: str = "alice", mechanism: int = 1, password: str = "s3cret", **changed: Any) -> Upsertion:
    kind = scram.BY_NUMBER.get(mechanism, SHA_256)
    salted = scram.salted_password(kind, password, b"salt of the test", 4096)
    return Upsertion(name, mechanism, 4096, b"salt of the test", salted)._replace(**changed)


def faults(altered: dict[str, BrokerError | None]) -> dict[str, Fault | None]:
    return {name: error and error.fault for name, error in altered.items()}


def log_in(users: Users, name: str = "alice", password: str = "s3cret", mechanism=SHA_256) -> Login | None:
    """By SCRAM. Raises AuthenticationError."""
    find = lambda name, is_token: users.credentials(name).get(mechanism)  # noqa: E731
    served = ScramServer(mechanism, find, "sn", users.unknown_key())
    client = ScramClient(mechanism, name, password, "cn")
    client.verify(served.final(client.final(served.first(client.first()))))
    return served.login


# -- AlterUserScramCredentials -----------------------------------------------------------------------------------------


def test_a_credential_is_set_used_replaced_and_deleted(users: Users) -> None:
    assert faults(users.alter([], [upsertion()])) == {"alice": None}
    assert log_in(users) == Login(ALICE)
    with pytest.raises(AuthenticationError):
        log_in(users, mechanism=SHA_512)

    users.alter([], [upsertion(mechanism=2)])
    assert log_in(users) == log_in(users, mechanism=SHA_512) == Login(ALICE)
    assert [(each.mechanism, each.iterations) for each in users.scram("alice")] == [(1, 4096), (2, 4096)]

    users.alter([], [upsertion(password="n3w")])
    assert log_in(users, password="n3w")
    with pytest.raises(AuthenticationError):
        log_in(users)

    assert faults(users.alter([Deletion("alice", 1)], [])) == {"alice": None}
    with pytest.raises(AuthenticationError):
        log_in(users, password="n3w")
    users.alter([Deletion("alice", 2)], [])
    assert users.find("alice").scram == []
    with pytest.raises(BrokerError, match="no credential"):
        users.scram("alice")


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"name": ""}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"name": "a" * 256}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"name": "a\0"}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"name": "local-admin"}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"name": "ANONYMOUS"}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 0}, Fault.UNSUPPORTED_SASL_MECHANISM),
        ({"mechanism": 3}, Fault.UNSUPPORTED_SASL_MECHANISM),
        ({"mechanism": -1}, Fault.UNSUPPORTED_SASL_MECHANISM),
        ({"iterations": 4095}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 16385}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": -1}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b""}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"salt": bytes(1025)}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"salted_password": b""}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"salted_password": bytes(1025)}, Fault.UNACCEPTABLE_CREDENTIAL),
        # The first of several is told.
        ({"name": "", "mechanism": 9}, Fault.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 9, "iterations": 1}, Fault.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_what_is_refused(broker: BareNode, users: Users, changed: dict[str, Any], fault: Fault) -> None:
    written = broker.log.end
    asked = upsertion(**changed)
    assert faults(users.alter([], [asked])) == {asked.name: fault}
    assert (broker.log.end, users.count) == (written, 0)


def test_names_of_the_brokers_own_let_nobody_in(broker: BareNode, users: Users) -> None:
    """Also those that were there before they were refused."""
    for name in ("local-admin", "ANONYMOUS"):
        with pytest.raises(BrokerError, match="one of the broker's own"):
            users.create(name, secret="secret")
        made = User(name, [ScramCredential(1, b"salt", b"stored", b"server", 4096)], sealed=users._seal(name, "secret"))
        broker.state.credentials.apply(UsersChanged([made], []))
        assert [found.usable for found in users.credentials(name).values()] == [False]
        assert users.secret(name) is None


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_limits_themselves(users: Users, iterations: int) -> None:
    assert faults(users.alter([], [upsertion(iterations=iterations)])) == {"alice": None}


@pytest.mark.parametrize(
    ("name", "mechanism", "fault"),
    [
        ("alice", 2, Fault.RESOURCE_NOT_FOUND),
        ("bob", 1, Fault.RESOURCE_NOT_FOUND),
        ("", 1, Fault.UNACCEPTABLE_CREDENTIAL),
        ("alice", 7, Fault.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_deletions_that_are_refused(users: Users, name: str, mechanism: int, fault: Fault) -> None:
    users.alter([], [upsertion()])
    assert faults(users.alter([Deletion(name, mechanism)], [])) == {name: fault}
    assert log_in(users)


ALTERED_TWICE = [
    ([("alice", 1), ("alice", 1)], [], {"alice": Fault.DUPLICATE_RESOURCE}),
    ([("alice", 1)], [("alice", 2)], {"alice": Fault.DUPLICATE_RESOURCE}),
    ([], [("bob", 1), ("bob", 2)], {"bob": Fault.DUPLICATE_RESOURCE}),
    ([], [("bob", 1), ("bob", 2), ("bob", 1)], {"bob": Fault.DUPLICATE_RESOURCE}),
    # What was wrong before stays, and is told once.
    ([("bob", 1), ("bob", 1)], [("bob", 1)], {"bob": Fault.RESOURCE_NOT_FOUND}),
    ([], [("bob", 9), ("bob", 1)], {"bob": Fault.UNSUPPORTED_SASL_MECHANISM}),
]


@pytest.mark.parametrize(("deletions", "upsertions", "answer"), ALTERED_TWICE)
def test_a_user_is_altered_once_in_a_request(
    users: Users, deletions: list[Any], upsertions: list[Any], answer: dict[str, Fault]
) -> None:
    users.alter([], [upsertion()])
    before = list(users.all())
    asked = [upsertion(name, mechanism) for name, mechanism in upsertions]
    assert faults(users.alter([Deletion(*each) for each in deletions], asked)) == answer
    assert list(users.all()) == before


def test_one_users_error_is_no_others(users: Users) -> None:
    users.alter([], [upsertion()])
    asked = [upsertion("bob"), upsertion("bob"), upsertion("carol")]
    assert faults(users.alter([Deletion("alice", 1)], asked)) == {
        "alice": None, "bob": Fault.DUPLICATE_RESOURCE, "carol": None,
    }  # fmt: skip
    assert [each.name for each in users.all() if each.scram] == ["carol"]


def test_many_users_are_written_in_parts(broker: BareNode, users: Users) -> None:
    one = upsertion()
    asked = [one._replace(name=f"u{at}") for at in range(AT_ONCE + 1)]
    assert set(faults(users.alter([], asked)).values()) == {None}
    assert users.count == AT_ONCE + 1


def test_a_log_that_takes_no_more_leaves_users_as_they_are(
    broker: BareNode, users: Users, fs: FaultyFileSystem
) -> None:
    broker.create_topic("t", 1, {})
    users.alter([], [upsertion()])
    heard: list[Any] = []
    users.on_change.append(lambda name, change: heard.append(name))
    fill(broker, fs)
    assert set(faults(users.alter([Deletion("alice", 1)], [upsertion("bob")]))) == {"alice", "bob"}
    assert all(users.alter([Deletion("alice", 1)], [upsertion("bob")]).values())
    for change in (
        lambda: users.delete("alice"),
        lambda: users.create("bob"),
        lambda: users.set_flags("alice", admin=True),
    ):
        with pytest.raises(BrokerError):
            change()
    assert heard == []
    assert [each.name for each in users.all()] == ["alice"]
    assert log_in(users)


# -- users themselves --------------------------------------------------------------------------------------------------


def test_a_user_is_created_whole(users: Users) -> None:
    users.create("alice", [upsertion(), upsertion(mechanism=2)], admin=True, secret="rocket")
    found = users.find("alice")
    assert (found.admin, found.disabled, [each.mechanism for each in found.scram]) == (True, False, [1, 2])
    assert log_in(users, mechanism=SHA_512)
    assert users.is_admin(ALICE)
    assert users.secret("alice") == "rocket"
    with pytest.raises(BrokerError) as refused:
        users.create("alice")
    assert refused.value.fault is Fault.DUPLICATE_RESOURCE


@pytest.mark.parametrize(
    ("name", "credentials"),
    [
        ("", []),
        ("bob", [upsertion("alice")]),
        ("bob", [upsertion("bob"), upsertion("bob")]),
        ("bob", [upsertion("bob", iterations=1)]),
        ("bob", [upsertion("bob", mechanism=5)]),
    ],
)
def test_a_user_that_is_not_created(users: Users, name: str, credentials: list[Upsertion]) -> None:
    with pytest.raises(BrokerError):
        users.create(name, credentials)
    assert users.count == 0


def test_whoever_is_disabled_has_the_wrong_password(users: Users) -> None:
    users.create("alice", [upsertion()], admin=True, secret="rocket")
    users.set_flags("alice", disabled=True)
    with pytest.raises(AuthenticationError, match="disabled"):
        log_in(users)
    with pytest.raises(AuthenticationError):
        plain.verification(plain.Plain("alice", "s3cret"), users.credentials("alice"), users.unknown_key())()
    assert users.secret("alice") is None
    assert users.is_disabled(ALICE)
    assert not users.is_admin(ALICE)

    users.set_flags("alice", disabled=False)
    assert log_in(users)
    assert plain.verification(plain.Plain("alice", "s3cret"), users.credentials("alice"), users.unknown_key())()
    assert (users.secret("alice"), users.is_admin(ALICE)) == ("rocket", True)


def test_a_principal_of_another_kind_is_no_user_of_that_name(users: Users) -> None:
    users.create("alice", admin=True)
    assert not users.is_admin(Principal("Group", "alice"))
    assert not users.is_admin(user("bob"))
    users.set_flags("alice", disabled=True)
    assert not users.is_disabled(Principal("Group", "alice"))


@pytest.mark.parametrize(
    "change",
    [
        lambda users: users.set_flags("bob", disabled=True),
        lambda users: users.set_secret("bob", "x"),
        lambda users: users.set_passwords("bob", []),
        lambda users: users.delete("bob"),
    ],
)
def test_nobody_is_changed_who_is_not_there(users: Users, change: Any) -> None:
    with pytest.raises(BrokerError) as refused:
        change(users)
    assert refused.value.fault is Fault.RESOURCE_NOT_FOUND
    assert users.count == 0


def test_passwords_replace_all_that_there_were(users: Users) -> None:
    users.create("alice", [upsertion(), upsertion(mechanism=2)], admin=True, secret="rocket")
    users.set_passwords("alice", [upsertion(mechanism=2, password="n3w")])
    assert [each.mechanism for each in users.scram("alice")] == [2]
    assert log_in(users, password="n3w", mechanism=SHA_512)
    assert (users.is_admin(ALICE), users.secret("alice")) == (True, "rocket")
    with pytest.raises(BrokerError):
        users.set_passwords("alice", [upsertion(iterations=1)])
    assert log_in(users, password="n3w", mechanism=SHA_512)


def test_listeners_hear_of_every_change(users: Users) -> None:
    heard: list[tuple[str, Change]] = []
    users.on_change.append(lambda name, change: heard.append((name, change)))
    users.create("alice")
    users.alter([], [upsertion()])
    users.alter([Deletion("alice", 1)], [])
    users.alter([Deletion("alice", 1)], [])  # refused
    users.set_secret("alice", "x")
    users.set_flags("alice", disabled=True)
    users.set_flags("alice", disabled=False)
    users.set_flags("alice", admin=True)
    users.set_flags("alice", admin=True)  # as it was
    users.set_passwords("alice", [upsertion()])
    users.delete("alice")
    assert heard == [
        ("alice", change)
        for change in (
            Change.CREATED, Change.CREDENTIALS, Change.CREDENTIALS, Change.CREDENTIALS, Change.DISABLED,
            Change.ENABLED, Change.ADMIN, Change.CREDENTIALS, Change.DELETED,
        )
    ]  # fmt: skip


def test_a_user_that_is_deleted_takes_its_tokens_along(broker: BareNode, users: Users) -> None:
    tokens = broker.services.get(DelegationTokens)
    users.create("alice")
    mine, _ = tokens.create(ALICE, ALICE, [], 0)
    other, _ = tokens.create(user("alice2"), ALICE, [ALICE], 0)
    users.delete("alice")
    assert tokens.find(SHA_256, mine.said.id) is None
    assert tokens.find(SHA_256, other.said.id) is not None
    assert list(broker.state.credentials.tokens) == [other.said.id]


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_a_secret_is_kept_encrypted(broker: BareNode, users: Users, fs: FaultyFileSystem) -> None:
    users.create("alice", secret="geheim-ä")
    sealed = users.find("alice").sealed
    assert "geheim-ä".encode() not in sealed
    users.set_secret("alice", "geheim-ä")
    assert users.find("alice").sealed != sealed, "another nonce each time"
    assert users.secret("alice") == "geheim-ä"
    users.set_secret("alice", "other")
    assert users.secret("alice") == "other"
    users.set_secret("alice", None)
    assert users.secret("alice") is None
    assert users.secret("bob") is None
    for wrong in ("", "x" * 1025):
        with pytest.raises(BrokerError):
            users.set_secret("alice", wrong)


def test_nobodys_secret_can_be_put_in_place_of_anothers(broker: BareNode, users: Users) -> None:
    users.create("alice", secret="a")
    users.create("bob", secret="b")
    state = broker.state.credentials.users
    alice, bob = state["alice"], state["bob"]
    state["bob"] = type(bob)("bob", [], False, False, alice.sealed)
    assert users.secret("bob") is None


def test_secrets_of_another_key_are_warned_of(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    broker.users.create("alice", secret="a")
    broker.users.create("bob")
    assert broker.warnings() == []
    broker.close()
    fs.remove(node_key.PATH)
    again = open_broker(fs, clock)
    assert again.users.secret("alice") is None
    (warning,) = again.warnings()
    assert "alice" in warning
    assert "bob" not in warning
    again.users.set_secret("alice", "new")
    assert again.users.secret("alice") == "new"
    assert again.warnings() == []


def test_without_the_extra_no_secret_is_taken_and_none_is_lost(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_broker(fs, clock)
    broker.users.create("alice", [upsertion()], secret="a")
    with monkeypatch.context() as without:
        without.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.ciphers.aead", None)
        with pytest.raises(BrokerError, match=r"halfmoon\[auth\]"):
            broker.users.set_secret("alice", "b")
        assert log_in(broker.users)
        broker.close()
        again = open_broker(fs, clock)
        assert again.users.secret("alice") is None
        assert "halfmoon[auth]" in again.warnings()[0]
        again.close()
    assert open_broker(fs, clock).users.secret("alice") == "a"


# -- the node's key ----------------------------------------------------------------------------------------------------


def test_the_key_is_made_when_it_is_needed_and_stays(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    broker.users.create("alice", [upsertion()])
    assert read_file(fs, node_key.PATH) is None
    key = broker.users.unknown_key()
    kept = read_file(fs, node_key.PATH)
    assert kept is not None
    assert len(kept) == 65
    again = open_broker(fs.power_loss(), clock)
    assert again.users.unknown_key() == key
    assert again.node_key.of("something else") != key


@pytest.mark.parametrize("content", [b"", b"0" * 63, b"0" * 65, b"g" * 64, b"0" * 64 + b"\n\n"])
def test_a_damaged_key_stops_the_start(fs: FaultyFileSystem, clock: VirtualClock, content: bytes) -> None:
    open_broker(fs, clock).close()
    fs.open(node_key.PATH, create=True).pwritev([content], 0)
    with pytest.raises(StartError, match=r"node\.key"):
        open_broker(fs, clock)


def test_a_key_that_cannot_be_written_refuses_what_needs_it(broker: BareNode, fs: FaultyFileSystem) -> None:
    fs.free = 0
    with pytest.raises(BrokerError) as refused:
        broker.users.create("alice", secret="x")
    assert refused.value.fault is Fault.KAFKA_STORAGE_ERROR
    assert broker.users.count == 0
    assert broker.users.unknown_key() == broker.users.unknown_key(), "logging in needs no disk"


# -- restarts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "kill", "power loss"])
def test_users_are_there_after_a_restart(fs: FaultyFileSystem, clock: VirtualClock, end: str) -> None:
    broker = open_broker(fs, clock)
    users = broker.users
    users.create("alice", [upsertion(), upsertion(mechanism=2)], admin=True, secret="rocket")
    users.alter([], [upsertion("bob"), upsertion("carol"), upsertion("dave")])
    users.alter([Deletion("carol", 1)], [])
    users.set_flags("bob", disabled=True)
    users.delete("dave")
    turn(broker)
    expected = list(users.all())
    assert [each.name for each in expected] == ["alice", "bob", "carol"]
    if end == "close":
        broker.close()
    else:
        fs = fs.kill() if end == "kill" else fs.power_loss()
    again = open_broker(fs, clock)
    assert list(again.users.all()) == expected
    assert log_in(again.users, mechanism=SHA_512) == Login(ALICE)
    assert again.users.secret("alice") == "rocket"
    assert again.users.is_admin(ALICE)
    with pytest.raises(AuthenticationError, match="disabled"):
        log_in(again.users, "bob")


def test_they_are_in_snapshots_too(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """A checkpoint has them, and what is read behind it changes nothing."""
    broker = open_broker(fs, clock)
    broker.users.create("alice", [upsertion()])
    broker.tokens.create(ALICE, ALICE, [], 0)
    users, tokens = dict(broker.state.credentials.users), dict(broker.state.credentials.tokens)
    broker.close()
    again = open_broker(fs, clock)
    assert (again.state.credentials.users, again.state.credentials.tokens) == (users, tokens)
    turn(again)
    once_more = open_broker(fs.power_loss(), clock)
    assert (once_more.state.credentials.users, once_more.state.credentials.tokens) == (users, tokens)


def test_what_was_not_synced_is_old_or_new(clock: VirtualClock) -> None:
    """Power is lost during the change: the user is as before or as after, never half."""
    seen = set()
    for seed in range(40):
        fs = FaultyFileSystem(random.Random(seed))
        broker = open_broker(fs, clock)
        broker.users.create("alice", [upsertion()])
        turn(broker)
        broker.users.alter([], [upsertion(mechanism=2), upsertion("bob")])
        broker.write()
        again = open_broker(fs.power_loss(), clock)
        seen.add(tuple((each.name, len(each.scram)) for each in again.users.all()))
    assert seen == {(("alice", 1),), (("alice", 2), ("bob", 1))}
