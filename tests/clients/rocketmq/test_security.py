"""RocketMQ's own client with AclClientRPCHook and TLS, and its admin tools: users, rules, and what they may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from halfmoon.testing import Broker
from tests.clients.rocketmq.java import CLIENT, REMOTING, Got, Java, interface, until
from tests.security.acting import rule
from tests.security.authority import Authority
from tests.security.conftest import Secured

HEADERS = ["JSON", "ROCKETMQ"]
SECRETS = {"root": "secret of root", "alice": "secret of alice"}
TLS = "org.apache.rocketmq.remoting.netty.TlsSystemConfig"


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    listener = {
        "bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0", "auth": True, "tls": authority.pair("rocketmq"),
    }  # fmt: skip
    plugins = {"transaction": {"timeout": "1s", "check_interval": "1s"}}
    made = Secured(authority, tls=False, sasl=["SCRAM-SHA-256"], listeners={"rocketmq": listener})
    config = {"listeners": {"kafka": {"bind": "127.0.0.1:0", "sasl": ["SCRAM-SHA-256"]}, "rocketmq": listener},
              "topics": {"partitions": 1}, "plugins": plugins}  # fmt: skip
    made.broker = Broker(config=config)
    made.broker.start()
    made.in_loop(lambda: made.app.node.users.create("root", admin=True, secret=SECRETS["root"]))
    trust(java, authority.path)
    yield made
    java.settle()
    made.broker.stop()
    trust(java, None)


def trust(java: Java, path: str | None) -> None:
    """Whose certificates the JVM's clients trust from now on; None: anybody's, as by default."""
    for name, value in (
        ("tlsEnable", path is not None),
        ("tlsTestModeEnable", path is None),
        ("tlsClientAuthServer", path is not None),
        ("tlsClientTrustCertPath", path),
    ):
        loader = java.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        java.jvm.java.lang.Class.forName(TLS, True, loader).getField(name).set(None, value)


class SafeClients:
    """Java clients of one test."""

    def __init__(self, java: Java, broker: Broker) -> None:
        self.java = java
        self.broker = broker
        self._count = 0
        self._started: list[Any] = []

    def hook(self, name: str = "alice", secret: str | None = None) -> Any:
        credentials = self.java.named("org.apache.rocketmq.acl.common.SessionCredentials")
        made = credentials(name, SECRETS[name] if secret is None else secret)
        return self.java.named("org.apache.rocketmq.acl.common.AclClientRPCHook")(made)

    def prepared(self, client: Any) -> Any:
        self._count += 1
        client.setNamesrvAddr(self.broker.namesrv)
        client.setInstanceName(f"safe-{id(self)}-{self._count}")
        client.setUseTLS(True)
        client.setHeartbeatBrokerInterval(1_000)
        client.setPollNameServerInterval(500)
        client.setClientCallbackExecutorThreads(2)
        self._started.append(client)
        return client

    def started(self, client: Any) -> Any:
        self.prepared(client)
        client.start()
        return client

    def producer(self, group: str, *hook: Any) -> Any:
        return self.started(self.java.named(f"{CLIENT}.producer.DefaultMQProducer")(group, *hook))

    def admin(self, hook: Any) -> Any:
        return self.started(self.java.named("org.apache.rocketmq.tools.admin.DefaultMQAdminExt")(hook, 10_000))

    def message(self, topic: str, body: str | bytes) -> Any:
        data = body.encode() if isinstance(body, str) else body
        return self.java.named("org.apache.rocketmq.common.message.Message")(topic, data)

    def consumer(self, group: str, topic: str, got: Got, hook: Any) -> Any:
        statuses = self.java.named(f"{CLIENT}.consumer.listener.ConsumeConcurrentlyStatus")

        def consume(messages: Any, context: Any) -> Any:
            for message in messages:
                got.add(message)
            return statuses.CONSUME_SUCCESS

        consumer = self.prepared(self.java.named(f"{CLIENT}.consumer.DefaultMQPushConsumer")(group, hook))
        consumer.setConsumeFromWhere(
            self.java.named("org.apache.rocketmq.common.consumer.ConsumeFromWhere").CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe(topic, "*")
        consumer.registerMessageListener(
            interface(f"{CLIENT}.consumer.listener.MessageListenerConcurrently", consumeMessage=consume)
        )
        consumer.start()
        return consumer

    def close(self) -> None:
        for client in reversed(self._started):
            self.java.let_go(client)


@pytest.fixture
def clients(request: pytest.FixtureRequest, java: Java, safe: Secured) -> Iterator[SafeClients]:
    java.serialize(request.param)
    made = SafeClients(java, safe.broker)
    yield made
    made.close()
    java.settle()
    for name in [each.name for each in safe.app.node.users.all() if each.name != "root"]:
        safe.in_loop(lambda name=name: safe.app.node.users.delete(name))
    rules = list(safe.app.node.state.acls.rules)
    safe.in_loop(lambda: safe.app.node.acls.change([], rules))
    java.serialize("JSON")


def user_info(clients: SafeClients, name: str, **said: str) -> Any:
    made = clients.java.named(f"{REMOTING}.body.UserInfo")()
    made.setUsername(name)
    for field, value in said.items():
        getattr(made, f"set{field[0].upper()}{field[1:]}")(value)
    return made


def acl_info(clients: SafeClients, subject: str, resources: list[str], actions: list[str], ips: list[str]) -> Any:
    kind = clients.java.named(f"{REMOTING}.body.AclInfo")
    java = clients.java
    return kind.of(subject, java.list(resources), java.list(actions), java.list(ips), "Allow")


def admit(clients: SafeClients, group: str, topic: str) -> None:
    """root makes alice, and lets her send to and read the topic, by RocketMQ's own requests."""
    root, address = clients.admin(clients.hook("root")), clients.broker.rocketmq
    root.createUser(address, user_info(clients, "alice", password=SECRETS["alice"], userType="Normal"))
    said = acl_info(
        clients, "User:alice", [f"Topic:{topic}", f"Group:{group}"], ["Pub", "Sub", "Create"], ["127.0.0.1"]
    )
    root.createAcl(address, said)


