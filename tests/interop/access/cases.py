"""What is asked of each API, and the rights that it needs: the rows of NEEDS as questions.

A case is asked by a super user, by a user with nothing, by one with all rights that are needed, by one who lacks one of
them, for each, and by one with what stands `instead`. Where something is described, Describe is replaced by Write (or
Read), and DescribeConfigs by AlterConfigs, which imply it.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.interop.access.client import ClosedError, Connection
from tests.interop.access.world import World, batch, build

Fields = dict[str, Any]
ALL_TOPICS = ("orders", "secret", "absent")
ALL_IDS = ("orders", "secret", "unknown")
CONFIG_TYPES = {"topic": 2, "broker": 4, "logger": 8, "metrics": 16, "group": 32}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    key: int
    version: int
    title: str
    fields: Callable[[World], Fields] = lambda w: {}
    needs: tuple[str, ...] = ()
    instead: tuple[tuple[str, ...], ...] = ()
    before: Callable[[World], Any] | None = None
    """Puts things back as they were; it is done before each question."""
    ask: Callable[[World, Connection, Case], Any] | None = None
    """In place of one request."""

    def situations(self) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """(name, rights); None are those of a super user."""
        yield "super user", None
        yield "nothing", ()
        if not self.needs and not self.instead:
            return
        if self.needs:
            yield "all", self.needs
        if len(self.needs) > 1:
            for right in self.needs:
                yield f"without {right}", tuple(each for each in self.needs if each != right)
        implied = tuple(_implying(right) for right in self.needs)
        if implied != self.needs:
            yield "implied: " + ", ".join(implied), implied
        for rights in self.instead:
            yield "instead: " + ", ".join(rights), rights

    def answer(self, world: World, by: Connection) -> Any:
        """The answer, or `closed`."""
        try:
            if self.ask is not None:
                return self.ask(world, by, self)
            return world.user_asks(self.key, self.version, self.fields(world), by)
        except ClosedError:
            return "closed"


def _implying(right: str) -> str:
    operation, rest = right.split(" ", 1)
    if operation == "describe" and rest.split()[0] in ("topic", "transactional_id"):
        return f"write {rest}"
    if operation == "describe" and rest.split()[0] == "group":
        return f"read {rest}"
    if operation == "describe":
        return f"alter {rest}"
    return f"alter_configs {rest}" if operation == "describe_configs" else right


# Parts of requests.


def named(w: World, field: str, parts: str | None, part: Callable[[], Any], names: tuple[str, ...] = ALL_TOPICS) -> Any:
    """Topics by name, with partition 0 each."""
    return [{field: w[name]} | ({} if parts is None else {parts: [part()]}) for name in names]


def by_id(w: World, parts: str, part: Callable[[], Any], names: tuple[str, ...] = ALL_IDS) -> Any:
    return [{"topic_id": w.ids[name], parts: [part()]} for name in names]


def first(**more: Any) -> Callable[[], Any]:
    return lambda: {"partition_index": 0, **more}


def zero() -> int:
    return 0


def produced(w: World, names: tuple[str, ...], producer: tuple[int, int] | None = None) -> list[Fields]:
    return [
        {"topic_id" if by == "id" else "name": w.ids[name] if by == "id" else w[name],
         "partition_data": [{"index": 0, "records": batch(producer)}]}
        for by, name in (each.split() for each in names)
    ]  # fmt: skip


def begun(w: World) -> Fields:
    """A new producer of transactional id t."""
    producer_id, epoch = w.begin("t")
    return {"producer_id": producer_id, "producer_epoch": epoch}


def fetched(field: str, values: Any) -> Any:
    return lambda w: {
        "max_wait_ms": 0, "min_bytes": 0, "topics": [
            {field: value, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
            for value in values(w)
        ],
    }  # fmt: skip


def configs(key: int) -> Callable[[World], Fields]:
    def fields(w: World) -> Fields:
        named = [("topic", w[name]) for name in ALL_TOPICS]
        named += [("broker", str(w.node_id)), ("logger", str(w.node_id)), ("metrics", w["metrics"])]
        named += [("group", w["g"]), ("group", w["h"])]
        if key == 33:
            named = [each for each in named if each[0] != "logger"]
        more: Fields = {"configuration_keys": None} if key == 32 else {"configs": []}
        resources = [{"resource_type": CONFIG_TYPES[kind], "resource_name": name, **more} for kind, name in named]
        return {"resources": resources} | ({} if key == 32 else {"validate_only": True})

    return fields


def doomed(w: World) -> None:
    for name in ("doomed", "doomed2"):
        w.make_topic(name)


def delete_by_id(w: World) -> Fields:
    return {"timeout_ms": 30_000, "topics": [
        {"name": None, "topic_id": w.ids[name]} for name in ("doomed", "doomed2", "unknown")
    ]}  # fmt: skip


def doomed_groups(w: World) -> None:
    for name in ("doomedg", "doomedg2"):
        w.commit(name)


def consumer_group(w: World) -> None:
    """A group with one member, who is assigned both topics."""
    member = {"group_id": w["cg"], "member_id": str(uuid.uuid4()), "rebalance_timeout_ms": 60_000}
    for each in w.ask(69, 1, group_ids=[w["cg"]]).groups:
        for old in each.members:
            w.ask(68, 1, group_id=w["cg"], member_id=old.member_id, member_epoch=-1)
    epoch, joined = 0, None

    def assigned() -> bool:
        nonlocal epoch, joined
        joined = w.ask(
            68, 1, **member, member_epoch=epoch,
            **({} if epoch else {"subscribed_topic_names": [w[name] for name in ("orders", "secret")],
                                 "topic_partitions": []}),
        )  # fmt: skip
        assert joined.error_code == 0, joined
        epoch = joined.member_epoch
        (found,) = w.ask(69, 1, group_ids=[w["cg"]]).groups
        return any(len(each.assignment.topic_partitions) == 2 for each in found.members)

    w.until(assigned)


def share_group(w: World) -> None:
    """A share group with one member, who is assigned both topics."""
    for each in w.ask(77, 1, group_ids=[w["sg"]]).groups:
        for old in each.members:
            w.ask(76, 1, group_id=w["sg"], member_id=old.member_id, member_epoch=-1)
    member_id, epoch = str(uuid.uuid4()), 0

    def assigned() -> bool:
        nonlocal epoch
        joined = w.ask(
            76, 1, group_id=w["sg"], member_id=member_id, member_epoch=epoch,
            **({} if epoch else {"subscribed_topic_names": [w[name] for name in ("orders", "secret")]}),
        )  # fmt: skip
        assert joined.error_code == 0, joined
        epoch = joined.member_epoch
        (found,) = w.ask(77, 1, group_ids=[w["sg"]]).groups
        return any(len(each.assignment.topic_partitions) == 2 for each in found.members)

    w.until(assigned)


def empty_share_group(w: World) -> None:
    """A share group without members, with start offsets."""
    share_group(w)
    for each in w.ask(77, 1, group_ids=[w["sg"]]).groups:
        for old in each.members:
            w.ask(76, 1, group_id=w["sg"], member_id=old.member_id, member_epoch=-1)

    def emptied() -> bool:
        (found,) = w.ask(77, 1, group_ids=[w["sg"]]).groups
        return bool(found.group_state == "Empty")

    w.until(emptied)
    offsets = [{"topic_name": w[name], "partitions": [{"partition_index": 0, "start_offset": 0}]} for name in (
        "orders", "secret"
    )]  # fmt: skip

    def set_() -> bool:
        answer = w.ask(91, 0, group_id=w["sg"], topics=offsets)
        return answer.error_code == 0 and all(
            part.error_code == 0 for each in answer.responses for part in each.partitions
        )

    w.until(set_)


def share_fetch(w: World, names: tuple[str, ...] = ("orders", "secret")) -> Fields:
    return {
        "group_id": w["sg"], "member_id": str(uuid.uuid4()), "share_session_epoch": 0, "max_wait_ms": 0,
        "min_bytes": 0, "max_records": 1, "batch_size": 1, "topics": [
            {"topic_id": w.ids[name], "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
            for name in names
        ],
    }  # fmt: skip


def share_fetched(w: World, by: Connection, case: Case) -> Any:
    """What is not refused is there or not, as time goes: it is left out."""
    answer = w.user_asks(78, case.version, share_fetch(w), by)
    for topic in answer.responses:
        topic.partitions = [each for each in topic.partitions if each.error_code]
    answer.responses = [each for each in answer.responses if each.partitions]
    return answer


def share_acknowledge(w: World, by: Connection, case: Case) -> Any:
    """Behind a ShareFetch, which opens the session."""
    opened = share_fetch(w)
    w.user_asks(78, 1, opened, by)
    done = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    return w.user_asks(79, case.version, {
        "group_id": w["sg"], "member_id": opened["member_id"], "share_session_epoch": 1, "topics": [
            {"topic_id": w.ids[name], "partitions": [{"partition_index": 0, "acknowledgement_batches": [done]}]}
            for name in ("orders", "secret")
        ],
    }, by)  # fmt: skip


def by_pattern(w: World, by: Connection, case: Case) -> Any:
    """Join with a pattern that matches both topics: the answer to joining, then the names that are assigned."""
    member = {"group_id": w["pattern"], "member_id": str(uuid.uuid4()), "rebalance_timeout_ms": 60_000}
    joined = w.user_asks(case.key, case.version, {
        **member, "member_epoch": 0, "subscribed_topic_regex": f"{w.prefix}(orders|secret)", "topic_partitions": [],
    }, by)  # fmt: skip
    if joined.error_code:
        return joined
    names, epoch = {each: name for name, each in w.ids.items()}, joined.member_epoch
    found: set[str] = set()
    for _ in range(30):  # nothing may come, so this waits for a while
        w.pause(0.1)
        answer = w.user_asks(case.key, case.version, {**member, "member_epoch": epoch}, by)
        epoch = answer.member_epoch
        if answer.assignment is not None:
            found = {names[each.topic_id] for each in answer.assignment.topic_partitions}
        if len(found) == 2:
            break
    w.user_asks(case.key, case.version, {**member, "member_epoch": -1}, by)
    return [joined, sorted(found)]


def share_partition(w: World) -> Fields:
    return {"key_type": 2, "coordinator_keys": [f"{w['sg']}:{'A' * 22}:0"]}


def share_coordinator(w: World) -> None:
    w.until(lambda: w.ask(10, 6, **share_partition(w)).coordinators[0].error_code == 0)


def by_token(fields: Callable[[World], Fields]) -> Callable[[World, Connection, Case], Any]:
    """Asked by who has logged in with the token that was made last, in the name of its owner."""

    def ask(w: World, by: Connection, case: Case) -> Any:
        secret = base64.b64encode(w.hmac).decode()
        found: list[Connection] = []

        def known() -> bool:
            try:
                found.append(Connection(w.bootstrap, w.token_id, secret, token=True))
            except (AssertionError, ClosedError):
                return False
            return True

        w.until(known)
        try:
            return w.user_asks(case.key, case.version, fields(w), found[0])
        finally:
            found[0].close()

    return ask


def token_of(owner: str, *renewers: str) -> Callable[[World], Any]:
    """A token of theirs, and one of bob's; there are no others. Only its owner may end a token."""

    def before(w: World) -> None:
        def tokens() -> list[Any]:
            found = w.ask(41, 3, owners=None).tokens
            return [each for each in found if each.principal_name.startswith(w.prefix)]

        def ended() -> bool:
            found = tokens()
            for each in found:
                by = w.bob if each.principal_name == w["bob"] else w.user
                w.user_asks(40, 2, {"hmac": each.hmac, "expiry_time_period_ms": -1}, by)
            return not found

        w.until(ended)
        for name in dict.fromkeys((owner, "bob")):
            made = w.ask(
                38, 3, owner_principal_type="User", owner_principal_name=w[name], max_lifetime_ms=600_000,
                renewers=[{"principal_type": "User", "principal_name": w[each]} for each in renewers],
            )  # fmt: skip
            assert made.error_code == 0, made
            if name == owner:
                w.hmac = bytes(made.hmac)
            w.token_id = made.token_id
            w.until(lambda: w.token_id in [each.token_id for each in tokens()])

    return before


