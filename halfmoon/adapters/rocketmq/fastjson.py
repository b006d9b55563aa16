"""Bodies as fastjson writes them, where that is no JSON: maps whose keys are objects.

{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{…},…}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

encode = msgspec.json.encode

Queue = Mapping[str, object]


def message_queue(broker_name: str, topic: str, queue_id: int) -> Queue:
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def by_queue(rows: Iterable[tuple[Queue, object]]) -> bytes:
    """A map from queues to values."""
    return b"{" + b",".join([encode(queue) + b":" + encode(value) for queue, value in rows]) + b"}"


def body(fields: Mapping[str, bytes]) -> bytes:
    """An object of values that are encoded already."""
    return b"{" + b",".join([encode(name) + b":" + value for name, value in fields.items()]) + b"}"