def said_by(failed: pytest.ExceptionInfo[Py4JJavaError]) -> str:
    """What the client says, and why."""
    error, said = failed.value.java_exception, ""
    while error is not None:
        said, error = f"{said} {error}", error.getCause()
    return said


def test_sending_and_consuming(clients: SafeClients, safe: Secured) -> None:
    topic = f"orders{id(clients)}"
    admit(clients, "g", topic)
    producer = clients.producer("p", clients.hook())
    large = bytes(range(256)) * 8_192
    sent = [producer.send(clients.message(topic, body)) for body in ("one", "two", large)]
    assert all(str(each.getSendStatus()) == "SEND_OK" for each in sent)
    got = Got()
    consumer = clients.consumer("g", topic, got, clients.hook())
    got.wait(3)
    assert {bytes(message.getBody()) for message in got.messages} == {b"one", b"two", large}
    with pytest.raises(Py4JJavaError) as failed:
        producer.send(clients.message("others", "x"))
    assert "CODE: 16 " in said_by(failed)
    consumer.unsubscribe(topic)


def test_transactions(clients: SafeClients, safe: Secured) -> None:
    """Half messages, an end that the producer says, and one that it is asked for."""
    topic = f"orders{id(clients)}"
    admit(clients, "g", topic)
    safe.in_loop(lambda: safe.app.node.acls.change([rule("alice", "write transactional_id q")]))
    states = clients.java.named(f"{CLIENT}.producer.LocalTransactionState")
    producer = clients.java.named(f"{CLIENT}.producer.TransactionMQProducer")("q", clients.hook())
    producer.setTransactionListener(
        interface(
            f"{CLIENT}.producer.TransactionListener",
            executeLocalTransaction=lambda message, arg: states.valueOf(arg),
            checkLocalTransaction=lambda message: states.COMMIT_MESSAGE,
        )
    )
    clients.started(producer)
    for state in ("COMMIT_MESSAGE", "UNKNOW", "ROLLBACK_MESSAGE"):
        producer.sendMessageInTransaction(clients.message(topic, state), state)
    got = Got()
    clients.consumer("g", topic, got, clients.hook())
    got.exactly(2, timeout_s=30)
    assert sorted(got.bodies()) == ["COMMIT_MESSAGE", "UNKNOW"]


@pytest.mark.parametrize("who", ["unknown", "wrong secret", "nobody"])
def test_who_is_not_let_in(clients: SafeClients, who: str) -> None:
    hook = {"unknown": ("mallory", "x"), "wrong secret": ("root", "x")}.get(who)
    producer = clients.producer("p", *([] if hook is None else [clients.hook(*hook)]))
    with pytest.raises(Py4JJavaError) as failed:
        producer.send(clients.message("orders", "x"))
    assert "No route info" in said_by(failed)


