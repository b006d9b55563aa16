"""`format("halfmoon")`: a topic as a Python data source of Spark's (4.0 and later), for simple reads.

    register(spark)
    orders = spark.read.format("halfmoon").option("properties", "amount INT, region STRING").load("orders")
    orders.where("amount > 100 AND region = 'HZ'")

A convenience over views.py: options `tag` and `sql` have the broker filter. From Spark 4.1 on, which offers conditions
to such sources, `where` does it as well: what can be said in SQL92 without losing a row becomes a view's filter, and
Spark looks at every condition again. `properties` names headers as columns with types of their own.

Unlike everything else in this package it runs in executors: they need `halfmoon[spark]`. `read_topic` is quicker, and
needs nothing there.

| option | |
|---|---|
| `path`, `topic` | the topic |
| `bootstrap` | HOST:PORT, if not that of `register` |
| `command_config` | a client.properties on the driver's machine, if not that of `register` |
| `properties` | headers as columns: names and types (STRING, INT, BIGINT, DOUBLE, BOOLEAN) as in a schema |
| `tag`, `sql` | filters (docs/filters.md) |
| `push_down` | `true`: what `where` says may make a view, too; without it a view is used if there is one |
| `start`, `end` | times, ISO 8601 (without a zone: UTC), of the records' timestamps; `end` is exclusive |
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError as missing:
    raise ImportError('format("halfmoon") needs Spark 4.0 or later; read_topic does the same with any') from missing
from pyspark.sql.types import BooleanType, DataType, DoubleType, IntegerType, LongType, StringType, StructType

from halfmoon.pipeline.admin import REQUEST_TIMEOUT_S, Admin
from halfmoon.pipeline.brokers import Bootstrap, Brokers, brokers
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.times import milliseconds
from halfmoon.pipeline.views import Filter, chosen, filled_view, wanted_view

COLUMNS = (
    "key BINARY, value BINARY, tags STRING, keys STRING, properties MAP<STRING, STRING>, topic STRING, partition INT,"
    " offset BIGINT, timestamp TIMESTAMP"
)
COLUMN_COUNT = 9
OFFERS, OFFERS_SETTING = "pushFilters", "spark.sql.python.filterPushdown.enabled"
"""The method and the setting of Spark's by which conditions are pushed down to a source in Python."""
BATCH_RECORDS = 10_000
POLL_S = 0.2
MOST_IN = 100
"""Texts in a list that is pushed down: an expression may not be of any length."""

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_FRACTION = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?")
"""Numbers as SQL92 reads them too, and nothing else that Python would take for one."""
_KEYWORDS = frozenset(
    "AND OR NOT IN IS NULL BETWEEN TRUE FALSE LIKE ESCAPE CONTAINS STARTSWITH ENDSWITH".split()  # noqa: SIM905
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def register(spark: SparkSession, bootstrap: Bootstrap = None) -> None:
    """Make `format("halfmoon")` known to a session. Without the option `bootstrap` it reads from this broker, or from
    that which HALFMOON_BOOTSTRAP_SERVER names here and now: executors have an environment of their own. So it is with
    how to log in there.

    Where Spark offers conditions (4.1) but has that switched off, as it has by default, it is switched on for this
    session, unless somebody has set spark.sql.python.filterPushdown.enabled to false.
    """
    offers = OFFERS in dir(DataSourceReader) and spark.conf.getAll.get(OFFERS_SETTING, "true").lower() == "true"
    if offers:
        spark.conf.set(OFFERS_SETTING, "true")

    class Registered(HalfmoonDataSource):
        default_brokers = brokers(bootstrap)
        reader_class = _PushDownReader if offers else _Reader

    spark.dataSource.register(Registered)


class HalfmoonDataSource(DataSource):
    """See above."""

    default_brokers: Brokers | None = None
    reader_class: type[_Reader]

    @classmethod
    def name(cls) -> str:
        return "halfmoon"

    def schema(self) -> str:
        properties = self.options.get("properties")
        return COLUMNS + (f", {properties}" if properties else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        return self.reader_class(self.options, schema, self._brokers())

    def _brokers(self) -> Brokers:
        servers, file, there = self.options.get("bootstrap"), self.options.get("command_config"), self.default_brokers
        if there is None or file:
            return Brokers(servers or (there.servers if there else None), command_config=file)
        return Brokers(servers, security=there.security) if servers else there


@dataclass
class _Part(InputPartition):
    """Offsets of one partition: from, up to (exclusive)."""

    topic: str
    partition: int
    begin: int
    end: int


class _Reader(DataSourceReader):
    def __init__(self, options: Any, schema: StructType, there: Brokers) -> None:
        self._topic = options.get("topic") or options.get("path")
        if not self._topic:
            raise PipelineError('format("halfmoon") needs a topic: load("orders")')
        self._brokers = there
        self._schema = schema
        self._own = schema.fields[COLUMN_COUNT:]
        self._asked = chosen(options.get("tag"), options.get("sql"))
        self._conditions: list[str] = []
        self._makes_views = str(options.get("push_down", "")).lower() == "true"
        self._bounds = [_moment(options, "start"), _moment(options, "end")]

    def partitions(self) -> Sequence[_Part]:
        admin = Admin(self._brokers)
        topic, ends = self._source(admin)
        begins = admin.begins(topic)
        start, end = self._bounds
        if start is not None:
            begins = admin.at_time(topic, start)
        if end is not None:
            ends = {p: min(at, ends[p]) for p, at in admin.at_time(topic, end).items() if p in ends}
        return [_Part(topic, p, begins[p], ends[p]) for p in sorted(ends) if begins[p] < ends[p]]

    def _source(self, admin: Admin) -> tuple[str, dict[int, int]]:
        if self._conditions:
            asked = [f"({self._asked.expression})"] if self._asked is not None else []
            wanted = Filter("sql", " AND ".join((*asked, *self._conditions)))
            there = None if self._makes_views else wanted_view(admin, self._topic, wanted)
            if self._makes_views or there is not None:
                return filled_view(admin, self._topic, wanted, there)
        if self._asked is not None:
            return filled_view(admin, self._topic, self._asked)
        return self._topic, admin.ends(self._topic)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        import pyarrow
        from pyspark.sql.pandas.types import to_arrow_schema

        if partition is None:  # Spark reads something even where there is nothing.
            return
        assert isinstance(partition, _Part)
        schema = to_arrow_schema(self._schema)
        readers = [(field.name, _reading(field.dataType)) for field in self._own]
        for messages in _messages(self._brokers, partition):
            columns = zip(*(_row(message, readers) for message in messages), strict=True)
            arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


class _PushDownReader(_Reader):
    """Apart, because Spark refuses a reader that takes conditions where it is not to offer any."""

    def pushFilters(self, filters: Sequence[Any]) -> Iterable[Any]:  # noqa: N802
        """Spark 4.1's offer of conditions that must all hold. Spark is to look at each of them again: a view may hold
        more, never less."""
        types = {field.name: field.dataType for field in self._own} | {"tags": StringType(), "keys": StringType()}
        if self._asked is None or self._asked.language == "sql":
            self._conditions = [said for each in filters if (said := condition(each, types)) is not None]
        return filters


def condition(wanted: Any, types: dict[str, DataType]) -> str | None:
    """One of Spark's conditions in SQL92; None for what would lose rows there, or cannot be said.

    An empty header is none to SQL92, so nothing that an empty text could fulfil is pushed down; a header that is no
    number is null to Spark, so `IS NULL` is pushed down for texts alone.
    """
    kind = type(wanted).__name__
    path: tuple[str, ...] = getattr(wanted, "attribute", ())
    name = path[0] if len(path) == 1 else ""
    if name not in types or not _IDENTIFIER.fullmatch(name) or name.upper() in _KEYWORDS:
        return None
    header = name.upper() if name in ("tags", "keys") else name
    is_text = isinstance(types[name], StringType)
    value: Any = getattr(wanted, "value", None)
    if kind == "IsNotNull":
        return f"{header} IS NOT NULL" if not is_text else None
    if kind == "IsNull":
        return f"{header} IS NULL" if is_text else None
    if kind == "In":
        texts = [each for each in value if each is not None]
        if is_text and texts and all(texts) and len(texts) <= MOST_IN:
            return f"{header} IN ({', '.join(_literal(each, types[name]) for each in texts)})"
        return None
    signs = {"EqualTo": "="}
    if not is_text:
        signs |= {"GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<="}
    else:
        signs |= {"StringStartsWith": "STARTSWITH", "StringEndsWith": "ENDSWITH", "StringContains": "CONTAINS"}
    if kind not in signs or value is None or value == "" or isinstance(types[name], BooleanType):
        return None
    if isinstance(types[name], DoubleType) and not 1e-6 < abs(value) < 1e15:
        return None  # Zero must be a whole number there, which no fraction is compared with.
    return f"{header} {signs[kind]} {_literal(value, types[name])}"


def _literal(value: Any, kind: DataType) -> str:
    if isinstance(kind, StringType):
        return "'" + str(value).replace("'", "''") + "'"
    if isinstance(kind, DoubleType):
        # As a fraction: compared with a whole number, SQL92 takes no header that has one.
        text = f"{float(value):.17f}".rstrip("0")
        return f"{text}0" if text.endswith(".") else text
    return f"{value}L" if isinstance(kind, LongType) else str(value)


def _moment(options: Any, name: str) -> int | None:
    text = options.get(name)
    try:
        return None if text is None else milliseconds(datetime.fromisoformat(text))
    except ValueError:
        raise PipelineError(f"option {name} is a time such as 2026-01-31T14:00, not {text!r}") from None


def _messages(there: Brokers, part: _Part) -> Iterator[list[Any]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        there.confluent(
            group_id="halfmoon-datasource",
            enable_auto_commit=False,
            enable_partition_eof=True,
            isolation_level="read_committed",
            auto_offset_reset="error",
        )
    )
    try:
        consumer.assign([TopicPartition(part.topic, part.partition, part.begin)])
        at, silent_since = part.begin, time.monotonic()
        while at < part.end:
            messages: list[Any] = []
            got = consumer.consume(BATCH_RECORDS, POLL_S)  # It waits for so long if there are fewer.
            if got:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > REQUEST_TIMEOUT_S:
                raise PipelineError(f"{part.topic}-{part.partition} could not be read beyond offset {at}")
            for message in got:
                error, offset = message.error(), message.offset()
                assert offset is not None
                if error is not None and error.name() != "_PARTITION_EOF":
                    raise PipelineError(f"{part.topic}-{part.partition} could not be read: {error.str()}")
                at = offset if error is not None else offset + 1
                if error is None and offset < part.end:
                    messages.append(message)
            if messages:
                yield messages
    finally:
        consumer.close()


def _row(message: Any, readers: list[tuple[str, Callable[[str | None], Any]]]) -> tuple[Any, ...]:
    found = message.headers() or ()
    headers = {name: None if value is None else value.decode("utf-8", "replace") for name, value in found}
    readable = {name: _text(value) for name, value in found}
    own = (read(readable.get(name)) for name, read in readers)
    return (
        message.key(), message.value(), readable.get("TAGS"), readable.get("KEYS"), list(headers.items()),
        message.topic(), message.partition(), message.offset(), message.timestamp()[1] * 1000, *own,
    )  # fmt: skip


def _text(content: bytes | None) -> str | None:
    """What is no UTF-8 is none to SQL92, and so it is here."""
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _reading(kind: DataType) -> Callable[[str | None], Any]:
    """A header's text as a value of that type; null where it is none."""
    if isinstance(kind, StringType):
        return lambda text: text
    if isinstance(kind, IntegerType | LongType):
        bits = 31 if isinstance(kind, IntegerType) else 63
        return lambda text: _whole(text, 1 << bits)
    if isinstance(kind, DoubleType):
        return _fraction
    if isinstance(kind, BooleanType):
        return lambda text: None if text is None else {"true": True, "false": False}.get(text.lower())
    raise PipelineError(f"a property is STRING, INT, BIGINT, DOUBLE or BOOLEAN, not {kind.simpleString()}")


def _whole(text: str | None, limit: int) -> int | None:
    if text is None or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -limit <= number < limit else None


def _fraction(text: str | None) -> float | None:
    return float(text) if text is not None and _FRACTION.fullmatch(text) else None
