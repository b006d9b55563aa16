"""What a Kafka has not, on the demo's own topics: a filtered view, delayed messages, and half messages.

The view is defined before Spark has started, so the broker fills it meanwhile. Against a broker that is no Halfmoon
both are left out, with a line that says so.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from rich.table import Table

from halfmoon.demo.load import GROUP, REQUEST_TIMEOUT_S, TopicView, ensure_topic
from halfmoon.demo.source import FLIGHTS_TOPIC
from halfmoon.pipeline.admin import Admin, RefusedConfigError, TopicExistsError
from halfmoon.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from halfmoon.demo.stages import Steps

VIEW = "flights.delayed_jfk"
VIEW_SQL = "origin = 'JFK' AND dep_delay > 60"
"""Over the headers that a flight's record has; `flights_late_at_jfk` asks the same of Spark's table."""
BOARDING_TOPIC = "flights.boarding"
GATES_TOPIC = "flights.gates"
FIRST_CALL_MS, CALLS_APART_MS = 600, 200
CALLS = 5
FILL_TIMEOUT_S = 60


def define_view(steps: Steps) -> bool:
    """Have the broker fill the view from now on; False where it does not know of views. Raises PipelineError."""
    settings = {"halfmoon.view.source": FLIGHTS_TOPIC, "halfmoon.view.sql": VIEW_SQL, "retention.ms": "-1"}
    try:
        Admin(steps.producer).create_topic(VIEW, -1, settings)
    except RefusedConfigError:
        steps.say("view", f"left out: the broker at {steps.producer} has no views, so it is no Halfmoon")
        return False
    except TopicExistsError:
        pass
    return True


def flights_late_at_jfk(flights: DataFrame) -> DataFrame:
    """What the view should hold, from the table of all flights."""
    return flights.where("origin = 'JFK' AND dep_delay > 60")


def read_view(steps: Steps, spark: SparkSession, flights: DataFrame, partitions: int) -> None:
    """Spark reads the view, and it must be what Spark's own filter finds. Raises PipelineError."""
    from pyspark.sql import functions as F  # noqa: N812

    from halfmoon.pipeline.topics import read_topic

    expected = flights_late_at_jfk(flights).count()
    with steps.timed("view"), TopicView(steps.reader) as view:
        deadline = time.monotonic() + FILL_TIMEOUT_S
        while sum(view.ends(VIEW, partitions).values()) < expected:
            steps.check_alive()
            if time.monotonic() > deadline:
                raise PipelineError(f"{VIEW} has not {expected:,} records after {FILL_TIMEOUT_S} s")
            time.sleep(0.05)
        late = read_topic(spark, VIEW, bootstrap=steps.reader).withColumn(
            "minutes", F.col("properties")["dep_delay"].cast("int")
        )
        found = late.agg(F.count("*"), F.mean("minutes"), F.max("minutes")).collect()[0]
    if found[0] != expected:
        raise PipelineError(f"{VIEW} holds {found[0]:,} records, and {expected:,} flights are meant")
    mean = "" if not expected else f", on average {found[1]:.0f} and at most {found[2]} minutes late"
    steps.say("view", f"{VIEW}: Spark reads {expected:,} flights of {VIEW_SQL}{mean}")


def boarding_calls(steps: Steps) -> None:
    """For some flights a call that is due in a moment; it is shown when it comes. Raises PipelineError."""
    with steps.timed("delays"):
        partitions = ensure_topic(steps.producer, BOARDING_TOPIC, 1)
        with TopicView(steps.reader) as view:
            begin = view.ends(BOARDING_TOPIC, partitions)[0]
            calls = _calls(view)
        producer = Producer(steps.producer.confluent(linger_ms=0))
        producer.list_topics(BOARDING_TOPIC, timeout=REQUEST_TIMEOUT_S)  # connecting is no part of being late
        due_ms: dict[str, float] = {}
        for number, call in reversed(list(enumerate(calls))):  # the last one is sent first
            wait_ms = FIRST_CALL_MS + number * CALLS_APART_MS
            due_ms[call] = time.time() * 1000 + wait_ms
            producer.produce(BOARDING_TOPIC, call.encode(), headers={"TIMER_DELAY_MS": str(wait_ms)})
        _flush(producer, BOARDING_TOPIC)
        came = _receive(steps, BOARDING_TOPIC, begin, len(calls))
    table = Table(title="Boarding calls, delivered by the broker", title_justify="left", box=None, pad_edge=False)
    for name in ("call", "asked to wait", "late by"):
        table.add_column(name, justify="left" if name == "call" else "right")
    for number, (call, at_ms) in enumerate(came):
        late_ms = at_ms - due_ms[call]
        if late_ms < 0:
            raise PipelineError(f"a boarding call came {-late_ms:.0f} ms too early: {call}")
        table.add_row(call, f"{FIRST_CALL_MS + number * CALLS_APART_MS} ms", f"{late_ms:.1f} ms")
    steps.console.print(table, highlight=False)
    if [call for call, _ in came] != calls:
        raise PipelineError("the boarding calls did not come in the order in which they were due")
    steps.say("delays", f"{len(calls)} messages sent in reverse, and delivered when each was due")


