"""The shards of this process, as what answers requests sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.tcp.core import Core
from halfmoon.errors import BrokerError
from halfmoon.services.common.services import Services

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Topic


Confirm = Callable[[Callable[[bool], None]], None]
"""Tells whether all shards of this process were its own at some time after the call."""


class Home(NamedTuple):
    """A shard of this process."""

    core: Core
    services: Services


class Homes(Protocol):
    def coordinator(self, name: str) -> Home:
        """Of a group, or of a transactional id. Raises BrokerError(NOT_COORDINATOR)."""
        ...

    def home_of(self, topic: Topic | None, index: int) -> Home:
        """Of a partition; any, where it is not in this process, or does not exist. Cheap: each produced batch asks."""
        ...

    def all(self) -> Sequence[Home]:
        """The shards of this process. A node may have none."""
        ...

    def fast(self) -> Home | None:
        """One of them that takes writes, and in which they are durable soon, if there is one."""
        ...

    def stays(self) -> Home:
        """Who answers what is about no shard, and that a partition is not here."""
        ...

    def is_here(self, topic: Topic, index: int) -> bool:
        """Whether a partition lies in this process."""
        ...

    confirm: Confirm | None
    """None: nobody takes the shards away."""

    everywhere: frozenset[str]
    """Topics whose batches all shards have to hear of, whichever partition they are sent to."""

    def tell_all(self, topic: Topic, index: int, batch: bytes) -> Deferred:
        """Have all other shards hear of a batch that is sent to this partition. Completes with None, or with the first
        BrokerError: then it is not known which have."""
        ...

    def ask_deletion(self, topics: Sequence[Topic], then: Callable[[], None]) -> None:
        """Ask all shards whether they need these topics, and call `then`: their next deletion knows the answer."""
        ...

    def new_producer(self, told: Callable[[int | BrokerError], None]) -> None:
        """An id for a producer, from a shard of another process."""
        ...

    def change(self, work: Callable[[], object], told: Callable[[object], None]) -> None:
        """Have `work` change what all processes share. `told` is given what it returns, or what was raised, once all
        who can be reached know of it."""
        ...


def at(home: Home, ctx: Context) -> Context:
    """The same request, to be answered in a shard."""
    return Context(home.core, home.services, ctx.peer, ctx.api_version, ctx.correlation_id, ctx.client_id, ctx.rights)


def when_all(answers: Sequence[object], join: Callable[[list[Any]], object]) -> object:
    """What `join` makes of answers that are there, or come later. One that closes the connection does so."""
    waiting = [answer for answer in answers if isinstance(answer, Deferred)]
    if not waiting:
        return _joined(answers, join)
    whole = Deferred()
    left = len(waiting)
    values = list(answers)

    def arrived(number: int, value: object) -> None:
        nonlocal left
        values[number] = value
        left -= 1
        if not left:
            whole.complete(_joined(values, join))

    def hurry() -> None:
        for each in waiting:
            if each.hurry is not None:
                each.hurry()

    whole.hurry = hurry
    for number, answer in enumerate(answers):
        if isinstance(answer, Deferred):
            answer.then(partial(arrived, number))
    return whole


def after_all(answers: Sequence[object], go_on: Callable[[list[Any]], object]) -> object:
    """As `when_all`; what `go_on` makes may come later, too."""
    found = when_all(answers, list)

    def next_of(value: Any) -> object:
        return value if isinstance(value, Close) else go_on(value)

    if not isinstance(found, Deferred):
        return next_of(found)
    whole = Deferred()
    whole.hurry = found.hurry
    found.then(lambda value: pass_on(next_of(value), whole))
    return whole


def pass_on(result: object, whole: Deferred) -> None:
    """Complete `whole` with what a handler has returned, now or later."""
    if isinstance(result, Deferred):
        result.then(whole.complete)
    else:
        whole.complete(result)


def _joined(answers: Sequence[object], join: Callable[[list[Any]], object]) -> object:
    for answer in answers:
        if isinstance(answer, Close):
            return answer
    return join(list(answers))
