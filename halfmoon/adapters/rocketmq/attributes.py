"""A topic's attributes, as RocketMQ's administrators set them: "+message.type=DELAY,-reserve.time".

They are the topic's configurations under other names, so that both protocols show them. `cleanup.policy` is Kafka's
configuration of that name. The others are kept and shown: what RocketMQ's proxy does with `message.type` (it refuses
messages of another type) its broker does not do either.

Rules: AttributeParser, AttributeUtil, TopicAttributes of RocketMQ 5.3. One is left out: a broker of RocketMQ refuses
`message.type=MIXED` by default, and here every topic takes messages of all types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.config.values import LONG_MAX, integer, one_of
from halfmoon.remoting.codes import Code
from halfmoon.services.topic_configs import (
    MESSAGE_TYPES,
    QUEUE_TYPES,
    ROCKETMQ_MESSAGE_TYPE,
    ROCKETMQ_ORDER,
    ROCKETMQ_QUEUE_TYPE,
    ROCKETMQ_RESERVE_TIME,
)

CLEANUP_POLICY = "cleanup.policy"
_DELETE, _COMPACTION = "DELETE", "COMPACTION"


class Attribute(Struct, frozen=True):
    config: str
    """The topic configuration that keeps it."""
    changeable: bool
    check: Callable[[str], object]
    """Raises ValueError."""


ATTRIBUTES: Mapping[str, Attribute] = {
    CLEANUP_POLICY: Attribute("cleanup.policy", False, one_of(_DELETE, _COMPACTION)),
    "message.type": Attribute(ROCKETMQ_MESSAGE_TYPE, True, one_of(*MESSAGE_TYPES)),
    "queue.type": Attribute(ROCKETMQ_QUEUE_TYPE, False, one_of(*QUEUE_TYPES)),
    "reserve.time": Attribute(ROCKETMQ_RESERVE_TIME, True, integer(-1, LONG_MAX)),
}


def shown(configs: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a topic with these overrides."""
    found = {name: configs[each.config] for name, each in ATTRIBUTES.items() if each.config in configs}
    if CLEANUP_POLICY in found:
        found[CLEANUP_POLICY] = _COMPACTION if "compact" in found[CLEANUP_POLICY] else _DELETE
    return found


def altered(configs: Mapping[str, str], text: str, *, new: bool, repeats: bool = False) -> dict[str, str]:
    """The overrides of a topic once its attributes are changed as `text` says. Raises Refused(SYSTEM_ERROR).

    `new`: the topic is being made, so what cannot be changed may be set. `repeats`: what is so already may be said
    again, as administrators do who ask each of several brokers that have their topics in common.
    """
    found = dict(configs)
    done: set[str] = set()
    for sign, name, value in _changes(text):
        if name in done:
            raise _refused(f"alter duplication key. key: {name}")
        done.add(name)
        attribute = ATTRIBUTES.get(name)
        if attribute is None:
            raise _refused(f"unsupported key: {name}")
        if sign == "-" and new:
            raise _refused(f"only add attribute is supported while creating topic. key: {name}")
        if repeats and not new and configs.get(attribute.config) == (_stored(name, value) if sign == "+" else None):
            continue
        if sign == "-" and attribute.config not in configs:
            raise _refused(f"attempt to delete a nonexistent key: {name}")
        if not new and not attribute.changeable:
            raise _refused(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del found[attribute.config]
            continue
        try:
            attribute.check(value)
        except ValueError as error:
            raise _refused(f"invalid value '{value}' of attribute {name}: {error}") from None
        found[attribute.config] = _stored(name, value)
    return found


def ordered(configs: Mapping[str, str], order: bool) -> dict[str, str]:
    """The overrides of a topic whose queues are to be in order, or need not be."""
    found = {name: value for name, value in configs.items() if name != ROCKETMQ_ORDER}
    return found | {ROCKETMQ_ORDER: "true"} if order else found


def is_ordered(configs: Mapping[str, str]) -> bool:
    return configs.get(ROCKETMQ_ORDER, "").strip().lower() == "true"


def _changes(text: str) -> list[tuple[str, str, str]]:
    """(sign, name, value) of each."""
    found = []
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        sign, name = key[:1], key[1:]
        if sign != ("+" if equals else "-"):
            kind = "add/alter" if equals else "delete"
            raise _refused(f"{kind} attribute format is wrong: {key}")
        if not name or "+" in name or "-" in name:
            raise _refused("kv string format wrong.")
        found.append((sign, name, value))
    return found


def _stored(name: str, value: str) -> str:
    if name == CLEANUP_POLICY:
        return "compact" if value == _COMPACTION else "delete"
    return value


def _refused(why: str) -> Refused:
    return Refused(Code.SYSTEM_ERROR, why)
