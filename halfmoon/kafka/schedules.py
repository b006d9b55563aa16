"""Messages that the broker sends again and again, on a schedule (cron), for users of confluent-kafka, kafka-python and
aiokafka:

    schedules = Schedules(producer)
    schedules.create("reports", "nightly", "30 2 * * *", b"run", zone="Europe/Berlin").result(10)
    schedules.pause("reports", "nightly").result(10)

All of it is records and headers (docs/schedules.md), so any client in any language can do the same. `halfmoon schedule`
lists what there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from halfmoon.kafka.clients import Header
from halfmoon.kafka.sending import Helper


class Schedules(Helper):
    """`producer`: a confluent_kafka.Producer, kafka.KafkaProducer or aiokafka.AIOKafkaProducer that sends bytes as they
    are. What its methods return is a `Sent`, or a task with aiokafka, which raises NotStoredError if the broker
    refuses it."""

    def create(
        self,
        topic: str,
        name: str,
        cron: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        *,
        zone: str = "UTC",
        missed: Literal["once", "skip"] | None = None,
        partition: int | None = None,
    ) -> Any:
        """Have the broker send this message whenever `cron` is due in the time zone.

        A schedule of this name is replaced; the same one again changes nothing. Without a key or a partition the name
        is the key: a schedule must be in the same partition whenever it is sent. `missed`: what becomes of times that
        were missed while the broker was away; None: as the broker's settings say.
        """
        more = [*headers, *_named(name, partition), ("SCHEDULE_CRON", cron.encode()), ("SCHEDULE_ZONE", zone.encode())]
        if missed is not None:
            more.append(("SCHEDULE_MISSED", missed.encode()))
        return self._send(f"schedule {name}", topic, value, _key(name, key, partition), more, partition)

    def pause(self, topic: str, name: str, key: bytes | None = None, *, partition: int | None = None) -> Any:
        """Send nothing until it is resumed. `key`, `partition`: as it was created."""
        return self._change(topic, name, key, partition, b"paused")

    def resume(self, topic: str, name: str, key: bytes | None = None, *, partition: int | None = None) -> Any:
        """Go on, from now on. `key`, `partition`: as it was created."""
        return self._change(topic, name, key, partition, b"active")

    def cancel(self, topic: str, name: str, key: bytes | None = None, *, partition: int | None = None) -> Any:
        """End it. `key`, `partition`: as it was created."""
        return self._change(topic, name, key, partition, b"cancelled")

    def _change(self, topic: str, name: str, key: bytes | None, partition: int | None, state: bytes) -> Any:
        headers = [*_named(name, partition), ("SCHEDULE_STATE", state)]
        what = f"the change of schedule {name}"
        return self._send(what, topic, b"", _key(name, key, partition), headers, partition)


def _key(name: str, key: bytes | None, partition: int | None) -> bytes | None:
    return name.encode() if key is None and partition is None else key


def _named(name: str, partition: int | None) -> list[Header]:
    where = [] if partition is None else [("SCHEDULE_PARTITION", str(partition).encode())]
    return [("SCHEDULE_NAME", name.encode()), *where]
