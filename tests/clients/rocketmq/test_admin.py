"""What mqadmin does, by the class that it does it with (rocketmq-tools)."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError

from halfmoon.testing import Broker
from tests.clients.rocketmq.java import Clients, Java, refusal, until

pytestmark = pytest.mark.spark
HEADERS = ["JSON", "ROCKETMQ"]


def test_topics_groups_and_clients_are_shown(clients: Clients) -> None:
    topic, group = clients.topic(3), clients.name("group")
    producer, admin = clients.producer(), clients.admin
    for number in range(9):
        producer.send(clients.message(topic, "A", f"m{number}"))
    consumer = clients.push(group, topic)
    got = clients.listen(consumer)
    got.wait(9)
    assert topic in set(admin.fetchAllTopicList().getTopicList())
    clusters = admin.examineBrokerClusterInfo().getClusterAddrTable()
    assert {name for each in clusters.values() for name in each} == clients.brokers
    table = admin.examineTopicStats(topic).getOffsetTable()
    assert sorted(map(clients.partition, table.keySet())) == [0, 1, 2]
    assert sum(offset.getMaxOffset() for offset in table.values()) == 9
    connection = admin.examineConsumerConnectionInfo(group)
    assert len(connection.getConnectionSet()) == 1
    assert topic in set(connection.getSubscriptionTable().keySet())
    assert set(admin.queryTopicConsumeByWho(topic).getGroupList()) == {group}
    consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset()  # Which it does after 10 s for the first time.
    until(lambda: admin.examineConsumeStats(group, topic).computeTotalDiff() == 0)
    assert sum(admin.examineTopicConfig(each, topic).getReadQueueNums() for each in clients.addresses()) == 3
    assert "halfmoon" in admin.fetchBrokerRuntimeStats(clients.broker.rocketmq).getTable()["brokerVersionDesc"].lower()
    # The broker asks the client.
    client_id = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId()
    running = admin.getConsumerRunningInfo(group, client_id, False)
    assert {each.getTopic() for each in running.getSubscriptionSet()} == {topic, f"%RETRY%{group}"}


def test_offsets_are_set_back_while_the_consumer_runs(clients: Clients) -> None:
    topic, group = clients.topic(3), clients.name("group")
    producer = clients.producer()
    for number in range(9):
        producer.send(clients.message(topic, "A", f"m{number}"))
    consumer = clients.push(group, topic)
    got = clients.listen(consumer)
    got.wait(9)
    consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset()
    until(lambda: clients.admin.examineConsumeStats(group, topic).computeTotalDiff() == 0)
    assert len(clients.admin.resetOffsetByTimestamp(topic, group, 0, True)) == 3
    got.exactly(18, 30)


def test_topics_are_deleted(clients: Clients) -> None:
    topic, admin = clients.topic(), clients.admin
    admin.deleteTopicInBroker(clients.java.set([clients.broker.rocketmq]), topic)
    admin.deleteTopicInNameServer(clients.java.set([clients.broker.namesrv]), "DefaultCluster", topic)
    assert topic not in set(admin.fetchAllTopicList().getTopicList())
    assert refusal(lambda: admin.examineTopicRouteInfo(topic)) == 17


def mqadmin(clients: Clients, command: str, *arguments: str) -> None:
    """A command of mqadmin by the class behind it. Raises what it raises."""
    java = clients.java
    made = java.named(f"org.apache.rocketmq.tools.command.{command}")()
    options = made.buildCommandlineOptions(java.named("org.apache.commons.cli.Options")())
    words = java.gateway.new_array(java.jvm.java.lang.String, len(arguments))
    for index, word in enumerate(arguments):
        words[index] = word
    line = java.named("org.apache.commons.cli.DefaultParser")().parse(options, words)
    java.jvm.java.lang.System.setProperty("rocketmq.namesrv.addr", clients.broker.namesrv)
    try:
        made.execute(line, options, None)
    finally:
        java.jvm.java.lang.System.clearProperty("rocketmq.namesrv.addr")


@pytest.mark.parametrize("where", ["broker", "cluster"])
def test_attributes_and_order(clients: Clients, where: str) -> None:
    admin, broker, topic = clients.admin, clients.broker.rocketmq, clients.name("topic")
    brokers = clients.addresses()
    at = ["-b", broker] if where == "broker" else ["-c", "DefaultCluster"]

    def config() -> tuple[dict[str, str], bool, int]:
        found = [admin.examineTopicConfig(each, topic) for each in brokers]
        assert len({(str(each.getAttributes()), each.isOrder()) for each in found}) == 1
        queues = sum(each.getWriteQueueNums() for each in found)
        return dict(found[0].getAttributes()), found[0].isOrder(), queues

    mqadmin(clients, "topic.UpdateTopicSubCommand", *at, "-t", topic, "-a", "+message.type=DELAY", "-o", "true")
    assert config() == ({"message.type": "DELAY"}, True, 8)
    told = clients.brokers if where == "cluster" else {sorted(clients.brokers)[0]}
    assert set(admin.getKVConfig("ORDER_TOPIC_CONFIG", topic).split(";")) == {f"{name}:8" for name in told}
    assert topic in set(admin.getKVListByNamespace("ORDER_TOPIC_CONFIG").getTable().keySet())
    mqadmin(clients, "topic.UpdateOrderConfCommand", "-t", topic, "-m", "delete")
    mqadmin(clients, "topic.UpdateTopicSubCommand", *at, "-t", topic, "-r", "9", "-w", "9", "-a", "-message.type")
    assert config() == ({}, False, 9)
    with pytest.raises(Py4JJavaError, match="unsupported key: nosuch"):
        mqadmin(clients, "topic.UpdateTopicSubCommand", *at, "-t", topic, "-a", "+nosuch=1")


def test_topics_are_not_made_by_sending_where_that_is_off(java: Java) -> None:
    listener = {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}
    with Broker(config={"listeners": {"rocketmq": listener}, "topics": {"auto_create": False}}) as broker:
        clients = Clients(java, broker, "off")
        producer = clients.producer()
        assert refusal(lambda: producer.send(clients.message("unknown", "A", "x"))) in (17, 10_005)
        topic = clients.topic()
        assert producer.send(clients.message(topic, "A", "x")).getSendStatus().toString() == "SEND_OK"
        clients.close()
        java.settle()
