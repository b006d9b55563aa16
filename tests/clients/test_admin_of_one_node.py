"""Administration that is about more than topics, with confluent-kafka's and kafka-python's own calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism as PythonMechanism
from kafka.admin import UserScramCredentialDeletion as PythonDeletion
from kafka.admin import UserScramCredentialUpsertion as PythonUpsertion

from halfmoon.testing import Broker

MakeTopic = Callable[..., str]


@pytest.fixture
def own_admin(own_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": own_broker.bootstrap_servers})


@pytest.fixture
def python_admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


def node_of(admin: AdminClient) -> str:
    return str(next(iter(admin.list_topics(timeout=10).brokers)))


def change(admin: AdminClient, kind: ResourceType, name: str, **configs: str | None) -> None:
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10)


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(10)
    return found


def test_no_election_is_needed(admin: AdminClient, make_topic: MakeTopic) -> None:
    partition = TopicPartition(make_topic(), 0)
    told = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(10)
    assert told[partition].code() == KafkaError.ELECTION_NOT_NEEDED


def test_the_node_is_configured_while_it_runs(own_broker: Broker, own_admin: AdminClient) -> None:
    node = node_of(own_admin)
    before = described(own_admin, ResourceType.BROKER, node)["num.partitions"].value
    change(own_admin, ResourceType.BROKER, node, num_partitions="7", log_retention_ms="3600000")
    entry = described(own_admin, ResourceType.BROKER, node)["num.partitions"]
    assert (entry.value, entry.source) == ("7", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    own_broker.restart()
    assert described(own_admin, ResourceType.BROKER, node)["num.partitions"].value == "7"
    assert described(own_admin, ResourceType.BROKER, node)["log.retention.ms"].value == "3600000"
    change(own_admin, ResourceType.BROKER, node, num_partitions=None)
    assert described(own_admin, ResourceType.BROKER, node)["num.partitions"].value == before
    with pytest.raises(KafkaException, match=r"broker\.yaml"):
        change(own_admin, ResourceType.BROKER, node, node_id="9")


def test_credentials(admin: AdminClient, name: str) -> None:
    with pytest.raises(KafkaException) as caught:
        admin.describe_user_scram_credentials([name])[name].result(10)
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


SCRAM_256, SCRAM_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def test_credentials_are_kept_over_a_restart(own_broker: Broker, own_admin: AdminClient) -> None:
    def told(*changes: UserScramCredentialAlteration) -> None:
        for future in own_admin.alter_user_scram_credentials(list(changes)).values():
            future.result(10)

    def shown() -> dict[str, list[tuple[ScramMechanism, int]]]:
        found = own_admin.describe_user_scram_credentials().result(10)
        return {
            name: [(each.mechanism, each.iterations) for each in said.scram_credential_infos]
            for name, said in found.items()
        }

    told(
        UserScramCredentialUpsertion("alice", ScramCredentialInfo(SCRAM_256, 4096), b"password", b"salt"),
        UserScramCredentialUpsertion("bob", ScramCredentialInfo(SCRAM_512, 8192), b"password"),
    )
    told(UserScramCredentialUpsertion("alice", ScramCredentialInfo(SCRAM_512, 16384), b"password"))
    expected = {"alice": [(SCRAM_256, 4096), (SCRAM_512, 16384)], "bob": [(SCRAM_512, 8192)]}
    assert shown() == expected
    own_broker.restart()
    assert shown() == expected
    told(UserScramCredentialDeletion("alice", SCRAM_256))
    own_broker.restart()
    assert shown() == {"alice": [(SCRAM_512, 16384)], "bob": [(SCRAM_512, 8192)]}
    told(UserScramCredentialDeletion("alice", SCRAM_512), UserScramCredentialDeletion("bob", SCRAM_512))
    for mechanism, iterations, code in (
        (SCRAM_256, 4095, KafkaError.UNACCEPTABLE_CREDENTIAL),
        (SCRAM_256, 16385, KafkaError.UNACCEPTABLE_CREDENTIAL),
    ):
        with pytest.raises(KafkaException) as caught:
            told(UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, iterations), b"password"))
        assert caught.value.args[0].code() == code
    with pytest.raises(KafkaException) as caught:
        told(UserScramCredentialDeletion("alice", SCRAM_512))
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_credentials_by_kafka_python(own_broker: Broker) -> None:
    def ask(question: Callable[[KafkaAdminClient], Any]) -> Any:
        client = KafkaAdminClient(bootstrap_servers=own_broker.bootstrap_servers)
        try:
            return question(client)
        finally:
            client.close()

    wanted = PythonUpsertion("carol", PythonMechanism.SCRAM_SHA_512, "password", iterations=4096)
    assert ask(lambda admin: admin.alter_user_scram_credentials([wanted])) == {"carol": None}
    own_broker.restart()
    said = ask(lambda admin: admin.describe_user_scram_credentials(["carol", "dave"]))
    assert said["carol"]["credential_infos"] == [{"mechanism": PythonMechanism.SCRAM_SHA_512, "iterations": 4096}]
    assert "dave" in said["dave"]["error"]
    gone = PythonDeletion("carol", PythonMechanism.SCRAM_SHA_512)
    assert ask(lambda admin: admin.alter_user_scram_credentials([gone])) == {"carol": None}
    assert ask(lambda admin: admin.describe_user_scram_credentials()) == {}


def test_access_rules(own_broker: Broker, own_admin: AdminClient) -> None:
    def rule(principal: str) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, principal, "*", AclOperation.READ,
            AclPermissionType.ALLOW,
        )  # fmt: skip

    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    alice, everybody = rule("User:alice"), rule("User:*")
    futures = own_admin.create_acls([alice, everybody])
    futures[alice].result(10)
    with pytest.raises(KafkaException) as caught:
        futures[everybody].result(10)
    assert caught.value.args[0].code() == KafkaError.SECURITY_DISABLED
    own_broker.restart()
    assert own_admin.describe_acls(everything).result(10) == [alice]
    assert own_admin.delete_acls([everything])[everything].result(10) == [alice]
    assert own_admin.describe_acls(everything).result(10) == []


def test_offsets(admin: AdminClient, make_topic: MakeTopic) -> None:
    partition = TopicPartition(make_topic(), 0)
    told = admin.list_offsets({partition: OffsetSpec.latest()})
    assert told[partition].result(10).offset == 0


def test_kafka_python_infers_the_release(python_admin: KafkaAdminClient) -> None:
    assert python_admin.config["api_version"] is None or python_admin.config["api_version"] >= (4, 3)
    quorum = python_admin.describe_metadata_quorum()
    assert quorum["topics"][0]["partitions"][0]["leader_id"] >= 0
    assert python_admin.describe_features() is not None
