"""What is in a value, as typed columns: JSON by Spark's `from_json`, Avro by its `from_avro`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from halfmoon.pipeline.errors import PipelineError

_CONFLUENT_PREFIX_BYTES = 5
"""A zero byte and the schema's id in the registry (int32, big-endian), before the Avro value."""
_NO_ID = -1


@dataclass(slots=True, frozen=True)
class Avro:
    """Avro schemas (JSON text) that values are read with; the session must have been made with `avro=True`.

    `schema`: one text, or a text by schema id, for values as Confluent's serializers write them, with five bytes in
    front that name the id. Each value is read with its own schema and given the form of `reader`, by Avro's rules of
    schema resolution; without one, that of the highest id. A value with another id is null; with `unknown="fail"` the
    query fails.

    `framing="confluent"` with one text: all values must have the same id.
    """

    schema: str | Mapping[int, str]
    framing: Literal["none", "confluent"] = "none"
    reader: str | None = None
    unknown: Literal["null", "fail"] = "null"

    def __post_init__(self) -> None:
        """Raises PipelineError."""
        if not self.schema:
            raise PipelineError("Avro needs a schema")


ValueSchema: TypeAlias = "str | StructType | Avro"
"""Of JSON values, a Spark schema (`"order_id STRING, amount DOUBLE"`); or Avro."""


def with_data(messages: DataFrame, schema: ValueSchema) -> DataFrame:
    """The column `data`: the value as a struct. A value that is not of this schema is a null, or has nulls; it never
    fails the query. Of values that name their schema also `schema_id`: the id, null where there is none.

    Raises PipelineError where one Avro schema is given for values that name several, or for such a stream.
    """
    value = F.col("value")
    if not isinstance(schema, Avro):
        return messages.withColumn("data", F.from_json(value.cast("string"), schema))
    if schema.framing == "confluent" and isinstance(schema.schema, str):
        schema = replace(schema, schema={_the_only_id(messages): schema.schema})
    if isinstance(schema.schema, str):
        return messages.withColumn("data", _from_avro(value, schema.schema, schema.reader))
    return messages.withColumn("schema_id", _id_of(value)).withColumn("data", _by_id(value, schema, schema.schema))


def _by_id(value: Column, schema: Avro, texts: Mapping[int, str]) -> Column:
    content = F.substring(value, _CONFLUENT_PREFIX_BYTES + 1, 2**31 - 1)
    reader = schema.reader or texts[max(texts)]
    found = F.col("schema_id")
    data: Column | None = None
    for schema_id, text in texts.items():
        read = _from_avro(content, text, reader)
        data = F.when(found == schema_id, read) if data is None else data.when(found == schema_id, read)
    assert data is not None
    if schema.unknown == "fail":
        said = F.concat(F.lit("a value has the unknown schema id "), found.cast("string"))
        data = data.when(found.isNotNull(), F.raise_error(said))
    return data


def _id_of(value: Column) -> Column:
    """The schema id in front of a value; null where there is none."""
    number = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("int")
    framed = (F.length(value) >= _CONFLUENT_PREFIX_BYTES) & (F.substring(value, 1, 1) == F.lit(b"\0"))
    return F.when(framed, number)


def _the_only_id(messages: DataFrame) -> int:
    """Of all values that are there now: they are read for it."""
    if messages.isStreaming:
        raise PipelineError("a stream needs the ids of its Avro schemas: Avro({id: text})")
    found = messages.select(_id_of(F.col("value")).alias("id")).where("id IS NOT NULL").distinct().limit(2).collect()
    ids = sorted(int(row["id"]) for row in found)
    if len(ids) > 1:
        named = ", ".join(str(each) for each in ids)
        raise PipelineError(f"the values have several Avro schemas (ids {named}, …): Avro({{id: text, …}}) reads each")
    return ids[0] if ids else _NO_ID


def _from_avro(value: Column, written: str, reader: str | None) -> Column:
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE"}
    if reader is not None and reader != written:
        options["avroSchema"] = reader
    return from_avro(value, written, options)
