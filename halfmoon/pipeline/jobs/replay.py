"""Archive → topic: records sent again, with their key, value, headers and timestamp, in their order, each once.

Spark's sink cannot set a timestamp, so the driver sends, by confluent-kafka; Spark reads the archive and sorts it.

**As they were**, except: the broker takes off headers that begin with `halfmoon.`, which are its own, and the timestamp
0 becomes 1 (sending.py). Headers that would act in the target (`DELAY`, …) and a target that stamps records itself are
refused.

**Order.** Per partition that of the archive. Across partitions by time, where a record counts as no earlier than those
before it in its partition. The partition is the one it was in (modulo their number, where the target has fewer).

**Each once, killed at any moment.** A replay has a name, and every record that it sends says in a header REPLAY_OF
which one of which replay it is: `NAME.NUMBER/TOPIC/PARTITION/OFFSET`, where the number is by chance. The producer is
idempotent and gapless, so what has arrived of a partition is always a beginning of it. A run that goes on reads the
target from where it ended when the replay began, and leaves out what it finds there. That place, and up to where the
archive reached then, are kept beside the archive, in `_replays/NAME.json`.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.admin import REQUEST_TIMEOUT_S, Admin
from halfmoon.pipeline.brokers import Bootstrap
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.files import Files, files_at
from halfmoon.pipeline.jobs.archive import read_archive
from halfmoon.pipeline.sending import Sender
from halfmoon.pipeline.times import milliseconds, utc

MARK = "REPLAY_OF"
FORMAT = 1
_POLL_S = 0.2
_SHORTEST_WAIT_S = 0.001
ACTING = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY", "TRAN_MSG")
"""Headers that make a Halfmoon do something (docs/delays.md, docs/transactions.md)."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(slots=True, frozen=True)
class Replayed:
    """What one run did."""

    name: str
    sent: int
    found: int
    """Records that an earlier run had sent."""


@dataclass(slots=True)
class _State:
    """`_replays/NAME.json`. Partitions are text, as JSON has them."""

    topic: str
    target: str
    cluster: str
    start_ms: int | None
    end_ms: int | None
    upto: dict[str, int]
    """The last offset of each partition that the archive held when the replay began."""
    begin: dict[str, int]
    """Where the target's partitions ended then."""
    number: str
    """In every mark: another replay of the same name is another one."""
    done: bool = False
    format: int = field(default=FORMAT)


def replay(
    spark: SparkSession,
    path: str,
    topic: str,
    target: str,
    *,
    bootstrap: Bootstrap = None,
    start: datetime | None = None,
    end: datetime | None = None,
    rate: float | None = None,
    name: str | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Replayed:
    """Send what the archive at `path` holds of `topic`, of timestamps from `start` up to `end`, to the topic `target`,
    at most `rate` records a second.

    May be killed at any moment and run again: then it goes on. What it sends is settled when it first begins, `start`
    and `end` included; what is archived later is for another replay. Without a `name` it is called after its arguments.
    `on_progress(done, total)` is called every thousand records; what it raises ends the run.

    Raises PipelineError: no such archive or topic, a target that would change the records, a replay that is finished
    (another `name` sends everything again) or that has this name and other topics, a record that was not delivered.
    """
    admin, files = Admin(bootstrap), files_at(spark, path)
    path = path.rstrip("/")
    bounds = (None if start is None else milliseconds(start), None if end is None else milliseconds(end))
    name = name or _default_name(topic, target, bounds)
    if not _NAME.fullmatch(name):
        raise PipelineError(f"a replay's name has letters, digits, '.', '_' and '-', up to 200: not {name!r}")
    partitions = admin.partitions(target)
    known = _known_state(files, f"{path}/_replays/{name}.json", admin, topic, target)
    if known is not None:
        bounds = known.start_ms, known.end_ms
    begin, until = (None if bound is None else utc(bound) for bound in bounds)
    records = read_archive(spark, path, topic, start=begin, end=until)
    _check_target(admin, target, records)
    state = known or _new_state(files, f"{path}/_replays/{name}.json", admin, records, topic, target, bounds)
    mark = f"{name}.{state.number}/{topic}/"
    there = _sent_before(admin, target, mark.encode(), {int(p): at for p, at in state.begin.items()})
    wanted = _wanted(records, {int(p): at for p, at in state.upto.items()}, there)
    total = wanted.count()
    sent = _send(admin, _ordered(wanted), mark, target, partitions, rate, lambda done: on_progress(done, total))
    state.done = True
    files.write(f"{path}/_replays/{name}.json", json.dumps(asdict(state)))
    return Replayed(name, sent, sum(there.counts.values()))


def _default_name(topic: str, target: str, bounds: tuple[int | None, int | None]) -> str:
    mark = hashlib.sha256(json.dumps([topic, target, *bounds]).encode()).hexdigest()[:8]
    return f"{topic}-to-{target}-{mark}"[-200:]


def _known_state(files: Files, path: str, admin: Admin, topic: str, target: str) -> _State | None:
    """That of the replay that goes on; None for one that begins now. Raises PipelineError."""
    text = files.read(path)
    if text is None:
        return None
    try:
        state = _State(**json.loads(text))
        if state.format != FORMAT:
            raise ValueError(f"format {state.format}")
    except (ValueError, TypeError) as wrong:
        raise PipelineError(f"{path} cannot be understood: {wrong}") from None
    if (state.topic, state.target, state.cluster) != (topic, target, admin.cluster_id()):
        raise PipelineError(f"{path} is of another replay, of {state.topic} to {state.target}: give another name")
    if state.done:
        raise PipelineError(f"{path} says that this replay is finished: give another name to send everything again")
    return state


def _new_state(
    files: Files, path: str, admin: Admin, records: DataFrame, topic: str, target: str,
    bounds: tuple[int | None, int | None],
) -> _State:  # fmt: skip
    rows = records.groupBy("partition").agg(F.max("offset").alias("last")).collect()
    upto = {str(row["partition"]): row["last"] for row in rows}
    begin = {str(partition): end for partition, end in admin.ends(target).items()}
    state = _State(topic, target, admin.cluster_id(), *bounds, upto, begin, secrets.token_hex(4))
    files.write(path, json.dumps(asdict(state)))
    return state


def _check_target(admin: Admin, target: str, records: DataFrame) -> None:
    """Raises PipelineError where what arrives would not be what was archived."""
    settings = admin.configs([target]).get(target, {})
    if settings.get("message.timestamp.type") == "LogAppendTime":
        raise PipelineError(f"topic {target} stamps records itself (message.timestamp.type=LogAppendTime)")
    if settings.get("halfmoon.headers.enable", "false") != "true":
        return
    acting = F.exists("headers", lambda header: header["key"].isin(*ACTING))
    found = records.where(acting).limit(1).select("partition", "offset").collect()
    if found:
        raise PipelineError(
            f"the record at offset {found[0]['offset']} of partition {found[0]['partition']} has a header that acts in"
            f" topic {target} ({', '.join(ACTING)}): set halfmoon.headers.enable=false there"
        )


@dataclass(slots=True)
class _There:
    """What the target has of this replay, by partition of the archive: the last offset, and how many."""

    last: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)


