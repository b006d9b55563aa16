"""Rules for requests (adapters/tcp/interposing.py) of a RocketMQ listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, Handler, Port, Request
from halfmoon.adapters.tcp.interposing import Rule, met
from halfmoon.remoting.codes import Code

Later = Callable[[float, Callable[[], object]], object]
"""(seconds, callback)"""


class Interposing:
    """Of one listener, whose tables of requests are changed in place."""

    def __init__(self, at_port: Mapping[Port, dict[int, Request]], later: Later) -> None:
        self._at_port = at_port
        self._plain = {port: dict(requests) for port, requests in at_port.items()}
        self._later = later

    @property
    def apis(self) -> frozenset[str]:
        return frozenset(request.name for requests in self._plain.values() for request in requests.values())

    def set(self, rules: Sequence[Rule]) -> None:
        """These, in the place of those of before."""
        for port, requests in self._plain.items():
            for code, request in requests.items():
                mine = [rule for rule in rules if rule.concerns(request.name)]
                handler: Handler = partial(self._handle, request.handler, mine)
                self._at_port[port][code] = replace(request, handler=handler) if mine else request

    def _handle(self, handler: Handler, rules: Sequence[Rule], call: Call) -> Answer | None:
        found = met(rules, call.connection.client_id)
        if found.rule is not None:
            handler = partial(_HANDLERS[found.rule.kind], handler, found.rule)
        if not found.delay_s:
            return handler(call)
        call.hold_on()
        self._later(found.delay_s, partial(call.answer, partial(_late, handler, call)))
        return None


def _late(handler: Handler, call: Call) -> Answer | None:
    try:
        return handler(call)
    finally:
        call.node.ends.write()


def _fail(_handler: Handler, rule: Rule, _call: Call) -> Answer:
    raise Refused(Code(rule.code), "a test has the request fail")


def _refuse(_handler: Handler, _rule: Rule, call: Call) -> None:
    call.connection.abort("a test refuses the request")


def _lose(handler: Handler, _rule: Rule, call: Call) -> None:
    """What answers later finds nobody."""
    handler(call)
    call.connection.abort("a test loses the answer")


_HANDLERS = {"error": _fail, "refuse": _refuse, "lose": _lose}
