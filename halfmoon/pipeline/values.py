"""What is in a value, as typed columns: JSON by Spark's `from_json`, Avro by its `from_avro`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

_CONFLUENT_PREFIX_BYTES = 5
"""A zero byte and the schema's number in the registry, before the Avro value."""


@dataclass(slots=True, frozen=True)
class Avro:
    """An Avro schema (JSON text) that values are read with; the session must have been made with `avro=True`.

    `framing="confluent"`: they are as Confluent's serializers
    write them, with five bytes in front that name a schema; all must be readable with this one."""

    schema: str
    framing: Literal["none", "confluent"] = "none"


ValueSchema: TypeAlias = "str | StructType | Avro"
"""Of JSON values, a Spark schema (`"order_id STRING, amount DOUBLE"`); or Avro."""


def parsed(value: Column, schema: ValueSchema) -> Column:
    """The value as a struct. One that is not of this schema is a null, or has nulls; it never fails the query."""
    if not isinstance(schema, Avro):
        return F.from_json(value.cast("string"), schema)
    from pyspark.sql.avro.functions import from_avro

    if schema.framing == "confluent":
        value = F.substring(value, _CONFLUENT_PREFIX_BYTES + 1, 2**31 - 1)
    return from_avro(value, schema.schema, {"mode": "PERMISSIVE"})
