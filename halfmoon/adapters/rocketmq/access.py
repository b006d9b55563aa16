"""What a request does with topics and groups, for those who may object (hook `halfmoon_authorize`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.registry import Call
from halfmoon.adapters.tcp.access import Access


class _Consumer(Struct):
    groupName: str  # noqa: N815 (the wire's names, here and below)


class _Heartbeat(Struct):
    consumerDataSet: list[_Consumer] = []  # noqa: N815


Use = tuple[str, str, str]
"""Operation, type of the resource, the resource."""


def _topic(operation: str, field: str = "topic") -> Callable[[Call], Iterator[Use]]:
    def uses(call: Call) -> Iterator[Use]:
        yield operation, "topic", names.from_rocketmq(call.text(field))

    return uses


def _group(field: str) -> Callable[[Call], Iterator[Use]]:
    def uses(call: Call) -> Iterator[Use]:
        yield "read", "group", call.text(field)

    return uses


def _pull(call: Call) -> Iterator[Use]:
    yield from _topic("read")(call)
    yield from _group("consumerGroup")(call)


def _commit(call: Call) -> Iterator[Use]:
    yield from _group("consumerGroup")(call)
    yield from _topic("read")(call)


def _change(call: Call) -> Iterator[Use]:
    name = names.from_rocketmq(call.text("topic"))
    yield "create" if call.core.catalog.topic(name) is None else "alter", "topic", name


def _heartbeat(call: Call) -> Iterator[Use]:
    beat = call.body(_Heartbeat)
    assert isinstance(beat, _Heartbeat)
    for consumer in beat.consumerDataSet:
        yield "read", "group", consumer.groupName


_USES: dict[int, Callable[[Call], Iterator[Use]]] = {
    10: _topic("write"),
    11: _pull,
    15: _commit,
    17: _change,
    34: _heartbeat,
    36: _group("group"),
    215: _topic("delete"),
    310: _topic("write", "b"),
    320: _topic("write", "b"),
    361: _pull,
}


def check(access: Access, call: Call) -> None:
    """Raises BrokerError where the request is refused, and Refused where it lacks a field."""
    uses = _USES.get(call.command.code)
    if uses is not None:
        for operation, resource_type, resource in uses(call):
            access.check(call.connection.peer_host, operation, resource_type, resource)
