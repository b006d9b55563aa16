"""Guards: what stands between a request and its handler where plugins say who may do what (hook `halfmoon_authorize`).

A guard asks for the resources that a request names, and hands on what is left of the request when the refused ones are
taken out; what they are answered with joins the handler's answer. So handlers know nothing of it. Which API has which
guards is the table of `access`.

Without such a plugin no guard is called at all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.refusals import Refused, at_the_top, joined
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.slicing import settled
from halfmoon.adapters.tcp.access import CLUSTER
from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError

Handler = Callable[[Context, Any], object]
Guard = Callable[[Any, Handler, Context, Any], object]
"""(response's class, handler, context, request) → the answer, a Deferred of it, or slices that return one of them."""
Named = Callable[[Context, Any], "str | None"]
"""The name of the resource that a request or an item of it is about; None where it has none, which the handler says."""


def the_cluster(_ctx: Context, _request: Any) -> str:
    return CLUSTER


def itself(_ctx: Context, item: Any) -> str:
    """The item is the name."""
    return str(item)


def called(field: str) -> Named:
    """The name stands in this field."""
    return lambda ctx, item: getattr(item, field)


def topic_called(field: str, id_field: str = "topic_id") -> Named:
    """The topic's name stands in this field, or its id in the other, depending on the version."""

    def name(ctx: Context, item: Any) -> str | None:
        given: str | None = getattr(item, field)
        topic_id = getattr(item, id_field, None)
        if given or topic_id is None:
            return given
        topic = ctx.core.catalog.topic_by_id(topic_id.bytes)
        return None if topic is None else topic.name

    return name


def whole(operation: str, kind: str, name: Named, refused: Refused = at_the_top) -> Guard:
    """The request as a whole needs this."""

    def check(ctx: Context, request: Any) -> None:
        named = name(ctx, request)
        if named is not None:
            ctx.check(operation, kind, named)

    return whole_by(check, refused)


def whole_by(check: Callable[[Context, Any], None], refused: Refused = at_the_top) -> Guard:
    """As `whole`, where `check` raises BrokerError for what is refused."""

    def guard(response: Any, handler: Handler, ctx: Context, request: Any) -> object:
        try:
            check(ctx, request)
        except BrokerError as error:
            return refused(response, request, error)
        return handler(ctx, request)

    return guard


def cluster(operation: str, refused: Refused = at_the_top) -> Guard:
    """The request as a whole needs this of the cluster."""
    return whole(operation, "cluster", the_cluster, refused)


def each(field: str, operation: str, kind: str, name: Named, into: str, refused: Refused) -> Guard:
    """Each item of `request.field` needs this. Refused ones are answered in `response.into`, beside the others."""

    def check(ctx: Context, item: Any) -> None:
        named = name(ctx, item)
        if named is not None:
            ctx.check(operation, kind, named)

    return each_by(field, check, into, refused)


def each_by(field: str, check: Callable[[Context, Any], None], into: str, refused: Refused) -> Guard:
    """As `each`, where `check` raises BrokerError for what is refused."""

    def guard(response: Any, handler: Handler, ctx: Context, request: Any) -> Slices[object]:
        asked = getattr(request, field) or []
        allowed, denied = [], []
        for item in asked:
            try:
                check(ctx, item)
                allowed.append(item)
            except BrokerError as error:
                denied.append(refused(response, item, error))
            yield
        if not denied:
            return (yield from settled(handler(ctx, request)))
        setattr(request, field, allowed)
        # A handler may take an empty list for all that there is.
        answer = (yield from settled(handler(ctx, request))) if allowed else response()
        return after(answer, lambda made: joined(made, into, denied))

    return guard


def afterwards(change: Callable[[Context, Any, Any], Any]) -> Guard:
    """Have the answer be what `change(ctx, request, answer)`, which must not raise, makes of it."""

    def guard(_response: Any, handler: Handler, ctx: Context, request: Any) -> object:
        return after(handler(ctx, request), lambda made: change(ctx, request, made))

    return guard


def shown(field: str, operation: str, kind: str, name: Callable[[Any], str]) -> Guard:
    """What this refuses is left out of the answer."""

    def change(ctx: Context, _request: Any, answer: Any) -> Slices[Any]:
        shown = []
        for each in getattr(answer, field) or ():
            if ctx.allows(operation, kind, name(each)):
                shown.append(each)
            yield
        setattr(answer, field, shown)
        return answer

    return afterwards(change)


def after(answer: object, change: Callable[[Any], Any]) -> object:
    """What `change`, which may work in slices, makes of an answer that is there or comes later."""
    if isinstance(answer, Close):
        return answer
    if isinstance(answer, Deferred):
        changed = Deferred()
        answer.then(lambda made: changed.complete(made if isinstance(made, Close) else finish(settled(change(made)))))
        return changed
    if isinstance(answer, Generator):
        return _after_slices(answer, change)
    return change(answer)


def _after_slices(work: Slices[object], change: Callable[[Any], Any]) -> Slices[object]:
    return (yield from settled(after((yield from work), change)))
