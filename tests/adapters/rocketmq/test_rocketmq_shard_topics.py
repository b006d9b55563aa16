"""Topics of RocketMQ's clients over shards: made by sending or by request, and sent to before a client knows where they
are. Users and access rules go the same way."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from rocketmq_rig import RigClient, sending, text_of
from rocketmq_shards_rig import BASE_PORT, Rig, body

from halfmoon.cluster.messages import AppendBatch
from halfmoon.core.append_types import Produced
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import DUE, Code
from halfmoon.remoting.message import BatchedMessage, decode_message_id, encode_batch
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.credentials.users import Users
from tests.adapters.kafka.shard_rig import HERE, SHARDS


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def client(rig: Rig) -> RigClient:
    return rig.client(0)


def topic_in(rig: Rig, shard: int) -> str:
    """A new topic of one queue, which lies in this shard."""
    for at in count():
        name = f"in{shard}-{at}"
        if rig.queues(rig.topic(name, 1), shard):
            return name
    raise AssertionError


def stored(rig: Rig, name: str) -> dict[int, int]:
    """Partition → messages, of the shards that are here."""
    return {
        partition.index: partition.high_watermark
        for node in rig.nodes.values()
        for partition in node.topic(name).here()
        if partition.high_watermark
    }


class TestMadeBySending:
    def test_a_topic_that_nobody_knows(self, rig: Rig, client: RigClient) -> None:
        rig.catalog_changes.waits = True
        client.feed(client.encode(310, b"m" * 100, **sending("orders", 2, "")))
        client.feed(client.encode(46, b"\0" * 4_000))  # what the body lay in is used again
        rig.turns()
        assert [each.code for each in client.answers()] == [Code.INVALID_PARAMETER]
        rig.catalog_changes.carry_out()
        rig.turns()
        (answer,) = client.answers()
        assert answer.code == 0
        assert len(rig.front.catalog.by_name["orders"].partitions) == 4
        ((index, messages),) = stored(rig, "orders").items()
        assert messages == 1
        shard = rig.shared.placements[rig.front.catalog.by_name["orders"].number][index]
        (message,) = rig.client(shard).read("orders", 0, int(answer.fields["queueId"]))
        assert bytes(message.body) == b"m" * 100

    def test_two_that_make_it_at_once(self, rig: Rig, client: RigClient) -> None:
        rig.catalog_changes.waits = True
        for each in (client, rig.client(0)):
            each.feed(each.encode(310, b"m", **sending("orders", 0, "")))
        rig.client(2).send(310, b"m", oneway=True, **sending("orders", 0, ""))
        rig.catalog_changes.carry_out()
        rig.turns()
        assert [each.code for each in client.answers()] == [0]
        assert sum(stored(rig, "orders").values()) == 3

    @pytest.mark.parametrize("shard", [0, 2])
    def test_its_first_queue_lies_where_it_was_made(self, rig: Rig, shard: int) -> None:
        """So that what begins with a half message can be stored at once."""
        for topic in "halfmoon.transactions", "check.producers":
            rig.topic(topic, SHARDS)
        client = rig.client(shard)
        for number in range(20):
            name = f"orders-{number}"
            client.produce(name, b"m", 3, TRAN_MSG="true", PGROUP="producers", UNIQ_KEY=f"u{number}")
            assert 0 in rig.queues(rig.front.catalog.by_name[name], shard)
            assert stored(rig, name) == {}  # it waits

    def test_it_cannot_be_made(self, rig: Rig, client: RigClient) -> None:
        rig.catalog_changes.fails = BrokerError(Fault.INVALID_PARTITIONS, "too many")
        answer = client.ask(310, b"m", **sending("orders", 0, ""))
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "too many")
        rig.catalog_changes.fails = RuntimeError("oh")  # type: ignore[assignment]
        assert client.ask(310, b"m", **sending("orders", 0, "")).code == Code.SYSTEM_BUSY

    def test_topics_that_producers_do_not_make(self, client: RigClient) -> None:
        assert client.ask(310, b"m", **sending("a.b", 0, "")).code == Code.MESSAGE_ILLEGAL
        assert client.ask(310, b"m", **sending("orders", 0, "", c="other")).code == Code.TOPIC_NOT_EXIST


class TestSentOn:
    """By the route of TBW102, to a broker that has no queues of the topic."""

    def test_to_the_shard_that_has(self, rig: Rig, client: RigClient) -> None:
        name = topic_in(rig, 2)
        answer = client.produce(name, b"m", 3, UNIQ_KEY="u")
        store, physical = decode_message_id(answer.fields["msgId"])
        assert store.port == BASE_PORT + 2
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("0", "0")
        assert answer.fields["transactionId"] == "u"
        assert b"m" in bytes(rig.client(2).well(33, offset=physical).body)
        assert stored(rig, name) == {0: 1}

    def test_a_delayed_one_says_when_it_is_due(self, rig: Rig, client: RigClient) -> None:
        name = topic_in(rig, 2)
        answer = client.produce(name, b"m", 3, DELAY="1")
        assert int(answer.fields[DUE]) > rig.clock.wall_ms()
        rig.pass_all(1_000)
        rig.pass_all(1_000)
        assert stored(rig, name) == {0: 1}

    @pytest.mark.parametrize("messages", [2, 5_000])
    def test_a_batch(self, rig: Rig, client: RigClient, messages: int) -> None:
        name = topic_in(rig, 2)
        sent = [BatchedMessage(0, b"m%d" % n, text_of(UNIQ_KEY=f"U{n}").encode()) for n in range(messages)]
        answer = client.well(320, encode_batch(sent), **sending(name, 1, "", m=True))
        assert len(answer.fields["msgId"].split(",")) == messages
        assert stored(rig, name) == {0: messages}

    def test_queues_that_are_here_are_taken_first(self, rig: Rig, client: RigClient) -> None:
        topic = rig.topic("orders", 8)
        here = rig.queues(topic, 0)
        for queue in range(2, 6):
            assert client.produce("orders", b"m", queue).fields["queueId"] == str(queue % 2)
        assert stored(rig, "orders") == dict.fromkeys(here, 2)
        assert client.ask(310, b"m", **sending("orders", 2, "", c="other")).code == Code.INVALID_PARAMETER
        assert client.produce("orders", b"m", -1).fields["queueId"] in ("0", "1")

    def test_that_shard_cannot_be_reached(self, rig: Rig, client: RigClient) -> None:
        assert client.ask(310, b"m", **sending(topic_in(rig, 1), 0, "")).code == Code.SYSTEM_BUSY
        name = topic_in(rig, 2)
        rig.asking.loses = {AppendBatch}
        assert client.ask(310, b"m", **sending(name, 0, "")).code == Code.SYSTEM_BUSY
        del rig.addresses[2]
        assert client.ask(310, b"m", **sending(name, 0, "")).code == Code.SYSTEM_BUSY
        assert stored(rig, name) == {}

    def test_half_messages_are_not(self, rig: Rig, client: RigClient) -> None:
        """They end at the broker to which they were sent."""
        name = topic_in(rig, 2)
        for topic in "halfmoon.transactions", "check.producers":
            rig.topic(topic, SHARDS)
        text = text_of(TRAN_MSG="true", PGROUP="producers", UNIQ_KEY="u")
        answer = client.ask(310, b"m", **sending(name, 0, text))
        assert (answer.code, "ask for its route" in (answer.remark or "")) == (Code.SYSTEM_BUSY, True)

    def test_who_sends_it_goes_with_it(self, rig: Rig, client: RigClient, monkeypatch: pytest.MonkeyPatch) -> None:
        """What records ask for is decided where they are stored."""

        class Rights:
            def __init__(self, *of: object) -> None:
                self.of = of[:2]

            def allows(self, *_: object) -> bool:
                return True

            demands = allows

        class Access:
            denies_by_default = True

            def rights(self, *of: object) -> Any:
                return Rights(*of)

        name = topic_in(rig, 2)
        senders: list[Any] = []
        append = rig.nodes[2].kernel.append

        def noted(*given: Any, sender: Any = None, **more: Any) -> Produced:
            senders.append(sender)
            return append(*given, sender=sender, **more)

        monkeypatch.setattr(rig.nodes[2].kernel, "append", noted)
        client.well(310, b"m", **sending(name, 0, ""))
        for server in rig.servers.values():
            server.node.access = Access()  # type: ignore[assignment]
        client.well(310, b"m", **sending(name, 0, ""))
        assert [sender and sender.of for sender in senders] == [None, ("User:ANONYMOUS", "127.0.0.1")]
        assert stored(rig, name) == {0: 2}


class TestNeedsATopic:
    """A message of which the shard's log says that a topic is being made for it."""

    @pytest.fixture
    def refusals(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[BrokerError]:
        rig.topic("orders", 8)
        kernel = rig.nodes[0].kernel
        append, refusals = kernel.append, [BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "it is being made")]

        def refuse(*given: Any, **more: Any) -> Produced:
            if refusals:
                raise refusals[0] if len(refusals) > 9 else refusals.pop()
            return append(*given, **more)

        monkeypatch.setattr(kernel, "append", refuse)
        return refusals

    def test_it_waits(self, rig: Rig, client: RigClient, refusals: list[BrokerError]) -> None:
        refusals *= 2
        client.send(310, b"m", **sending("orders", 1, ""))
        assert client.answers() == []
        rig.pass_all(50)
        rig.pass_all(50)
        assert [each.code for each in client.answers()] == [0]
        assert list(stored(rig, "orders").values()) == [1]

    def test_not_for_ever(self, rig: Rig, client: RigClient, refusals: list[BrokerError]) -> None:
        refusals *= 10
        client.send(310, b"m", **sending("orders", 1, ""))
        for _ in range(29):
            rig.pass_all(50)
        assert client.answers() == []
        rig.pass_all(50)
        (answer,) = client.answers()
        assert (answer.code, answer.remark) == (Code.SYSTEM_BUSY, "it is being made")

    def test_what_else_is_wrong_is_said(self, rig: Rig, client: RigClient, refusals: list[BrokerError]) -> None:
        refusals.insert(0, BrokerError(Fault.POLICY_VIOLATION, "no"))
        client.send(310, b"m", **sending("orders", 1, ""))
        rig.pass_all(50)
        (answer,) = client.answers()
        assert (answer.code, answer.remark) == (Code.NO_PERMISSION, "no")