def test_a_certificate_that_is_not_trusted(clients: SafeClients, safe: Secured, java: Java, tmp_path: Path) -> None:
    trust(java, Authority(tmp_path, "other").path)
    try:
        producer = clients.producer("p", clients.hook("root"))
        with pytest.raises(Py4JJavaError):
            producer.send(clients.message("orders", "x"))
    finally:
        trust(java, safe.authority.path)


def test_mqadmins_requests(clients: SafeClients, safe: Secured) -> None:
    root, address = clients.admin(clients.hook("root")), clients.broker.rocketmq
    users = safe.app.node.users
    root.createUser(address, user_info(clients, "bob", password="b", userType="Super"))
    found = root.getUser(address, "bob")
    told = found.getUsername(), found.getPassword(), found.getUserType(), found.getUserStatus()
    assert told == ("bob", None, "Super", "enable")
    root.updateUser(address, user_info(clients, "bob", password="c", userType="Normal", userStatus="disable"))
    root.updateUser(address, user_info(clients, "bob", userStatus="enable"))
    assert (users.secret("bob"), users.find("bob").admin) == ("c", False)
    assert [each.getUsername() for each in root.listUser(address, "")] == ["bob", "root"]
    root.createAcl(address, acl_info(clients, "User:bob", ["Topic:ord*", "Group:*"], ["Pub", "Sub"], ["10.0.0.1"]))
    root.updateAcl(address, acl_info(clients, "User:bob", ["Topic:ord*"], ["Sub"], []))
    (policy,) = root.getAcl(address, "User:bob").getPolicies()
    entries = [(each.getResource(), list(each.getActions()), list(each.getSourceIps())) for each in policy.getEntries()]
    assert sorted(entries) == [("Group:*", ["Pub", "Sub"], ["10.0.0.1"]), ("Topic:ord*", ["Sub"], [])]
    assert [each.getSubject() for each in root.listAcl(address, "", "Topic")] == ["User:bob"]
    with pytest.raises(Py4JJavaError) as failed:
        root.createAcl(address, acl_info(clients, "User:bob", ["Namespace:n"], ["Pub"], []))
    assert "none of Topic:NAME" in str(failed.value.java_exception)
    root.deleteAcl(address, "User:bob", "Topic:ord*")
    root.deleteUser(address, "bob")
    assert root.getUser(address, "bob") is None
    assert not safe.app.node.state.acls.rules


def test_the_commands(clients: SafeClients, safe: Secured) -> None:
    """mqadmin itself, as far as py4j can start it."""
    java = clients.java
    options = java.named("org.apache.rocketmq.srvutil.ServerUtil")
    for name, *arguments in (
        ("CreateUser", "-u", "carol", "-p", "c", "-t", "Normal"),
        (
            "CreateAcl",
            "-s",
            "User:carol",
            "-r",
            "Topic:orders,Group:g",
            "-a",
            "Pub,Sub",
            "-i",
            "127.0.0.1",
            "-d",
            "Allow",
        ),
        ("ListUser",),
        ("GetAcl", "-s", "User:carol"),
    ):
        command = java.named(f"org.apache.rocketmq.tools.command.auth.{name}SubCommand")()
        gateway = java.gateway
        said = gateway.new_array(java.jvm.java.lang.String, len(arguments) + 2)
        for at, word in enumerate(("-b", clients.broker.rocketmq, *arguments)):
            said[at] = word
        known = command.buildCommandlineOptions(
            options.buildCommandlineOptions(java.named("org.apache.commons.cli.Options")())
        )
        line = options.parseCmdLine("mqadmin", said, known, java.named("org.apache.commons.cli.DefaultParser")())
        java.jvm.java.lang.System.setProperty("rocketmq.namesrv.addr", clients.broker.namesrv)
        try:
            command.execute(line, known, clients.hook("root"))
        finally:
            java.jvm.java.lang.System.clearProperty("rocketmq.namesrv.addr")
    until(lambda: len(safe.app.node.state.acls.rules) == 4, 10, lambda: str(safe.app.node.state.acls.rules))
    assert safe.app.node.users.secret("carol") == "c"