def _sent_before(admin: Admin, target: str, mark: bytes, begin: dict[int, int]) -> _There:
    """Look through what the target got since the replay began."""
    there = _There()
    ends = {partition: end for partition, end in admin.ends(target).items() if end > begin.get(partition, 0)}
    if not ends:
        return there
    consumer = Consumer(
        admin.brokers.confluent(
            group_id="halfmoon-replay",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
        )
    )
    try:
        consumer.assign([TopicPartition(target, partition, begin.get(partition, 0)) for partition in ends])
        left, silent_since = set(ends), time.monotonic()
        while left:
            messages = consumer.consume(10_000, _POLL_S)  # It waits for so long if there are fewer.
            if messages:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > REQUEST_TIMEOUT_S:
                raise PipelineError(f"topic {target} could not be read to see what has arrived")
            for message in messages:
                error = message.error()
                if error is not None and error.name() != "_PARTITION_EOF":
                    raise PipelineError(f"topic {target} could not be read to see what has arrived: {error.str()}")
                if error is not None or _ends(message, ends):
                    left.discard(message.partition())
                if error is None:
                    _note(there, mark, message)
    finally:
        consumer.close()
    return there


def _ends(message: Any, ends: dict[int, int]) -> bool:
    return bool(message.offset() >= ends[message.partition()] - 1)


def _note(there: _There, mark: bytes, message: Any) -> None:
    value = dict(message.headers() or ()).get(MARK)  # The last one: earlier ones are of the record's life before.
    if value is not None and value.startswith(mark):
        partition, offset = (int(part) for part in value[len(mark) :].split(b"/"))
        there.last[partition] = max(there.last.get(partition, -1), offset)
        there.counts[partition] = there.counts.get(partition, 0) + 1


def _wanted(records: DataFrame, upto: dict[int, int], there: _There) -> DataFrame:
    """What is still to be sent."""
    within = F.lit(False)
    for partition, last in upto.items():
        after = there.last.get(partition, -1)
        within = within | ((F.col("partition") == partition) & F.col("offset").between(after + 1, last))
    return records.where(within)


def _ordered(records: DataFrame) -> DataFrame:
    """In the order in which they are sent."""
    before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    moment = F.max("timestamp").over(before)
    columns = ("key", "value", "headers", "partition", "offset", F.unix_millis("timestamp").alias("at_ms"))
    return records.withColumn("moment", moment).orderBy("moment", "partition", "offset").select(*columns)


def _send(
    admin: Admin, wanted: DataFrame, mark: str, target: str, partitions: int, rate: float | None,
    on_sent: Callable[[int], None],
) -> int:  # fmt: skip
    due = 0.0
    with Sender(admin.brokers, target, lambda: on_sent(sender.sent)) as sender:
        for row in wanted.toLocalIterator(prefetchPartitions=True):
            place = f"{mark}{row['partition']}/{row['offset']}".encode()
            headers = [*((each["key"], _bytes(each["value"])) for each in row["headers"]), (MARK, place)]
            key, value = _bytes(row["key"]), _bytes(row["value"])
            sender.send(value, key, row["partition"] % partitions, row["at_ms"], headers)
            if rate is not None:
                # What a pause has cost is not made up for: a rate is a limit.
                due = max(due, time.monotonic()) + 1 / rate
                while (left := due - time.monotonic()) > _SHORTEST_WAIT_S:
                    sender.wait(min(left, _POLL_S))
    return sender.sent


def _bytes(content: Any) -> bytes | None:
    return None if content is None else bytes(content)
