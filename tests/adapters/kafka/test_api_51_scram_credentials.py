"""AlterUserScramCredentials and DescribeUserScramCredentials: codes as Kafka's, and the bytes of an answer."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import Rig, RigClient

from halfmoon.adapters.kafka.protocol import REQUESTS
from halfmoon.auth.scram import SHA_256, salted_password
from halfmoon.services.credentials.users import Users
from halfmoon.testing.node import BareNode

DESCRIBE, ALTER = 50, 51
SHA256, SHA512 = 1, 2


@pytest.fixture
def client(rig: Rig) -> RigClient:
    return rig.client()


def upsertion(name: str = "alice", **changed: Any) -> Any:
    fields = {"mechanism": SHA256, "iterations": 4096, "salt": b"salt", "salted_password": b"s" * 32} | changed
    return REQUESTS[ALTER].ScramCredentialUpsertion(name=name, **fields)


def deletion(name: str = "alice", mechanism: int = SHA256) -> Any:
    return REQUESTS[ALTER].ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(client: RigClient, *changes: Any) -> dict[str, int]:
    is_upsertion = [hasattr(each, "salt") for each in changes]
    answer = client.ask(
        ALTER, 0,
        deletions=[each for each, new in zip(changes, is_upsertion, strict=True) if not new],
        upsertions=[each for each, new in zip(changes, is_upsertion, strict=True) if new],
    )  # fmt: skip
    for result in answer.results:
        assert (result.error_message is None) == (result.error_code == 0)
    assert len({result.user for result in answer.results}) == len(answer.results)
    return {result.user: result.error_code for result in answer.results}


def describe(client: RigClient, *names: str, everybody: Any = ()) -> dict[str, Any]:
    """By user: a code, or (mechanism, iterations) of each credential."""
    users = [REQUESTS[DESCRIBE].UserName(name=name) for name in names]
    answer = client.ask(DESCRIBE, 0, users=users or everybody)
    assert (answer.error_code, answer.error_message) == (0, None)
    return {
        result.user: result.error_code or [(each.mechanism, each.iterations) for each in result.credential_infos]
        for result in answer.results
    }


def test_credentials_are_set_shown_and_deleted(client: RigClient) -> None:
    assert alter(client, upsertion(), upsertion("bob", mechanism=SHA512, iterations=16384)) == {"alice": 0, "bob": 0}
    assert alter(client, upsertion(mechanism=SHA512, iterations=8192)) == {"alice": 0}
    alice, bob = [(SHA256, 4096), (SHA512, 8192)], [(SHA512, 16384)]
    assert describe(client) == describe(client, everybody=None) == {"alice": alice, "bob": bob}
    assert describe(client, "bob", "carol") == {"bob": bob, "carol": 91}
    assert describe(client, "bob", "alice", "bob") == {"bob": 92, "alice": alice}
    assert alter(client, deletion(), deletion("bob", SHA512)) == {"alice": 0, "bob": 0}
    assert describe(client) == {"alice": [(SHA512, 8192)]}
    assert describe(client, "bob") == {"bob": 91}


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ([upsertion(iterations=4095)], {"alice": 93}),
        ([upsertion(iterations=16385)], {"alice": 93}),
        ([upsertion("")], {"": 93}),
        ([upsertion(salt=b"")], {"alice": 93}),
        ([upsertion(mechanism=0)], {"alice": 33}),
        ([upsertion(mechanism=3)], {"alice": 33}),
        ([deletion()], {"alice": 91}),
        ([deletion(mechanism=5)], {"alice": 33}),
        ([deletion("")], {"": 93}),
        ([upsertion(), upsertion(mechanism=SHA512)], {"alice": 92}),
        ([deletion(), upsertion()], {"alice": 91}),
        ([upsertion(), upsertion("bob", iterations=1), deletion("carol")], {"alice": 0, "bob": 93, "carol": 91}),
    ],
)
def test_codes(client: RigClient, changes: list[Any], codes: dict[str, int]) -> None:
    assert alter(client, *changes) == codes
    assert describe(client) == {name: [(SHA256, 4096)] for name, code in codes.items() if code == 0}


def test_what_is_kept_is_made_of_the_salted_password(rig: Rig, client: RigClient) -> None:
    salted = salted_password(SHA_256, "pencil", b"salt", 4096)
    alter(client, upsertion(salted_password=salted))
    (kept,) = rig.broker.services.get(Users).scram("alice")
    assert salted not in (kept.stored_key, kept.server_key)
    assert kept.salt == b"salt"


def test_credentials_are_there_after_a_power_loss(rig: Rig, client: RigClient) -> None:
    alter(client, upsertion(), upsertion("bob"))
    alter(client, deletion("bob"))
    again = BareNode(rig.fs.power_loss(), rig.settings, rig.clock, bytes)
    again.open()
    assert [each.name for each in again.users.all() if each.scram] == ["alice"]
