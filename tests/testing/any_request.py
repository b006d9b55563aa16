"""A request of any API, which names something in each place where it can."""

from __future__ import annotations

from typing import Any

from halfmoon.core.records.batches import build_batch
from halfmoon.kafka_wire.definition import Field, Fields
from halfmoon.kafka_wire.messages import REQUESTS

_VALUES: dict[str, Any] = {
    "bool": False, "float64": 0.0, "bytes": b"", "bitfield": None, "uuid": None,
    "records": build_batch([(None, b"x", 0, ())]),
}  # fmt: skip


def any_request(key: int, version: int, name: str) -> dict[str, Any]:
    """Its fields. `name`: of all that has one."""
    request = REQUESTS[key]
    fields: Fields = request.fields
    return {
        field.name: _value(field, request.type, version, name)
        for field in fields.fields
        if field.is_in(version) and field.name not in ("cluster_id", "transactional_id")
    }


def _value(field: Field, made: Any, version: int, name: str) -> Any:
    return [_one(field, made, version, name)] if field.is_array else _one(field, made, version, name)


def _one(field: Field, made: Any, version: int, name: str) -> Any:
    if field.struct is not None:
        kind = getattr(made, field.kind)
        return kind(**{
            each.name: _value(each, kind, version, name)
            for each in field.struct.fields
            if each.is_in(version) and not each.is_tagged(version)
        })  # fmt: skip
    if field.name == "acks":
        return -1  # else there is no answer
    if field.kind == "string":
        return name
    if field.kind in _VALUES:
        return _VALUES[field.kind]
    return field.default if isinstance(field.default, int) and not field.is_array else 0
