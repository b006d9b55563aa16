"""A JVM with Kafka's Java client (tests/clients/jvm.py), and what tests need to use it from Python.

A KafkaConsumer or KafkaProducer is an object of Java's; its methods are called with Java's names and types (`Long`,
`Duration`, `List` have helpers here). Each thread of Python has a thread of Java's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.clients.jvm import Jvm

VERSION = "4.3.1"
CLIENTS = "org.apache.kafka.clients"
COMMON = "org.apache.kafka.common"
_IN_SPARK = ["org.slf4j:*", "org.lz4:*", "at.yawk.lz4:*", "com.github.luben:*", "org.xerial.snappy:*"]
_TEXT = f"{COMMON}.serialization.StringSerializer"
_FROM_TEXT = f"{COMMON}.serialization.StringDeserializer"


class KafkaJvm(Jvm):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, f"org.apache.kafka:kafka-clients:{VERSION}", _IN_SPARK, ["-XX:TieredStopAtLevel=1"])

    # Java's values.

    def value(self, name: str, constant: str) -> Any:
        """A constant of an enum."""
        return self.named(name).valueOf(constant)

    def ms(self, milliseconds: int) -> Any:
        return self.jvm.java.time.Duration.ofMillis(milliseconds)

    def longs(self, *values: int) -> Any:
        """A list of Longs. A small number of Python's is an Integer, and in a list Java finds that out too late."""
        stream = self.jvm.java.util.stream.LongStream.of(self.array("long", values))
        return stream.boxed().toList()

    def array(self, kind: str, values: Sequence[Any]) -> Any:
        """`kind`: "long", "byte", or a class."""
        made = self.gateway.new_array(getattr(self.jvm, kind) if "." not in kind else self.named(kind), len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def map(self, values: Mapping[Any, Any]) -> Any:
        made = self.jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def settings(self, values: Mapping[str, object]) -> Any:
        """Options of a client, all as texts, as in a file."""
        made = self.jvm.java.util.Properties()
        for key, value in values.items():
            made.setProperty(key, str(value).lower() if isinstance(value, bool) else str(value))
        return made

    def partition(self, topic: str, number: int) -> Any:
        return self.named(f"{COMMON}.TopicPartition")(topic, number)

    # Clients. Keys and values are texts.

    def producer(self, servers: str, **options: object) -> Any:
        """Options with underscores for dots."""
        given = {"bootstrap.servers": servers, "key.serializer": _TEXT, "value.serializer": _TEXT}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        return self.named(f"{CLIENTS}.producer.KafkaProducer")(self.settings(given))

    def consumer(self, servers: str, **options: object) -> Any:
        return self._consumer("KafkaConsumer", servers, {"auto.offset.reset": "earliest", **_dotted(options)})

    def share_consumer(self, servers: str, **options: object) -> Any:
        return self._consumer("KafkaShareConsumer", servers, _dotted(options))

    def admin(self, servers: str, **options: object) -> Any:
        given = {"bootstrap.servers": servers, **_dotted(options)}
        return self.named(f"{CLIENTS}.admin.Admin").create(self.settings(given))

    def _consumer(self, kind: str, servers: str, options: Mapping[str, object]) -> Any:
        given = {"bootstrap.servers": servers, "key.deserializer": _FROM_TEXT, "value.deserializer": _FROM_TEXT}
        return self.named(f"{CLIENTS}.consumer.{kind}")(self.settings({**given, **options}))

    def record(self, topic: str, value: str, partition: int | None = None, key: str | None = None) -> Any:
        return self.named(f"{CLIENTS}.producer.ProducerRecord")(topic, partition, key, value)

    def poll(self, consumer: Any, wait_ms: int = 200) -> list[Any]:
        """ConsumerRecord objects."""
        return each(consumer.poll(self.ms(wait_ms)))


def each(iterable: Any) -> list[Any]:
    """What a Java Iterable has, one after the other: those that are no Collection cannot be looped over."""
    iterator, found = iterable.iterator(), []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


def _dotted(options: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in options.items()}


def causes(error: Py4JJavaError) -> list[str]:
    """The simple names of an exception's class and of those of its causes."""
    found, names = error.java_exception, []
    while found is not None:
        names.append(str(found.getClass().getSimpleName()))
        found = found.getCause()
    return names


def said(error: Py4JJavaError) -> str:
    """What the exception and its causes say, for whoever reads a failed test."""
    found, texts = error.java_exception, []
    while found is not None:
        texts.append(str(found.toString()))
        found = found.getCause()
    return " <- ".join(texts)