def gate_changes(steps: Steps) -> None:
    """Two half messages: one is committed and delivered, the other rolled back and never seen. Raises PipelineError."""
    from halfmoon.kafka import NotStoredError, TransactionalOutbox

    with steps.timed("outbox"):
        partitions = ensure_topic(steps.producer, GATES_TOPIC, 1)
        with TopicView(steps.reader) as view:
            begin = view.ends(GATES_TOPIC, partitions)[0]
        producer = Producer(steps.producer.confluent(linger_ms=0))
        outbox = TransactionalOutbox(GROUP, producer)
        kept, _ = outbox.prepare(GATES_TOPIC, b"UA 1545 now leaves from gate 7")
        dropped, _ = outbox.prepare(GATES_TOPIC, b"UA 1545 now leaves from gate 99")
        try:
            outbox.flush(REQUEST_TIMEOUT_S)
            with TopicView(steps.reader) as view:
                seen_early = view.ends(GATES_TOPIC, partitions)[0] - begin
            outbox.rollback(dropped)
            outbox.commit(kept)
            outbox.close(REQUEST_TIMEOUT_S)
        except (NotStoredError, TimeoutError) as error:
            raise PipelineError(str(error)) from error
        came = [text for text, _ in _receive(steps, GATES_TOPIC, begin, 1)]
        with TopicView(steps.reader) as view:
            seen = view.ends(GATES_TOPIC, partitions)[0] - begin
    if seen_early or seen != 1 or came != ["UA 1545 now leaves from gate 7"]:
        raise PipelineError(f"of two half messages {seen_early} were seen before their end, and then: {came}")
    table = Table(title="Half messages", title_justify="left", box=None, pad_edge=False)
    table.add_column("message")
    table.add_column("ended by")
    table.add_column("seen by consumers")
    table.add_row("UA 1545 now leaves from gate 7", "commit", "yes, from then on")
    table.add_row("UA 1545 now leaves from gate 99", "rollback", "never")
    steps.console.print(table, highlight=False)
    steps.say("outbox", "2 half messages: one committed and delivered, one rolled back and never seen")


def _flush(producer: Producer, topic: str) -> None:
    if producer.flush(REQUEST_TIMEOUT_S):
        raise PipelineError(f"topic {topic} did not take all messages")


def _calls(view: TopicView) -> list[str]:
    """One for each of the first flights in the first partition of the view's source."""
    found = []
    _, end = view.bounds(FLIGHTS_TOPIC, 0)
    for offset in range(min(CALLS, end)):
        flight = json.loads(view.record(FLIGHTS_TOPIC, 0, offset).value)
        found.append(
            f"{flight['carrier']} {flight['flight']} from {flight['origin']} to {flight['dest']}: now boarding"
        )
    return found


def _receive(steps: Steps, topic: str, offset: int, count: int) -> list[tuple[str, float]]:
    """The next messages of a topic of one partition, and when each came (Unix ms)."""
    consumer = Consumer(steps.reader.confluent(group_id=GROUP, enable_auto_commit=False))
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[tuple[str, float]] = []
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    try:
        while len(found) < count:
            steps.check_alive()
            message = consumer.poll(0.2)
            value = message.value() if message is not None and message.error() is None else None
            if value is not None:
                found.append((value.decode(), time.time() * 1000))
            if time.monotonic() > deadline:
                raise PipelineError(f"of {count} messages of {topic} {len(found)} came within {REQUEST_TIMEOUT_S} s")
    finally:
        consumer.close()
    return found
