"""What Halfmoon has beyond Kafka is no way around access rules: each test begins as somebody who tries."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from halfmoon.services.waiting import interception
from tests.clients.polling import wait_for
from tests.security.acting import User
from tests.security.conftest import Secure, Secured

TOPIC, GROUP, TRANSACTIONAL_ID = 29, 30, 53
ADMIN = {"security": {"super_users": ["User:root"]}}
MANY = interception.IN_SLICES + 50
"""Records of a batch that is worked at in slices."""


@pytest.fixture
def found(secured: Secure) -> Secured:
    return secured(**ADMIN)


Make = Callable[..., User]


@pytest.fixture
def user(found: Secured) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(name: str, *rights: str) -> User:
            made = User(found, name, *rights)
            stack.callback(made.connection.close)
            return made

        yield make


@pytest.fixture
def root(user: Make) -> User:
    root = user("root")
    for topic in ("orders", "secret"):
        assert root.create(topic) == 0
    return root


# Retry and dead letters.


def test_another_groups_retry_topic_is_neither_read_nor_written(user: Make, root: User) -> None:
    assert root.described("retry.victims") == 0
    assert root.produce("retry.victims", b"mine") == 0
    mallory = user("mallory", "all topic *", "all topic r*", "read group own")
    for topic in ("retry.victims", "dlq.victims", "retry.nobody"):
        assert mallory.fetch(topic) == TOPIC
        assert mallory.produce(topic) == TOPIC
        assert mallory.described(topic) == TOPIC
        assert mallory.create(topic) == TOPIC
    assert mallory.described("retry.own") == 0


def test_a_group_needs_no_rule_of_its_topics(user: Make, root: User) -> None:
    alice = user("alice", "read group g", "read topic orders")
    assert alice.described("retry.g") == 0
    root.produce("orders", b"o")
    again = {"RETRY_OF": b"orders/0/0", "TIMER_DELAY_MS": b"0"}
    assert alice.produce("retry.g", b"again", headers=again) == 0
    assert b"again" in alice.until_read("retry.g", b"again")
    assert alice.produce("retry.g", b"dead", headers={"DELAY": b"-1"}) == 0
    alice.until_read("dlq.g", b"dead")
    assert alice.produce("dlq.g") == TOPIC


@pytest.mark.parametrize("count", [1, MANY])
def test_nobody_hands_back_what_they_may_not_read(found: Secured, user: Make, root: User, count: int) -> None:
    root.produce("secret", *[b"s"] * count)
    alice = user("alice", "read group g", "read topic orders")
    assert alice.described("retry.g") == 0
    records = [(b"v", {"RETRY_OF": b"secret/0/%d" % offset}) for offset in range(count)]
    assert alice.send("retry.g", records) == TOPIC
    assert alice.send("retry.g", [(b"v", {"RETRY_OF": b"absent/0/1"})]) == TOPIC
    assert found.app.node.state.nacked.nacked_in({root_number(found, "secret"): "secret"}) == {}
    alice.allow("read group g", "read topic secret")
    assert alice.send("retry.g", records) == 0


def root_number(found: Secured, topic: str) -> int:
    return int(found.app.node.kernel.catalog.topic(topic).number)


# Half messages.


def half(group: bytes, key: bytes) -> dict[str, bytes]:
    return {"TRAN_MSG": b"true", "PGROUP": group, "UNIQ_KEY": key}


def end(group: bytes, key: bytes, state: bytes = b"commit") -> dict[str, bytes]:
    return {"PGROUP": group, "UNIQ_KEY": key, "TRAN_STATE": state}


@pytest.mark.parametrize("count", [1, MANY])
def test_half_messages_are_sent_by_their_group(user: Make, root: User, count: int) -> None:
    mallory = user("mallory", "write topic orders", "write transactional_id own")

    def halves(group: bytes) -> list[tuple[bytes, dict[str, bytes]]]:
        mine = [(b"v", half(b"own", b"m%d" % index)) for index in range(count - 1)]
        return [*mine, (b"v", half(group, b"last"))]

    assert mallory.send("orders", halves(b"victims")) == TRANSACTIONAL_ID
    assert mallory.send("secret", halves(b"own")) == TOPIC
    assert mallory.send("orders", halves(b"own")) == 0


@pytest.mark.parametrize("count", [1, MANY])
def test_half_messages_are_ended_by_their_group(user: Make, root: User, count: int) -> None:
    keys = [b"k%d" % index for index in range(count)]
    assert root.send("orders", [(b"half", half(b"victims", key)) for key in keys]) == 0
    mallory = user("mallory", "all topic *", "write transactional_id own")
    ends = [(b"", end(b"victims", key)) for key in keys]
    assert mallory.send("halfmoon.transactions", ends) == TRANSACTIONAL_ID
    assert mallory.send("halfmoon.transactions", [(b"", end(b"own", b"k")), *ends]) == TRANSACTIONAL_ID
    assert mallory.fetch("orders") == b""
    user("nobody", "all topic *").produce("halfmoon.transactions", headers=end(b"victims", b"k0"))
    assert user("none", "all topic *").send("halfmoon.transactions", ends) == TOPIC
    alice = user("alice", "write transactional_id victims", "read topic orders")
    assert alice.described("halfmoon.transactions") == 0
    assert alice.send("halfmoon.transactions", ends) == 0
    alice.until_read("orders", b"half")


def test_the_topic_of_ends_is_there_for_who_may_write_transactions(user: Make, root: User) -> None:
    assert user("mallory", "all topic *").described("halfmoon.transactions") == TOPIC
    alice = user("alice", "write transactional_id p")
    broken = {"halfmoon_headers_enable": "false"}
    assert alice.create("halfmoon.transactions", **broken) == TOPIC  # ends would be stored, and end nothing
    assert alice.described("halfmoon.transactions") == 0


def test_what_producers_are_asked_is_told_to_them(user: Make, root: User) -> None:
    assert root.send("orders", [(b"half", half(b"p", b"k"))]) == 0
    assert user("mallory", "all topic *", "all group *").fetch("check.p") == TOPIC
    alice = user("alice", "write transactional_id p")
    assert alice.fetch("check.p") == b""
    assert alice.produce("check.p") == TOPIC


# Delays and cancels.


def test_delays_and_cancels_need_the_destination(user: Make, root: User) -> None:
    mallory = user("mallory", "write topic orders")
    late = {"TIMER_DELAY_MS": b"3600000", "UNIQ_KEY": b"k"}
    assert root.produce("secret", b"late", headers=late) == 0
    assert mallory.produce("secret", headers=late) == TOPIC
    assert mallory.produce("secret", headers={"TIMER_DEL_UNIQKEY": b"k"}) == TOPIC
    assert mallory.produce("orders", headers=late) == 0
    soon = {"TIMER_DELAY_MS": b"500", "UNIQ_KEY": b"soon"}
    assert root.produce("secret", b"soon", headers=soon) == 0
    assert mallory.produce("orders", headers={"TIMER_DEL_UNIQKEY": b"soon"}) == 0  # of that topic only
    root.until_read("secret", b"soon")


# Internal topics.


def test_internal_topics_are_nobodys(user: Make, root: User) -> None:
    mallory = user("mallory", "all topic *", "all topic half*", "all topic RMQ*", "all topic S*")
    names = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "halfmoon.timers", "halfmoon.audit")
    for _ in range(2):  # also once there is something in them
        for name in names:
            assert mallory.fetch(name) == TOPIC
            assert mallory.described(name) == TOPIC
            assert mallory.create(name) == TOPIC
            assert mallory.delete(name) == [TOPIC]
        assert root.produce("orders", headers={"DELAY": b"10"}) == 0
        assert root.produce("orders", headers={"TIMER_DELAY_MS": b"3600000"}) == 0
        assert root.send("orders", [(b"half", half(b"p", b"k"))]) == 0


# Views.


def view(source: str) -> dict[str, Any]:
    return {"halfmoon_view_source": source, "halfmoon_view_tag": "*"}


def test_a_view_of_what_one_may_not_read(user: Make, root: User) -> None:
    root.produce("secret", b"hidden")
    mallory = user("mallory", "all topic mine*", "describe topic secret", "write topic secret")
    assert mallory.create("mine", **view("secret")) == TOPIC
    assert mallory.create("mine", **view("absent")) == TOPIC
    assert mallory.create("mine", **view("retry.g")) == TOPIC
    assert mallory.fetch("mine") != b"hidden"
    mallory.allow("all topic mine*", "read topic secret")
    assert mallory.create("mine", **view("secret")) == 0
    mallory.until_read("mine", b"hidden")


def test_a_topic_that_becomes_a_view(user: Make, root: User) -> None:
    root.produce("secret", b"hidden")
    mallory = user("mallory", "all topic mine")
    assert mallory.create("mine") == 0
    for key in (33, 44):
        configs = [{"name": each.replace("_", "."), "value": value} for each, value in view("secret").items()]
        if key == 44:
            configs = [each | {"config_operation": 0} for each in configs]
        resources = [{"resource_type": 2, "resource_name": "mine", "configs": configs}]
        (answer,) = mallory.ask(key, 1, resources=resources, validate_only=False).responses
        assert answer.error_code != 0
    assert mallory.fetch("mine") == b""


def test_who_deletes_a_source_must_be_allowed_to_delete_its_views(user: Make, root: User) -> None:
    assert root.create("seen", **view("orders")) == 0
    mallory = user("mallory", "delete topic orders")
    assert mallory.delete("orders", "seen") == [TOPIC, TOPIC]
    forced = {"name": "halfmoon.delete.force", "value": "true", "config_operation": 0}
    resources = [{"resource_type": 2, "resource_name": "orders", "configs": [forced]}]
    assert root.ask(44, 1, resources=resources, validate_only=False).responses[0].error_code == 0
    answer = mallory.ask(20, 5, topic_names=["orders"], timeout_ms=30_000).responses[0]
    assert answer.error_code == TOPIC
    assert "seen" not in (answer.error_message or "")
    mallory.allow("delete topic orders", "delete topic seen")
    assert mallory.delete("orders") == [0]


# What became of a message.


def lookup(user: User, question: dict[str, Any]) -> Any:
    return user.ask_own(18502, question)


def test_a_message_is_shown_to_who_may_read_it(user: Make, root: User) -> None:
    assert root.send("secret", [(b"hidden", {"KEYS": b"k"})]) == 0
    show = {"type": "show", "topic": "secret", "partition": 0, "offset": 0}
    find = {"type": "find", "topic": "secret", "key": "aw=="}
    mallory = user("mallory", "all topic orders")
    assert lookup(mallory, show)["fault"] == lookup(mallory, find)["fault"] == "TOPIC_AUTHORIZATION_FAILED"
    mallory.allow("describe topic secret")
    assert lookup(mallory, find)["fault"] == "TOPIC_AUTHORIZATION_FAILED"
    message = lookup(mallory, show)["shown"]["message"]
    assert (message["value"], message["headers"], message["hidden"]) == (None, [], True)
    mallory.allow("read topic secret")
    assert lookup(mallory, show)["shown"]["message"]["value"] == "aGlkZGVu"
    assert lookup(mallory, find)["results"]["messages"][0]["value"] == "aGlkZGVu"


def test_what_became_of_it_elsewhere_is_hidden(user: Make, root: User) -> None:
    root.produce("orders", b"o")
    assert root.described("retry.g") == 0
    assert root.produce("retry.g", b"o", headers={"RETRY_OF": b"orders/0/0", "DELAY": b"-1"}) == 0
    show = {"type": "show", "topic": "orders", "partition": 0, "offset": 0}

    def history(user: User) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = lookup(user, show)["shown"]["history"]
        return found

    told = [each["what"] for each in history(root)]
    assert told[0] == "stored"
    assert len(told) > 1
    mallory = user("mallory", "read topic orders")
    first, *others = history(mallory)
    assert first["topic"] == "orders"
    assert others == [{"what": "hidden"}] * (len(told) - 1)
    alice = user("alice", "read topic orders", "read group g")
    assert [each["what"] for each in history(alice)] == told


# What waits.


def test_scheduled_messages_are_their_topics(user: Make, root: User) -> None:
    for topic in ("orders", "secret"):
        assert root.send(topic, [(b"later", {"TIMER_DELAY_SEC": b"3600", "UNIQ_KEY": topic.encode()})]) == 0
    mallory = user("mallory", "describe topic orders")

    def ask(who: User, **question: Any) -> Any:
        return who.ask_own(18506, question)

    def listed(who: User) -> list[Any]:
        messages: list[Any] = ask(who, type="list")["listed"]["messages"]
        return messages

    assert {each["topic"] for each in listed(root)} == {"orders", "secret"}
    (message,) = listed(mallory)
    assert (message["topic"], message["hidden"], "key" in message, "uniq_key" in message) == (
        "orders", True, False, False,
    )  # fmt: skip
    assert ask(mallory, type="list", selection={"topic": "secret"})["fault"] == "TOPIC_AUTHORIZATION_FAILED"
    assert ask(mallory, type="list", selection={"topic": "secre?"})["listed"]["messages"] == []
    changed = ask(mallory, type="cancel", selection={})["changed"]
    assert (changed["count"], changed["refused"]) == (0, ["orders"])
    (theirs,) = [each["id"] for each in listed(root) if each["topic"] == "secret"]
    assert ask(mallory, type="cancel", ids=[theirs])["changed"] == {"count": 0, "missing": [theirs]}
    mallory.allow("read topic orders", "alter topic orders")
    assert listed(mallory)[0]["uniq_key"] == "b3JkZXJz"
    assert ask(mallory, type="cancel", selection={})["changed"]["refused"] == ["orders"]
    assert ask(mallory, type="reschedule", ids=[message["id"]], in_ms=7_200_000)["changed"]["count"] == 1
    mallory.allow("delete topic orders")
    assert ask(mallory, type="cancel", selection={})["changed"]["count"] == 1
    assert [each["topic"] for each in listed(root)] == ["secret"]


def test_redeliveries_are_their_groups(user: Make, root: User) -> None:
    root.produce("orders", b"o")
    assert root.described("retry.g") == 0
    assert root.produce("retry.g", b"o", headers={"RETRY_OF": b"orders/0/0", "TIMER_DELAY_SEC": b"3600"}) == 0
    mallory = user("mallory", "all topic *")
    assert mallory.ask_own(18506, {"type": "list"})["listed"]["messages"] == []
    alice = user("alice", "describe group g")
    (message,) = alice.ask_own(18506, {"type": "list", "selection": {"group": "g"}})["listed"]["messages"]
    assert (message["topic"], message["hidden"]) == ("retry.g", True)
    question = {"type": "cancel", "selection": {"group": "g"}}
    assert alice.ask_own(18506, question)["changed"]["refused"] == ["retry.g"]
    alice.allow("delete group g")
    assert alice.ask_own(18506, question)["changed"] == {"count": 1, "topics": ["retry.g"]}


# Schedules.


def schedules_of(user: User) -> dict[str, Any]:
    return {each["name"]: each for each in user.ask_own(18508, {"type": "list"})["schedules"]}


def test_a_schedule_sends_what_its_creator_may_send_then(user: Make, root: User) -> None:
    alice = user("alice", "write topic orders")
    every_second = {"SCHEDULE_NAME": b"tick", "SCHEDULE_CRON": b"* * * * * *"}
    assert alice.produce("secret", b"v", headers=every_second) == TOPIC
    assert alice.produce("orders", b"of alice", headers=every_second) == 0
    root.until_read("orders", b"of alice")
    alice.allow()
    wait_for(lambda: schedules_of(root)["tick"]["refused"] > 0)
    assert schedules_of(root)["tick"]["problem"] == "User:alice is not allowed to write to the topic"
    sent = schedules_of(root)["tick"]["fired"]
    wait_for(lambda: schedules_of(root)["tick"]["refused"] > 1)
    assert schedules_of(root)["tick"]["fired"] == sent
    alice.allow("write topic orders")
    wait_for(lambda: schedules_of(root)["tick"]["fired"] > sent)


def test_somebody_elses_schedule_is_neither_seen_nor_changed(user: Make, root: User) -> None:
    never = {"SCHEDULE_NAME": b"n", "SCHEDULE_CRON": b"0 0 1 1 *"}
    assert root.produce("orders", b"hidden", headers=never) == 0
    mallory = user("mallory")
    change = {"type": "change", "topic": "orders", "name": "n", "to": "cancelled"}
    create = {"type": "create", "topic": "orders", "name": "n", "cron": "* * * * *", "replace": True}
    assert schedules_of(mallory) == {}
    for question in (change, create, {**create, "topic": "missing"}, {**change, "topic": "missing"}):
        assert mallory.ask_own(18508, question)["fault"] == "TOPIC_AUTHORIZATION_FAILED"
    mallory.allow("write topic orders")
    for question in (change, create):
        assert mallory.ask_own(18508, question)["fault"] == "TOPIC_AUTHORIZATION_FAILED"
    for headers in ({**never, "SCHEDULE_CRON": b"* * * * *"}, {"SCHEDULE_NAME": b"n", "SCHEDULE_STATE": b"paused"}):
        assert mallory.produce("orders", b"v", headers=headers) == TOPIC
    shown = schedules_of(mallory)["n"]
    assert (shown["creator"], shown.get("value"), shown["shows"]) == ("User:root", None, False)
    mallory.allow("write topic orders", "read topic orders")
    assert base64.b64decode(schedules_of(mallory)["n"]["value"]) == b"hidden"
    mallory.allow("write topic orders", "alter topic orders")
    assert mallory.ask_own(18508, change)["schedules"][0]["name"] == "n"
    assert schedules_of(root) == {}


def test_users_are_the_clusters(user: Make, root: User) -> None:
    mallory = user("mallory", "all topic *", "all group *")
    changes: list[dict[str, Any]] = [
        {"type": "create", "name": "eve", "passwords": [], "admin": True}, {"type": "delete", "name": "root"},
        {"type": "flags", "name": "mallory", "admin": True},
    ]  # fmt: skip
    for question in changes:
        assert mallory.ask_own(18503, question)["fault"] == "CLUSTER_AUTHORIZATION_FAILED"
    assert mallory.ask_own(18503, {"type": "list"})["fault"] == "CLUSTER_AUTHORIZATION_FAILED"
    mallory.allow("describe cluster")
    assert "root" in [each["name"] for each in mallory.ask_own(18503, {"type": "list"})["users"]]
    assert mallory.ask_own(18503, changes[2])["fault"] == "CLUSTER_AUTHORIZATION_FAILED"


# Members of groups.


class Member:
    """Reads by pattern."""

    def __init__(self, found: Secured, user: User, regex: str = ".*") -> None:
        self.found = found
        self.user = user
        self.epoch = 0
        self.topics: set[str] = set()
        self.owned: list[Any] = []
        self._beat(rebalance_timeout_ms=10_000, subscribed_topic_regex=regex, topic_partitions=[])

    def _take(self, answer: Any) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            catalog = self.found.app.node.kernel.catalog
            parts = answer.assignment.topic_partitions
            self.topics = {catalog.topic_by_id(each.topic_id.bytes).name for each in parts}
            self.owned = [{"topic_id": each.topic_id, "partitions": each.partitions} for each in parts]

    def _beat(self, **said: Any) -> None:
        nothing = {"rebalance_timeout_ms": -1, "subscribed_topic_regex": None, "topic_partitions": None}
        answer = self.user.ask(
            68, 1, group_id="g", member_id=self.user.name, member_epoch=self.epoch, instance_id=None, rack_id=None,
            server_assignor=None, subscribed_topic_names=None, **(nothing | said),
        )  # fmt: skip
        assert answer.error_code == 0, answer
        self._take(answer)

    def reads(self) -> set[str]:
        """After some heartbeats, in each of which it gives up what it was told to."""
        for _ in range(4):
            self._beat(topic_partitions=self.owned)
        return self.topics


def test_a_pattern_finds_what_the_member_may_describe(found: Secured, user: Make, root: User) -> None:
    alice = user("alice", "read group g", "describe topic orders", "write topic ord*")
    member = Member(found, alice)
    assert member.reads() == {"orders"}
    assert root.create("ordinary") == 0
    assert root.create("secrets") == 0
    assert member.reads() == {"orders", "ordinary"}
    alice.allow("read group g", "describe topic secret")
    assert member.reads() == {"secret"}
    alice.allow("read group g", "all topic *", "deny describe topic ordinary")
    assert member.reads() >= {"orders", "secret", "secrets"}
    assert "ordinary" not in member.topics


def test_patterns_of_others_are_theirs(found: Secured, user: Make, root: User) -> None:
    broad = Member(found, user("broad", "read group g", "describe topic *"))
    narrow = Member(found, user("narrow", "read group g", "describe topic orders"), regex="[a-z]+.*")
    for _ in range(3):
        broad.reads()
        narrow.reads()
    assert narrow.topics <= {"orders"}
    assert "secret" in broad.topics


def test_after_a_restart_a_pattern_finds_no_more(found: Secured, user: Make, root: User) -> None:
    member = Member(found, user("alice", "read group g", "describe topic orders"))
    assert member.reads() == {"orders"}
    groups = found.app.node.groups.coordinator.rebalancing.groups
    found.in_loop(lambda: groups["g"].describes.clear())  # what a restart forgets
    assert root.create("secrets") == 0
    assert member.reads() == {"orders"}


# Dead letters that go elsewhere.


def test_a_message_says_where_its_dead_letter_goes_only_for_who_may_write_there(user: Make, root: User) -> None:
    assert root.described("retry.g") == 0
    alice = user("alice", "read group g", "read topic orders")
    said = {"DELAY": b"5", "MAX_RECONSUME_TIMES": b"0", "RETRY_POLICY": b'{"dead_letter_topic": "dlq.victims"}'}
    assert alice.send("retry.g", [(b"v", said)]) == TOPIC
    assert alice.send("retry.g", [(b"v", said | {"DELAY": b"-1"})]) == 0  # in the group's own topic
    assert root.fetch("dlq.victims") != 0
    alice.allow("read group g", "read topic orders", "write topic dlq.victims")
    assert alice.send("retry.g", [(b"v", said)]) == 0
    assert isinstance(root.fetch("dlq.victims"), bytes)


def test_marks_of_dead_letters_follow_the_group(user: Make, root: User) -> None:
    mallory = user("mallory", "all topic *", "all topic d*", "read group own")
    assert mallory.produce("dlq-marks.g") == TOPIC
    assert mallory.create("dlq-marks.g") == TOPIC
    alice = user("alice", "read group g")
    assert alice.create("dlq-marks.g") == 0
    assert alice.produce("dlq-marks.g") == 0
    assert isinstance(alice.fetch("dlq-marks.g"), bytes)
    assert mallory.fetch("dlq-marks.g") == TOPIC


@pytest.mark.parametrize("name", ["errors.deadletterqueue.topic.name", "halfmoon.retry.dead.letter.topic"])
@pytest.mark.parametrize("key", [33, 44])
def test_where_dead_letters_go_is_for_who_may_read_and_write_them(user: Make, root: User, key: int, name: str) -> None:
    mallory = user("mallory", "alter_configs group g", "all topic dlq.mallory")

    def directed(to: str) -> int:
        config = {"name": name, "value": to}
        configs = [config | ({"config_operation": 0} if key == 44 else {})]
        resources = [{"resource_type": 32, "resource_name": "g", "configs": configs}]
        (answer,) = mallory.ask(key, 1, resources=resources, validate_only=False).responses
        return int(answer.error_code)

    assert directed("dlq.g") == 0  # where they go anyway
    assert directed("dlq.mallory") == GROUP  # she may not read what the group has read
    mallory.allow("alter_configs group g", "read group g", "all topic dlq.mallory")
    assert directed("dlq.mallory") == 0
    assert directed("dlq.victims") == TOPIC


# Half messages that wait.


def test_a_half_message_is_found_by_who_may_end_it(user: Make, root: User) -> None:
    for number in range(5):
        said = half(b"p", b"u%d" % number) | {"KEYS": b"k"}
        assert root.send("orders", [(b"half of p", said)]) == 0
    assert root.send("orders", [(b"half of q", half(b"q", b"u") | {"KEYS": b"k"})]) == 0
    assert root.send("orders", [(b"plain", {"KEYS": b"k"})]) == 0
    find = {"type": "find", "topic": "orders", "key": "aw==", "most": 3, "ended": True}

    def found(user: User) -> tuple[list[bytes], bool]:
        results = lookup(user, find)["results"]
        return [base64.b64decode(each["value"]) for each in results["messages"]], results["more"]

    assert found(root) == ([b"plain", b"half of q", b"half of p"], True)
    reader = user("reader", "read topic orders", "all topic *", "all group *")
    assert found(reader) == ([b"plain"], False)  # the others are not there for him, and do not take his places
    show = {"type": "show", "topic": "RMQ_SYS_TRANS_HALF_TOPIC", "partition": 0, "offset": 0}
    assert lookup(reader, show)["fault"] == "TOPIC_AUTHORIZATION_FAILED"
    reader.allow("read topic orders", "write transactional_id q")
    assert found(reader) == ([b"plain", b"half of q"], False)
    reader.allow("read topic orders", "write transactional_id p*")
    assert found(reader) == ([b"plain", b"half of p", b"half of p"], True)
    reader.allow("write transactional_id *")
    assert lookup(reader, find)["fault"] == "TOPIC_AUTHORIZATION_FAILED"


def test_a_half_message_that_was_rolled_back_stays_its_producers(user: Make, root: User) -> None:
    assert root.send("orders", [(b"never", half(b"p", b"u") | {"KEYS": b"k"})]) == 0
    assert root.send("halfmoon.transactions", [(b"", end(b"p", b"u", b"rollback"))]) == 0
    find = {"type": "find", "topic": "orders", "key": "aw==", "ended": True}
    wait_for(lambda: [each["ended"] for each in lookup(root, find)["results"]["messages"]] == [True])
    reader = user("reader", "read topic orders")
    assert lookup(reader, find)["results"]["messages"] == []
    reader.allow("read topic orders", "write transactional_id p")
    assert len(lookup(reader, find)["results"]["messages"]) == 1