class TestByRequest:
    def make(self, client: RigClient, queues: int, **more: Any) -> int:
        asked = {"topic": "orders", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        return client.ask(17, **(asked | more)).code

    def test_made_and_grown_once_whichever_broker_is_asked(self, rig: Rig, client: RigClient) -> None:
        brokers = [client, rig.client(2)]
        for queues in 6, 9:
            version = rig.shared.version
            assert [self.make(each, queues) for each in brokers] == [0, 0]
            assert len(rig.front.catalog.by_name["orders"].partitions) == queues
            assert rig.shared.version == version + 1

    def test_what_a_broker_says_it_has_may_be_asked_for(self, rig: Rig, client: RigClient) -> None:
        """So do tools that change something else of a topic."""
        self.make(client, 10)
        here = body(client.well(351, topic="orders"))["readQueueNums"]
        assert self.make(client, here) == 0
        assert self.make(client, here - 1) == Code.INVALID_PARAMETER
        assert len(rig.front.catalog.by_name["orders"].partitions) == 10

    def test_it_is_answered_when_that_is_so(self, rig: Rig, client: RigClient) -> None:
        rig.catalog_changes.waits = True
        asked = {"topic": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        client.feed(client.encode(17, **asked))
        rig.turns()
        assert client.answers() == []
        rig.catalog_changes.carry_out()
        rig.turns()
        assert [each.code for each in client.answers()] == [0]

    def test_refusals(self, rig: Rig, client: RigClient) -> None:
        assert self.make(client, 4, attributes="+no.such=1") == Code.SYSTEM_ERROR
        assert self.make(client, 1 << 20) == Code.SYSTEM_ERROR
        rig.catalog_changes.fails = BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, "no catalog")
        assert self.make(client, 4) == Code.SYSTEM_BUSY
        rig.catalog_changes.fails = None
        assert self.make(client, 4) == 0, "nothing is held any more"

    def test_deleted_once_whichever_broker_is_asked(self, rig: Rig, client: RigClient) -> None:
        self.make(client, 4)
        for each in (client, rig.client(2)):
            each.well(215, topic="orders")
            assert "orders" not in rig.front.catalog.by_name
            assert "orders" not in rig.nodes[2].catalog.by_name
        client.well(216, topic="orders")

    def test_two_delete_it_at_once(self, rig: Rig, client: RigClient) -> None:
        self.make(client, 4)
        rig.catalog_changes.waits = True
        other = rig.client(2)
        for each in (client, other):
            each.feed(each.encode(215, topic="orders"))
        rig.catalog_changes.carry_out()
        rig.turns()
        assert [each.code for each in (*client.answers(), *other.answers())] == [0, 0]

    def test_changes_that_are_not_committed_are_not_told(self, rig: Rig, client: RigClient) -> None:
        told: list[Any] = []
        rig.catalog_changes.when_known = told.append  # type: ignore[method-assign]
        client.send(216, topic="orders")
        assert client.answers() == []
        told[0](None)
        rig.turns()
        client.send(216, topic="orders")
        told[1](BrokerError(Fault.UNKNOWN_SERVER_ERROR, "lost"))
        rig.turns()
        assert [each.code for each in client.answers()] == [0, Code.SYSTEM_ERROR]

    def test_attributes_are_said_to_each_broker(self, rig: Rig) -> None:
        """The first has changed them for all, and what cannot be changed may be said when a topic is made."""
        said = {"topic": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for text, found in (
            (
                "+cleanup.policy=COMPACTION,+message.type=DELAY",
                {"cleanup.policy": "COMPACTION", "message.type": "DELAY"},
            ),
            ("-message.type", {"cleanup.policy": "COMPACTION"}),
        ):
            for shard in HERE:
                rig.client(shard).well(17, **said, attributes=text)
            for shard in HERE:
                assert body(rig.client(shard).well(351, topic="orders", lo=True))["attributes"] == found
        refused = rig.client(2).ask(17, **said, attributes="+cleanup.policy=DELETE")
        assert (refused.code, "unchangeable" in refused.remark) == (Code.SYSTEM_ERROR, True)


class TestUsers:
    """What is said of users and values is a change of the catalog too."""

    def test_users_and_rules(self, rig: Rig, client: RigClient) -> None:
        rig.catalog_changes.waits = True
        said = {"username": "ann", "password": "secret12", "userType": "Normal", "userStatus": "enable"}
        rules = {"subject": "User:ann", "policies": [{"policyType": "Custom", "entries": [
            {"resource": "Topic:orders", "actions": ["Pub"], "sourceIps": [], "decision": "Allow"},
        ]}]}  # fmt: skip
        users, acls = rig.nodes[0].services.get(Users), rig.nodes[0].services.get(AccessRules)

        def ask(code: int, content: object = None, **fields: Any) -> None:
            client.feed(client.encode(code, b"" if content is None else json.dumps(content).encode(), **fields))
            rig.turns()
            assert client.answers() == [], code
            before = (list(users.all()), len(acls._state.rules))
            rig.catalog_changes.carry_out()
            rig.turns()
            assert (list(users.all()), len(acls._state.rules)) != before, code
            (answer,) = client.answers()
            assert answer.code == 0, answer.remark
            rig.catalog_changes.waits = True

        ask(3001, said, username="ann")
        ask(3002, {"userStatus": "disable"}, username="ann")
        ask(3006, rules, subject="User:ann")
        ask(3008, subject="User:ann", resource="Topic:orders")
        ask(3006, rules, subject="User:ann")
        ask(3003, username="ann")
        assert not acls._state.rules

    def test_values_of_the_name_server(self, rig: Rig, client: RigClient) -> None:
        rig.catalog_changes.waits = True
        for code, fields in ((100, {"value": "v"}), (102, {})):
            client.feed(client.encode(code, namespace="n", key="k", **fields))
            rig.turns()
            assert client.answers() == []
            rig.catalog_changes.carry_out()
            rig.turns()
            assert [each.code for each in client.answers()] == [0]
            assert (client.ask(101, namespace="n", key="k").code == 0) is (code == 100)
            rig.catalog_changes.waits = True

    def test_a_user_that_is_not_there(self, client: RigClient) -> None:
        answer = client.ask(3002, b'{"password": "secret12"}', username="nobody")
        assert answer.code not in (0, Code.SYSTEM_BUSY)
