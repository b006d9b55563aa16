"""Messages that the broker sends again and again, on a schedule (cron): what is sent to make and to change one.

    queue = producer.queues("reports")[0]
    nightly = recurring(Message("reports", b"run"), "nightly", "30 2 * * *", queue, zone="Europe/Berlin")
    producer.send(nightly, queue=queue)
    producer.send(schedule_change("nightly", "paused", queue), queue=queue)

A schedule is in the queue to which it was sent, so a change of it goes there, too. It is a feature of Halfmoon;
RocketMQ's own brokers store these messages as all others. docs/schedules.md says what the broker does.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from halfmoon.client.messages import Message
from halfmoon.plugin import Queue

State = Literal["active", "paused", "cancelled"]


def recurring(
    message: Message, name: str, cron: str, queue: Queue, *, zone: str = "UTC",
    missed: Literal["once", "skip"] | None = None,
) -> Message:  # fmt: skip
    """The message to send to `queue`, once: from then on the broker sends it whenever `cron` is due in the time zone.

    A schedule of this name in the queue is replaced; the same one again changes nothing. `missed`: what becomes of
    times that were missed while the broker was away; None: as the broker's settings say. What the broker refuses,
    sending raises.
    """
    said = {"SCHEDULE_NAME": name, "SCHEDULE_CRON": cron, "SCHEDULE_ZONE": zone, **_at(queue)}
    if missed is not None:
        said["SCHEDULE_MISSED"] = missed
    return replace(message, properties={**message.properties, **said})


def schedule_change(name: str, to: State, queue: Queue) -> Message:
    """The message to send to `queue` so that its schedule of this name pauses, goes on, or ends."""
    return Message(queue.topic, name.encode(), properties={"SCHEDULE_NAME": name, "SCHEDULE_STATE": to, **_at(queue)})


def _at(queue: Queue) -> dict[str, str]:
    return {"SCHEDULE_PARTITION": str(queue.queue_id)}
