"""Messages that the broker sends again and again, on a schedule (cron): what is sent to make and to change one.

    queue = producer.queues("reports")[0]
    nightly = recurring(Message("reports", b"run"), "nightly", "30 2 * * *", zone="Europe/Berlin")
    producer.send(nightly, queue=queue)
    producer.send(schedule_change("reports", "nightly", "paused"), queue=queue)

A schedule is in the queue to which it was sent, so the same schedule, and a change of it, go there, always. It is a
feature of Halfmoon; RocketMQ's own brokers store these messages as all others. docs/schedules.md says what the broker
does.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from halfmoon.client.messages import Message

State = Literal["active", "paused", "cancelled"]

FIXED = {"SCHEDULE_PARTITION": "fixed"}
"""The queue is chosen: not any that comes next."""


def recurring(
    message: Message, name: str, cron: str, *, zone: str = "UTC",
    missed: Literal["once", "skip"] | None = None,
) -> Message:  # fmt: skip
    """The message to send to a queue, once: from then on the broker sends it whenever `cron` is due in the time zone.

    A schedule of this name in the queue is replaced; the same one again changes nothing. `missed`: what becomes of
    times that were missed while the broker was away; None: as the broker's settings say. What the broker refuses,
    sending raises.
    """
    said = {"SCHEDULE_NAME": name, "SCHEDULE_CRON": cron, "SCHEDULE_ZONE": zone, **FIXED}
    if missed is not None:
        said["SCHEDULE_MISSED"] = missed
    return replace(message, properties={**message.properties, **said})


def schedule_change(topic: str, name: str, to: State) -> Message:
    """The message to send to the same queue, so that its schedule of this name pauses, goes on, or ends."""
    return Message(topic, name.encode(), properties={"SCHEDULE_NAME": name, "SCHEDULE_STATE": to, **FIXED})
