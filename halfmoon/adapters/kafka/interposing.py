"""Rules for requests (adapters/tcp/interposing.py) of a Kafka listener.

A request that is to fail gets what its API answers where everything that it names is refused (`access.NEEDS`), with the
rule's code in the place of the refusal's. So each partition, group or resource has it where Kafka would put it
(AbstractRequest.getErrorResponse), and the handler has done nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from halfmoon.adapters.kafka.access import guard_of
from halfmoon.adapters.kafka.guards import after
from halfmoon.adapters.kafka.protocol import RESPONSES
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.slicing import settled
from halfmoon.adapters.tcp.interposing import Met, Rule, met
from halfmoon.core.steps import finish
from halfmoon.kafka_wire.records import Record

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.routes import Route
    from halfmoon.adapters.tcp.access import Use

Later = Callable[[float, Callable[[], object]], object]
"""(seconds, callback)"""

ASK_NOBODY: Final = frozenset((17, 18, 36, 71, 72))
"""APIs that need no right: SaslHandshake, ApiVersions, SaslAuthenticate, and telemetry's."""


class Interposing:
    """Of one listener, whose `routes` are changed in place."""

    def __init__(self, routes: dict[int, Route], later: Later) -> None:
        self._routes = routes
        self._plain = dict(routes)
        self._later = later

    @property
    def apis(self) -> frozenset[str]:
        return frozenset(route.name for route in self._plain.values())

    def set(self, rules: Sequence[Rule]) -> None:
        """These, in the place of those of before."""
        for number, route in self._plain.items():
            mine = [rule for rule in rules if rule.concerns(route.name)]
            self._routes[number] = (
                route.handled_by(partial(self._handle, route, mine), sliced=route.sliced) if mine else route
            )

    def _handle(self, route: Route, rules: Sequence[Rule], ctx: Context, request: Any) -> object:
        found = met(rules, ctx.client_id)
        if found.rule is None or found.rule.kind == "lose":
            answer = route.handler(ctx, request)
        elif found.rule.kind == "error":
            answer = failed(route, ctx, request, found.rule.code)
        else:
            answer = Close("a test refuses the request")
        if isinstance(answer, Generator):
            return self._after_slices(answer, found)
        return self._changed(answer, found)

    def _after_slices(self, work: Any, found: Met) -> Any:
        return self._changed((yield from work), found)

    def _changed(self, answer: object, found: Met) -> object:
        if found.rule is not None and found.rule.kind == "lose":
            answer = after(answer, lambda _: Close("a test loses the answer")) if answer is not None else Close("lost")
        return self._delayed(answer, found.delay_s) if found.delay_s and answer is not None else answer

    def _delayed(self, answer: object, delay_s: float) -> Deferred:
        late = Deferred()

        def there(value: object) -> None:
            self._later(delay_s, partial(late.complete, value))

        if isinstance(answer, Deferred):
            late.hurry = lambda: answer.hurry() if answer.hurry is not None else None
            answer.then(there)
        else:
            there(answer)
        return late


class _NoRights:
    """Of a client that may do nothing, and is shown what there is."""

    principal = "User:halfmoon.testing"
    host = ""

    def allows(self, use: Use) -> bool:
        return True

    def allows_either(self, *uses: Use) -> bool:
        return True

    def demands(self, uses: tuple[Use, ...]) -> bool:
        return False


def failed(route: Route, ctx: Context, request: Any, code: int) -> object:
    """The answer to a request that has failed with this code, as a handler gives it."""
    if route.key in ASK_NOBODY:
        made: object = RESPONSES[route.key]()
    else:
        ctx.rights = _NoRights()
        made = finish(settled(guard_of(route)(ctx, request)))
    return after(made, partial(_stamped, route, code))


def _stamped(route: Route, code: int, answer: Any) -> Any:
    if answer is None:
        return None
    body = answer if isinstance(answer, bytes | list) else answer.encode(route.version)
    whole = memoryview(b"".join(body) if isinstance(body, list) else body)
    found = RESPONSES[route.key].decode(whole, route.version)
    if not _put_code(found, code, anew=False) and not _put_at_the_top(found, route.version, code):
        _put_code(found, code, anew=True)
    return found.encode(route.version) if route.raw else found


def _put_at_the_top(answer: Record, version: int, code: int) -> bool:
    if not any(field.name == "error_code" and field.is_in(version) for field in answer.DEFINITION.fields):
        return False
    answer.error_code = code  # type: ignore[attr-defined]
    return True


def _put_code(record: Record, code: int, *, anew: bool) -> int:
    """Into all fields that are an error's code; not `anew`: where there is one already. Into how many."""
    count = 0
    for field in record.DEFINITION.fields:
        value = getattr(record, field.name)
        if field.struct is not None:
            inner = value if field.is_array else [value]
            count += sum(_put_code(each, code, anew=anew) for each in inner or () if each is not None)
        elif field.name.endswith("error_code") and (anew or value):
            setattr(record, field.name, code)
            count += 1
    return count