def creation(w: World) -> Fields:
    return {
        "resource_type": 2, "resource_name": w["orders"], "resource_pattern_type": 3,
        "principal": f"User:{w['nobody']}", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip


def of_nobody(w: World) -> Fields:
    return {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": f"User:{w['nobody']}", "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip


def with_transaction(w: World) -> None:
    """Transactional id t is in a transaction, with both topics."""
    producer_id, epoch = w.begin("t")

    def added() -> bool:
        answer = w.ask(
            24, 3, v3_and_below_transactional_id=w["t"], v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch, v3_and_below_topics=[
                {"name": w[name], "partitions": [0]} for name in ("orders", "secret")
            ],
        )  # fmt: skip
        return all(
            part.partition_error_code == 0
            for each in answer.results_by_topic_v3_and_below
            for part in each.results_by_partition
        )

    w.until(added)


def added_v3(names: tuple[str, ...]) -> Callable[[World], Fields]:
    def fields(w: World) -> Fields:
        return {f"v3_and_below_{name}": value for name, value in {
            "transactional_id": w["t"], **begun(w), "topics": [{"name": w[name], "partitions": [0]} for name in names],
        }.items()}  # fmt: skip

    return fields


def txn_offsets(w: World) -> Fields:
    return {"transactional_id": w["t"], "group_id": w["g"], **begun(w), "topics": named(
        w, "name", "partitions", first(committed_offset=0)
    )}  # fmt: skip


def commit(w: World) -> None:
    w.commit("g")


def _unanswered(w: World, by: Connection) -> Any:
    """Produce with acks=0: what is refused ends the connection."""
    by.say(0, 9, **build(0, {"acks": 0, "timeout_ms": 9_000, "topic_data": produced(w, ("name orders",))}))
    return w.user_asks(18, 0, {}, by) and "no answer"


def by_hand(by: Connection, key: int, version: int, body: bytes, at: int = 4) -> Any:
    """The error code, which stands behind the throttle time (or elsewhere)."""
    answer = by.ask_by_hand(key, version, body)
    return {"error_code": struct.unpack_from(">h", answer, at)[0]}


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def streams_heartbeat(w: World) -> bytes:
    """StreamsGroupHeartbeat of a member that is not there, with one source topic."""
    subtopology = compact("0") + b"\2" + compact(w["orders"]) + b"\1" * 5 + b"\0"
    topology = b"\1" + struct.pack(">i", 0) + b"\2" + subtopology + b"\0"
    head = compact(w["stg"]) + compact("m") + struct.pack(">ii", 5, 0) + b"\0\0" + struct.pack(">i", 60_000)
    return head + topology + b"\0" * 4 + b"\xff" + b"\0" * 5


def streams_described(w: World, by: Connection) -> Any:
    return by_hand(by, 89, 0, b"\2" + compact(w["stg"]) + b"\0\0", at=5)


TXN = "write transactional_id t"
CASES = [
    Case(key=0, version=9, title="by name", needs=("write topic orders",), fields=lambda w: {
        "acks": -1, "timeout_ms": 9_000, "topic_data": produced(w, ("name orders", "name secret", "name absent"))}),
    Case(key=0, version=13, title="by id", needs=("write topic orders",), fields=lambda w: {
        "acks": -1, "timeout_ms": 9_000, "topic_data": produced(w, ("id orders", "id secret", "id unknown"))}),
    Case(key=0, version=9, title="acks=0", needs=("write topic orders",), ask=lambda w, by, case: _unanswered(w, by)),
    Case(key=0, version=12, title="in a transaction", needs=(TXN, "write topic orders"), fields=lambda w: {
        "transactional_id": w["t"], "acks": -1, "timeout_ms": 9_000,
        "topic_data": produced(w, ("name orders", "name secret", "name absent"), w.begin("t"))}),
    Case(key=0, version=12, title="a transaction without its id", needs=("write topic orders",), fields=lambda w: {
        "transactional_id": None, "acks": -1, "timeout_ms": 9_000,
        "topic_data": produced(w, ("name orders",), w.begin("t"))}),
    Case(key=1, version=12, title="by name", needs=("read topic orders",),
         instead=(("read topic orders", "deny describe topic orders"), ("read topic *",), ("read topic ord*",),
                  ("read topic ord*", "deny read topic *")),
         fields=fetched("topic", lambda w: [w[name] for name in ALL_TOPICS])),
    Case(key=1, version=17, title="by id", needs=("read topic orders",),
         fields=fetched("topic_id", lambda w: [w.ids[name] for name in ALL_IDS])),
    Case(key=1, version=12, title="as a replica", needs=("cluster_action cluster",),
         instead=(("read topic orders",),), fields=lambda w: {
             **fetched("topic", lambda w: [w[name] for name in ALL_TOPICS])(w), "replica_id": 99}),
    Case(key=2, version=9, title="", needs=("describe topic orders",), instead=(("read topic orders",),),
         fields=lambda w: {"topics": named(w, "name", "partitions", first(timestamp=-1))}),
    Case(key=3, version=12, title="by name", needs=("describe topic orders",),
         instead=(("read topic orders",), ("delete topic orders",), ("create topic orders",),
                  ("describe_configs topic orders",), ("read topic orders", "deny describe topic orders"),
                  ("describe topic *",)),
         fields=lambda w: {"topics": named(w, "name", None, zero), "allow_auto_topic_creation": False}),
    Case(key=3, version=12, title="by id", needs=("describe topic orders",), fields=lambda w: {
        "topics": [{"name": None, "topic_id": w.ids[name]} for name in ALL_IDS]}),
    Case(key=3, version=12, title="all", needs=("describe topic orders",), fields=lambda w: {"topics": None}),
    Case(key=3, version=0, title="all, in version 0", needs=("describe topic orders",),
         fields=lambda w: {"topics": []}),
    Case(key=3, version=9, title="with operations on topics", needs=("describe topic orders",),
         instead=(("read topic orders", "alter_configs topic orders"),), fields=lambda w: {
             "topics": named(w, "name", None, zero), "allow_auto_topic_creation": False,
             "include_topic_authorized_operations": True}),
    Case(key=3, version=10, title="with operations on the cluster", needs=("describe cluster",),
         instead=(("alter cluster", "create cluster"), ("create cluster",)), fields=lambda w: {
             "topics": [], "include_cluster_authorized_operations": True}),
    Case(key=3, version=12, title="one that is not there yet", needs=("describe topic created", "create topic created"),
         instead=(("describe topic created", "create cluster"), ("create cluster",)),
         before=lambda w: w.delete_topic("created"), fields=lambda w: {
             "topics": named(w, "name", None, zero, ("created",)), "allow_auto_topic_creation": True}),
    Case(key=8, version=9, title="by name", needs=("read group g", "read topic orders"), before=commit,
         fields=lambda w: {"group_id": w["g"], "topics": named(w, "name", "partitions", first(committed_offset=0))}),
    Case(key=8, version=10, title="by id", needs=("read group g", "read topic orders"), before=commit,
         fields=lambda w: {"group_id": w["g"], "topics": by_id(w, "partitions", first(committed_offset=0))}),
    Case(key=9, version=1, title="one group, version 1", needs=("describe group g", "describe topic orders"),
         before=commit, fields=lambda w: {"group_id": w["g"], "topics": named(w, "name", "partition_indexes", zero)}),
    Case(key=9, version=7, title="one group", needs=("describe group g", "describe topic orders"), before=commit,
         fields=lambda w: {"group_id": w["g"], "topics": named(w, "name", "partition_indexes", zero)}),
    Case(key=9, version=9, title="groups", needs=("describe group g", "describe topic orders"), before=commit,
         fields=lambda w: {"groups": [
             {"group_id": w[name], "topics": named(w, "name", "partition_indexes", zero)} for name in ("g", "h", "nog")
         ]}),
    Case(key=9, version=10, title="by id", needs=("describe group g", "describe topic orders"), before=commit,
         fields=lambda w: {"groups": [{"group_id": w["g"], "topics": by_id(w, "partition_indexes", zero)}]}),
    Case(key=9, version=7, title="all offsets, one group", needs=("describe group g", "describe topic orders"),
         before=commit, fields=lambda w: {"group_id": w["g"], "topics": None}),
    Case(key=9, version=9, title="all offsets", needs=("describe group g", "describe topic orders"), before=commit,
         fields=lambda w: {"groups": [{"group_id": w[name], "topics": None} for name in ("g", "h", "nog")]}),
    Case(key=10, version=3, title="of a group, version 3", needs=("describe group g",),
         fields=lambda w: {"key_type": 0, "key": w["g"]}),
    Case(key=10, version=6, title="of groups", needs=("describe group g",), instead=(("read group g",),),
         fields=lambda w: {"key_type": 0, "coordinator_keys": [w[name] for name in ("g", "h", "nog")]}),
    Case(key=10, version=3, title="of a transactional id, version 3", needs=("describe transactional_id t",),
         fields=lambda w: {"key_type": 1, "key": w["t"]}),
    Case(key=10, version=6, title="of transactional ids", needs=("describe transactional_id t",),
         fields=lambda w: {"key_type": 1, "coordinator_keys": [w[name] for name in ("t", "t2", "tabsent")]}),
    Case(key=10, version=6, title="of share partitions", needs=("cluster_action cluster",), before=share_coordinator,
         fields=share_partition),
    Case(key=11, version=9, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "session_timeout_ms": 1, "rebalance_timeout_ms": 1, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}]}),
    Case(key=12, version=4, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "generation_id": 1, "member_id": "m"}),
    Case(key=13, version=2, title="version 2", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "member_id": "m"}),
    Case(key=13, version=5, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "members": [{"member_id": "m"}]}),
    Case(key=14, version=5, title="", needs=("read group g",), fields=lambda w: {
        "group_id": w["g"], "generation_id": 1, "member_id": "m", "protocol_type": "consumer",
        "protocol_name": "range"}),
    Case(key=15, version=5, title="version 5", needs=("describe group g",), before=commit, fields=lambda w: {
        "groups": [w[name] for name in ("g", "h", "nog")], "include_authorized_operations": True}),
    Case(key=15, version=6, title="", needs=("describe group g",), instead=(("describe group g", "delete group g"),),
         before=commit, fields=lambda w: {
             "groups": [w[name] for name in ("g", "h", "nog")], "include_authorized_operations": True}),
    Case(key=16, version=5, title="", needs=("describe group g",), instead=(("describe cluster",), ("read group g",)),
         before=commit),
    Case(key=17, version=1, title="behind the login", fields=lambda w: {"mechanism": "SCRAM-SHA-256"}),
    Case(key=18, version=4, title="", fields=lambda w: {
        "client_software_name": "access", "client_software_version": "1"}),
    Case(key=19, version=7, title="", needs=("create topic created", "describe_configs topic created"),
         instead=(("create cluster",), ("describe_configs topic created",)),
         before=lambda w: w.delete_topic("created"), fields=lambda w: {
             "validate_only": True, "timeout_ms": 9_000, "topics": [
                 {"name": w[name], "num_partitions": 1, "replication_factor": 1} for name in ("created", "secret", "no")
             ]}),
    Case(key=20, version=5, title="by name", needs=("delete topic doomed",), instead=(("delete cluster",),),
         before=doomed, fields=lambda w: {
             "timeout_ms": 30_000, "topic_names": [w[name] for name in ("doomed", "doomed2", "absent")]}),
    Case(key=20, version=6, title="by id", needs=("delete topic doomed",),
         instead=(("delete topic doomed", "describe topic doomed2"), ("delete cluster",)), before=doomed,
         fields=delete_by_id),
    Case(key=21, version=2, title="", needs=("delete topic orders",), instead=(("write topic orders",),),
         fields=lambda w: {"timeout_ms": 9_000, "topics": named(w, "name", "partitions", first(offset=0))}),
    Case(key=22, version=5, title="with a transactional id", needs=(TXN,),
         instead=(("describe transactional_id t",), ("idempotent_write cluster", "write topic orders")),
         fields=lambda w: {"transactional_id": w["t"], "transaction_timeout_ms": 60_000}),
    Case(key=22, version=6, title="in two phases", needs=(TXN, "two_phase_commit transactional_id t"),
         fields=lambda w: {"transactional_id": w["t"], "transaction_timeout_ms": 60_000, "enable2_pc": True}),
    Case(key=22, version=5, title="without a transactional id", needs=("idempotent_write cluster",),
         instead=(
             ("write topic orders",), ("write topic ord*",), ("write topic *",), ("read topic orders",),
             ("alter topic *",), ("write transactional_id t",), ("write topic *", "deny write topic *"),
             ("write topic orders", "deny write topic *"), ("write topic orders", "deny write topic ord*"),
             ("write topic ord*", "deny write topic orders"), ("write topic *", "deny write topic ord*"),
             ("idempotent_write cluster", "deny write topic *"),
         ), fields=lambda w: {"transactional_id": None, "transaction_timeout_ms": 60_000}),
    Case(key=23, version=4, title="", needs=("describe topic orders",), instead=(("cluster_action cluster",),),
         fields=lambda w: {"topics": named(w, "topic", "partitions", lambda: {"partition": 0, "leader_epoch": 0})}),
    Case(key=24, version=3, title="", needs=(TXN, "write topic orders"), fields=added_v3(("orders",))),
    Case(key=24, version=3, title="several topics", needs=(TXN, "write topic orders"), fields=added_v3(ALL_TOPICS)),
    Case(key=24, version=5, title="as a broker", needs=("cluster_action cluster",),
         instead=((TXN, "write topic orders"),), fields=lambda w: {"transactions": [{
             "transactional_id": w["t"], **begun(w), "verify_only": True,
             "topics": [{"name": w["orders"], "partitions": [0]}]}]}),
    Case(key=25, version=3, title="", needs=(TXN, "read group g"), fields=lambda w: {
        "transactional_id": w["t"], "group_id": w["g"], **begun(w)}),
    Case(key=26, version=3, title="", needs=(TXN,), before=None, fields=lambda w: {
        "transactional_id": w["t"], **begun(w), "committed": True}),
    Case(key=27, version=1, title="", needs=("alter cluster",), instead=(("cluster_action cluster",),),
         fields=lambda w: {"markers": [{"producer_id": 1, "topics": [
             {"name": w["orders"], "partition_indexes": [5]}, {"name": w["absent"], "partition_indexes": [0]}]}]}),
    Case(key=28, version=3, title="", needs=(TXN, "read group g", "read topic orders"), fields=txn_offsets),
    Case(key=28, version=5, title="version 5", needs=(TXN, "read group g", "read topic orders"), fields=txn_offsets),
    Case(key=29, version=3, title="", needs=("describe cluster",), fields=of_nobody),
    Case(key=30, version=3, title="", needs=("alter cluster",), fields=lambda w: {"creations": [creation(w)] * 2}),
    Case(key=31, version=3, title="", needs=("alter cluster",), fields=lambda w: {"filters": [of_nobody(w)]}),
    Case(key=32, version=4, title="", fields=configs(32), needs=(
        "describe_configs topic orders", "describe_configs cluster", "describe_configs group g")),
    Case(key=33, version=2, title="", fields=configs(33), needs=(
        "alter_configs topic orders", "alter_configs cluster", "alter_configs group g")),
    Case(key=44, version=1, title="", fields=configs(44), needs=(
        "alter_configs topic orders", "alter_configs cluster", "alter_configs group g")),
    Case(key=34, version=2, title="", needs=("alter cluster",), fields=lambda w: {
        "dirs": [{"path": "/nowhere", "topics": [
            {"name": w["orders"], "partitions": [0]}, {"name": w["absent"], "partitions": [0]}]}]}),
    Case(key=35, version=2, title="version 2", needs=("describe cluster",),
         fields=lambda w: {"topics": [{"topic": w["orders"], "partitions": [0]}]}),
    Case(key=35, version=4, title="", needs=("describe cluster",),
         fields=lambda w: {"topics": [{"topic": w["orders"], "partitions": [0]}]}),
    Case(key=36, version=2, title="behind the login", fields=lambda w: {"auth_bytes": b"x"}),
    Case(key=37, version=3, title="", needs=("alter topic orders",), fields=lambda w: {
        "timeout_ms": 9_000, "validate_only": True, "topics": [
            {"name": w[name], "count": 2, "assignments": None} for name in ALL_TOPICS]}),
    Case(key=38, version=3, title="of one's own", fields=lambda w: {
        "owner_principal_type": None, "owner_principal_name": None, "max_lifetime_ms": 600_000},
        before=token_of("bob")),
    Case(key=38, version=3, title="for another", needs=("create_tokens user bob",), fields=lambda w: {
        "owner_principal_type": "User", "owner_principal_name": w["bob"], "max_lifetime_ms": 600_000},
        before=token_of("bob")),
    Case(key=39, version=2, title="of one's own", before=token_of("alice"), fields=lambda w: {
        "hmac": w.hmac, "renew_period_ms": 600_000}),
    Case(key=39, version=2, title="of another", before=token_of("bob"), instead=(
        ("create_tokens user bob",), ("alter cluster",)), fields=lambda w: {
        "hmac": w.hmac, "renew_period_ms": 600_000}),
    Case(key=39, version=2, title="of nobody", fields=lambda w: {"hmac": b"x" * 64, "renew_period_ms": 600_000}),
    Case(key=40, version=2, title="of one's own", before=token_of("alice"), fields=lambda w: {
        "hmac": w.hmac, "expiry_time_period_ms": -1}),
    Case(key=40, version=2, title="of another", before=token_of("bob"), instead=(
        ("create_tokens user bob",), ("alter cluster",)), fields=lambda w: {
        "hmac": w.hmac, "expiry_time_period_ms": -1}),
    Case(key=41, version=3, title="all", before=token_of("alice"), instead=(
        ("describe_tokens user bob",), ("describe delegation_token TOKEN",), ("describe cluster",)),
        fields=lambda w: {"owners": None}),
    Case(key=41, version=3, title="another's", before=token_of("bob"), instead=(
        ("describe_tokens user bob",), ("describe delegation_token TOKEN",)),
        fields=lambda w: {"owners": [{"principal_type": "User", "principal_name": w["bob"]}]}),
    Case(key=39, version=2, title="as a renewer", before=token_of("bob", "alice"), fields=lambda w: {
        "hmac": w.hmac, "renew_period_ms": 600_000}),
    Case(key=40, version=2, title="as a renewer", before=token_of("bob", "alice"), fields=lambda w: {
        "hmac": w.hmac, "expiry_time_period_ms": -1}),
    Case(key=41, version=3, title="as a renewer", before=token_of("bob", "alice"), fields=lambda w: {"owners": None}),
    Case(key=38, version=3, title="by a token", before=token_of("bob"), ask=by_token(lambda w: {
        "owner_principal_type": None, "owner_principal_name": None, "max_lifetime_ms": 600_000})),
    Case(key=39, version=2, title="by a token", before=token_of("bob"), ask=by_token(lambda w: {
        "hmac": w.hmac, "renew_period_ms": 600_000})),
    Case(key=40, version=2, title="by a token", before=token_of("bob"), ask=by_token(lambda w: {
        "hmac": w.hmac, "expiry_time_period_ms": -1})),
    Case(key=41, version=3, title="by a token", before=token_of("bob"), ask=by_token(lambda w: {"owners": None})),
    Case(key=42, version=2, title="", needs=("delete group doomedg",), before=doomed_groups, fields=lambda w: {
        "groups_names": [w[name] for name in ("doomedg", "doomedg2", "nog")]}),
    Case(key=43, version=2, title="", needs=("alter cluster",), fields=lambda w: {
        "topic_partitions": [{"topic": w[name], "partitions": [0]} for name in ("orders", "absent")]}),
    Case(key=45, version=1, title="", needs=("alter cluster",), fields=lambda w: {"topics": [
        {"name": w[name], "partitions": [{"partition_index": 0, "replicas": None}]} for name in ("orders", "absent")]}),
    Case(key=46, version=0, title="", needs=("describe cluster",), fields=lambda w: {"topics": None}),
    Case(key=47, version=0, title="", needs=("delete group g", "read topic orders"), before=commit,
         fields=lambda w: {"group_id": w["g"], "topics": named(w, "name", "partitions", first())}),
    Case(key=47, version=0, title="of no group", needs=("delete group nog", "read topic orders"),
         fields=lambda w: {"group_id": w["nog"], "topics": named(w, "name", "partitions", first())}),
    Case(key=48, version=1, title="", needs=("describe_configs cluster",), fields=lambda w: {
        "components": [{"entity_type": "user", "match_type": 0, "match": w["nobody"]}]}),
    Case(key=49, version=1, title="", needs=("alter_configs cluster",), fields=lambda w: {
        "validate_only": True, "entries": [{
            "entity": [{"entity_type": "user", "entity_name": w["nobody"]}],
            "ops": [{"key": "producer_byte_rate", "value": 1000.0}]}]}),
    Case(key=50, version=0, title="", needs=("describe cluster",), fields=lambda w: {
        "users": [{"name": w[name]} for name in ("alice", "nobody")]}),
    Case(key=51, version=0, title="", needs=("alter cluster",), fields=lambda w: {
        "deletions": [{"name": w["nobody"], "mechanism": 1}, {"name": w["unknown"], "mechanism": 9},
                      {"name": w["twice"], "mechanism": 1}, {"name": w["twice"], "mechanism": 1}],
        "upsertions": [
            {"name": w[name], "mechanism": 1, "iterations": count, "salt": b"s", "salted_password": b"p"}
            for name, count in (("few", 1), ("double", 4096), ("double", 4096))]}),
    Case(key=55, version=2, title="", needs=("describe cluster",), fields=lambda w: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
    Case(key=57, version=2, title="", needs=("alter cluster",), fields=lambda w: {"validate_only": True}),
    Case(key=60, version=2, title="", needs=("describe cluster",), instead=(("create cluster",),), fields=lambda w: {
        "include_cluster_authorized_operations": True}),
    Case(key=61, version=0, title="", needs=("read topic orders",), instead=(("describe topic orders",),),
         fields=lambda w: {"topics": named(w, "name", "partition_indexes", zero)}),
    Case(key=64, version=0, title="", needs=("alter cluster",), ask=lambda w, by, case: by_hand(
        by, 64, 0, bytes.fromhex("0000004d") + b"\0")),
    Case(key=65, version=0, title="", needs=("describe transactional_id t", "describe topic orders"),
         before=with_transaction, fields=lambda w: {
             "transactional_ids": [w[name] for name in ("t", "t2", "tabsent")]}),
    Case(key=66, version=1, title="", needs=("describe transactional_id t",), before=with_transaction),
    Case(key=68, version=1, title="by name", needs=("read group cg", "describe topic orders"), fields=lambda w: {
        "group_id": w["cg"], "member_id": "m", "member_epoch": 5, "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [w["orders"]]}),
    Case(key=68, version=1, title="several topics", needs=("read group cg", "describe topic orders"),
         instead=(("read group cg", "describe topic orders", "describe topic secret"),), fields=lambda w: {
             "group_id": w["cg"], "member_id": "m", "member_epoch": 5, "rebalance_timeout_ms": 60_000,
             "subscribed_topic_names": [w[name] for name in ("orders", "secret")]}),
    Case(key=68, version=1, title="by pattern", needs=("read group pattern", "describe topic orders"), ask=by_pattern),
    Case(key=69, version=1, title="", needs=("describe group cg", "describe topic orders", "describe topic secret"),
         before=consumer_group, fields=lambda w: {
             "group_ids": [w[name] for name in ("cg", "nog")], "include_authorized_operations": True}),
    Case(key=74, version=1, title="", needs=("describe_configs cluster",),
         instead=(("describe_configs topic orders",),), fields=lambda w: {"resource_types": [2]}),
    Case(key=74, version=0, title="client metrics, version 0", needs=("describe_configs cluster",)),
    Case(key=75, version=0, title="by name", needs=("describe topic orders",), fields=lambda w: {
        "topics": named(w, "name", None, zero), "cursor": None}),
    Case(key=75, version=0, title="all", needs=("describe topic orders",), fields=lambda w: {
        "topics": [], "cursor": None}),
    Case(key=76, version=1, title="by name", needs=("read group sg", "describe topic orders"), fields=lambda w: {
        "group_id": w["sg"], "member_id": "m", "member_epoch": 5, "subscribed_topic_names": [w["orders"]]}),
    Case(key=76, version=1, title="several topics", needs=("read group sg", "describe topic orders"),
         instead=(("read group sg", "describe topic orders", "describe topic secret"),), fields=lambda w: {
             "group_id": w["sg"], "member_id": "m", "member_epoch": 5,
             "subscribed_topic_names": [w[name] for name in ("orders", "secret")]}),
    Case(key=77, version=1, title="", needs=("describe group sg", "describe topic orders", "describe topic secret"),
         before=share_group, fields=lambda w: {
             "group_ids": [w[name] for name in ("sg", "nog")], "include_authorized_operations": True}),
    Case(key=78, version=1, title="", needs=("read group sg", "read topic orders"), before=share_group,
         ask=share_fetched),
    Case(key=78, version=1, title="with an unknown id", needs=("read group sg",), before=share_group,
         fields=lambda w: share_fetch(w, ("unknown",))),
    Case(key=79, version=1, title="", needs=("read group sg", "read topic orders"), before=share_group,
         ask=share_acknowledge),
    Case(key=80, version=0, title="", needs=("alter cluster",), ask=lambda w, by, case: by_hand(
        by, 80, 0, b"\0" + bytes.fromhex("00000001") + bytes.fromhex("0000004d") + b"\1" * 16 + b"\1" + b"\0")),
    Case(key=81, version=0, title="", needs=("alter cluster",), ask=lambda w, by, case: by_hand(
        by, 81, 0, b"\0" + bytes.fromhex("0000004d") + b"\1" * 16 + b"\0")),
    Case(key=88, version=0, title="", needs=("read group stg", "describe topic orders"),
         ask=lambda w, by, case: by_hand(by, 88, 0, streams_heartbeat(w))),
    Case(key=89, version=0, title="", needs=("describe group stg",), ask=lambda w, by, case: streams_described(w, by)),
    Case(key=90, version=1, title="", needs=("describe group sg", "describe topic orders"), before=empty_share_group,
         fields=lambda w: {"groups": [
             {"group_id": w[name], "topics": named(w, "topic_name", "partitions", zero)} for name in ("sg", "nog")]}),
    Case(key=90, version=1, title="all topics", needs=("describe group sg", "describe topic orders"),
         before=empty_share_group, fields=lambda w: {"groups": [{"group_id": w["sg"], "topics": None}]}),
    Case(key=91, version=0, title="", needs=("read group sg", "read topic orders"), before=empty_share_group,
         fields=lambda w: {"group_id": w["sg"], "topics": named(w, "topic_name", "partitions", first(start_offset=0))}),
    Case(key=92, version=0, title="", needs=("delete group sg", "read topic orders"), before=empty_share_group,
         fields=lambda w: {"group_id": w["sg"], "topics": named(w, "topic_name", None, zero)}),
]  # fmt: skip
NOT_ASKED = {
    71: "telemetry, which needs nothing: offered where a receiver is installed",
    72: "as 71",
    83: "between brokers: ClusterAction",
    84: "as 83",
    85: "as 83",
    86: "as 83",
    87: "as 83",
}
