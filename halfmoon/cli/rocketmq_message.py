"""Records as RocketMQ's messages, and back: what is printed of a message is what a Kafka client has of it.

Headers are properties, `__SHARDINGKEY`, or else KEYS, is the key, the time at which a message was born the timestamp.
What RocketMQ's producers have a call for (a tag, a delay) is a header of RocketMQ's name for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfmoon import client
    from halfmoon.cli.input_records import Message
    from halfmoon.client import ReceivedMessage

OF_THE_BROKER = frozenset(
    (
        "UNIQ_KEY",
        "CLUSTER",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "MSG_REGION",
        "TRACE_ON",
        "__BORNHOST",
        "HALFMOON_OMITTED",
    )
)
"""What a stored message has besides what its producer's program gave it. A copy gets its own."""


@dataclass(frozen=True, slots=True)
class Record:
    """A message with the names of kafka-python's ConsumerRecord (formats.ReadRecord)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp_type: int = 0


def to_record(message: ReceivedMessage) -> Record:
    """What a Kafka client has of the same message; RocketMQ knows no null value."""
    properties = message.properties
    key = properties.get("__SHARDINGKEY") or properties.get("KEYS")
    return Record(
        message.topic,
        message.queue.queue_id,
        message.queue_offset,
        message.born_ms,
        None if key is None else key.encode(),
        message.body,
        [(name, value.encode()) for name, value in properties.items()],
    )


def to_message(topic: str, message: Message) -> client.Message:
    """A record as a message. Of headers with one name, the last one counts. Raises ValueError."""
    from halfmoon.client import Message as Made

    properties: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for name, content in message.headers:
        if name in OF_THE_BROKER:
            continue
        text = text_of(f"header {name}", content)
        if not text:
            raise ValueError(f"header {name} is empty: RocketMQ has no such property")
        if name in _FIELDS:
            field, read = _FIELDS[name]
            fields[field] = read(name, text)
        else:
            properties[name] = text
    if message.key is not None:
        key = text_of("the key", message.key)
        if not key:
            raise ValueError("the key is empty: RocketMQ has no empty keys, only messages without a key (--null)")
        # A message that was consumed has as its key what stands in one of these.
        if key not in (fields.get("keys"), fields.get("sharding_key")):
            fields["sharding_key" if "keys" in fields else "keys"] = key
    return Made(topic, message.value or b"", properties=properties, **fields)


def text_of(what: str, content: bytes) -> str:
    """Raises ValueError, naming `what`."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not UTF-8, as RocketMQ's properties are") from None


def _same(name: str, text: str) -> str:
    return text


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"header {name}: {text!r} is not a whole number") from None


def _seconds(name: str, text: str) -> int:
    return 1_000 * _number(name, text)


def _truth(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"header {name}: {text!r} is neither true nor false")
    return text == "true"


_FIELDS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "TAGS": ("tags", _same),
    "KEYS": ("keys", _same),
    "__SHARDINGKEY": ("sharding_key", _same),
    "__FLAG": ("flag", _number),
    "WAIT": ("wait_for_disk", _truth),
    "DELAY": ("delay_level", _number),
    "TIMER_DELAY_SEC": ("delay_ms", _seconds),
    "TIMER_DELAY_MS": ("delay_ms", _number),
    "TIMER_DELIVER_MS": ("deliver_at_ms", _number),
}
"""Header → the client's field for it, and how it is read."""
