"""A question to an API, and the users who ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.interop.access.client import ClosedError, Connection
from tests.interop.access.world import World

Fields = dict[str, Any]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    key: int
    version: int
    title: str
    fields: Callable[[World], Fields] = lambda w: {}
    needs: tuple[str, ...] = ()
    instead: tuple[tuple[str, ...], ...] = ()
    before: Callable[[World], Any] | None = None
    """Puts things back as they were; it is done before each question."""
    ask: Callable[[World, Connection, Case], Any] | None = None
    """In place of one request."""

    def situations(self) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """(name, rights); None are those of a super user."""
        yield "super user", None
        yield "nothing", ()
        if not self.needs and not self.instead:
            return
        if self.needs:
            yield "all", self.needs
        if len(self.needs) > 1:
            for right in self.needs:
                yield f"without {right}", tuple(each for each in self.needs if each != right)
        implied = tuple(_implying(right) for right in self.needs)
        if implied != self.needs:
            yield "implied: " + ", ".join(implied), implied
        for rights in self.instead:
            yield "instead: " + ", ".join(rights), rights

    def answer(self, world: World, by: Connection) -> Any:
        """The answer, or `closed`."""
        try:
            if self.ask is not None:
                return self.ask(world, by, self)
            return world.user_asks(self.key, self.version, self.fields(world), by)
        except ClosedError:
            return "closed"


def _implying(right: str) -> str:
    operation, rest = right.split(" ", 1)
    if operation == "describe" and rest.split()[0] in ("topic", "transactional_id"):
        return f"write {rest}"
    if operation == "describe" and rest.split()[0] == "group":
        return f"read {rest}"
    if operation == "describe":
        return f"alter {rest}"
    return f"alter_configs {rest}" if operation == "describe_configs" else right
