"""What mqadmin does, by the class that it does it with (rocketmq-tools)."""

from __future__ import annotations

import pytest

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
    assert {name for each in clusters.values() for name in each} == {"halfmoon"}
    table = admin.examineTopicStats(topic).getOffsetTable()
    assert sorted(queue.getQueueId() for queue in table.keySet()) == [0, 1, 2]
    assert sum(offset.getMaxOffset() for offset in table.values()) == 9
    connection = admin.examineConsumerConnectionInfo(group)
    assert len(connection.getConnectionSet()) == 1
    assert topic in set(connection.getSubscriptionTable().keySet())
    assert set(admin.queryTopicConsumeByWho(topic).getGroupList()) == {group}
    consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset()  # Which it does after 10 s for the first time.
    until(lambda: admin.examineConsumeStats(group, topic).computeTotalDiff() == 0)
    assert admin.examineTopicConfig(clients.broker.rocketmq, topic).getReadQueueNums() == 3
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
