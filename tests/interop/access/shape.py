"""What an answer tells of rights, and of what exists: error codes, the names beside them, and what is left out."""

from __future__ import annotations

import json
import uuid
from typing import Any

from halfmoon.kafka_wire.records import Record
from tests.interop.access.world import World

BY_NAME = (
    "name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key", "user", "principal_name",
)  # fmt: skip
BY_NUMBER = ("partition_index", "partition", "index", "partition_id")
NAMES = frozenset({*BY_NAME, "topic_id"})
NUMBERS = frozenset({*BY_NUMBER, "resource_type"})
TOPIC = 2
RESOURCES = {TOPIC: "topic", 4: "broker", 8: "logger", 16: "metrics", 32: "group"}
"""Kafka's ConfigResource.Type, or ResourceType, which have the same number for topics."""
STATES = frozenset({"group_state", "state", "transaction_state"})
SOME = frozenset({
    "configs", "brokers", "members", "nodes", "quorum_voters", "current_voters", "observers", "node_endpoints",
    "active_producers", "log_dirs",
})  # fmt: skip
"""Lists of which only matters whether there is anything in them."""
EMPTY = frozenset({"record_errors", "aborted_transactions", "supported_features", "finalized_features", "api_keys"})
"""Lists that do not matter."""
NOT_ASKED = -(2**31)


def told(world: World, answer: Any) -> Any:
    """As lists and dicts, the same in each run. None is `nothing`, and is left out; so is all that is no error code, no
    name, no state and no set of operations."""
    if isinstance(answer, Record):
        return _of_record(world, answer)
    if isinstance(answer, list):
        return [told(world, each) for each in answer]
    return answer


def _of_record(world: World, record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in record.DEFINITION.fields:
        name = field.name
        if name not in record.__dict__:
            continue  # not in this version
        value = getattr(record, name)
        if name.endswith("error_code"):
            found[name] = value
        elif name.endswith("authorized_operations"):
            found[name] = _operations(value)
        elif name in NAMES or name in STATES:
            if value is not None:
                found[name] = _plain(world, value)
        elif name in NUMBERS:
            found[name] = value
        elif name in EMPTY:
            continue
        elif name in SOME and field.is_array and not _has_codes(field):
            found[name] = "some" if value else "none"
        elif field.struct is not None and value is not None:
            found[name] = _of_list(world, value) if field.is_array else _of_record(world, value)
    return {name: value for name, value in found.items() if value not in ({}, None, "")}


def _operations(value: Any) -> list[int] | None:
    """Their numbers. None where they were not asked for."""
    if isinstance(value, int):
        return None if value == NOT_ASKED else [bit for bit in range(32) if value >> bit & 1]
    return None if value is None else sorted(value)


def _has_codes(field: Any) -> bool:
    return any(each.name.endswith("error_code") for each in field.struct.fields) if field.struct else False


def _of_list(world: World, records: list[Record]) -> Any:
    """By name, where each has one of its own; `some` where nothing of them matters."""
    found = [_of_record(world, each) for each in records if _is_ours(world, each)]
    if found and not any(found):
        return "some"
    names = [_name(each) for each in found]
    if None in names or len(set(names)) < len(names):
        return sorted(found, key=json.dumps)
    return {
        str(name): _rest(each) for name, each in sorted(zip(names, found, strict=True), key=lambda pair: str(pair[0]))
    }


def _name(found: dict[str, Any]) -> str | None:
    """Takes it out."""
    kind = found.pop("resource_type", None)
    for name in (*BY_NAME, "topic_id", *BY_NUMBER):
        if name in found:
            return f"{found.pop(name)}" if kind is None else f"{RESOURCES[kind]} {found.pop(name)}"
    return None


def _rest(found: dict[str, Any]) -> Any:
    """What stands beside a name: alone, if it is a code or a list of partitions."""
    if len(found) == 1:
        ((name, value),) = found.items()
        if name.endswith("error_code") or isinstance(value, dict):
            return value
    return found


def _is_ours(world: World, record: Record) -> bool:
    """Whether it is not about somebody else's topic, or group."""
    for name in NAMES - {"principal_name"}:
        value = getattr(record, name, None)
        if name == "resource_name" and getattr(record, "resource_type", None) != TOPIC:
            continue
        if isinstance(value, str) and value and not value.startswith(world.prefix):
            return value == "__cluster_metadata"
    owner = getattr(record, "principal_name", None)
    return owner is None or owner.startswith(world.prefix)


def _plain(world: World, value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return "id of " + next((name for name, each in world.ids.items() if each == value), "something else")
    if isinstance(value, str):
        known = {str(world.node_id): "NODE", world.administrator: "ADMIN"}
        return known.get(value) or value.replace(world.prefix, "")
    return value
