"""Parts of requests, what is there before they are made, and questions of more than one request."""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable
from typing import Any

from tests.interop.access.case import Case, Fields
from tests.interop.access.client import ClosedError, Connection
from tests.interop.access.world import World, batch, build

ALL_TOPICS = ("orders", "secret", "absent")
ALL_IDS = ("orders", "secret", "unknown")
CONFIG_TYPES = {"topic": 2, "broker": 4, "logger": 8, "metrics": 16, "group": 32}


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
    """Join with a pattern that matches both topics: the error code, and the names that are assigned."""
    member = {"group_id": w["pattern"], "member_id": str(uuid.uuid4()), "rebalance_timeout_ms": 60_000}
    joined = w.user_asks(case.key, case.version, {
        **member, "member_epoch": 0, "subscribed_topic_regex": f"{w.prefix}(orders|secret)", "topic_partitions": [],
    }, by)  # fmt: skip
    if joined.error_code:
        return joined
    names = {each: name for name, each in w.ids.items()}
    answer, found = joined, set[str]()
    for _ in range(30):  # nothing may come, so this waits for a while
        if answer.assignment is not None:
            found = {names[each.topic_id] for each in answer.assignment.topic_partitions}
        if len(found) == 2:
            break
        w.pause(0.1)
        answer = w.user_asks(case.key, case.version, {**member, "member_epoch": answer.member_epoch}, by)
    w.user_asks(case.key, case.version, {**member, "member_epoch": -1}, by)
    return [joined.error_code, sorted(found)]


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
                found.append(w.connect(w.bootstrap, w.token_id, secret, token=True))
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


def unanswered(w: World, by: Connection) -> Any:
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
