"""Administration that is about more than topics, with confluent-kafka's and kafka-python's own calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient

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


def test_credentials_are_refused(own_admin: AdminClient) -> None:
    wanted = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"password", b"salt"
    )
    with pytest.raises(KafkaException) as caught:
        own_admin.alter_user_scram_credentials([wanted])["alice"].result(10)
    assert caught.value.args[0].code() == KafkaError.UNSUPPORTED_SASL_MECHANISM


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
