"""Which of the scheduled messages a question means: by the topic that they go to, and by when they are due."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from msgspec import Struct

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.group_topics import retrying_group
from halfmoon.services.delays.frames import Window
from halfmoon.services.delays.questions import Kind, Selection

LAST_MS = (1 << 63) - 1

Allows = Callable[[str, str | None], bool]
"""Whether who asks may do something with a topic, which is the retry topic of this group."""


class Target(Struct, frozen=True):
    """A topic that selected messages go to."""

    topic: str
    kind: Kind
    group: str | None


class Targets:
    """Of one question: which topics it means, and what who asks may do there. Nobody is asked twice about a topic."""

    def __init__(self, catalog: Catalog, selection: Selection, describes: Allows, may: Allows | None = None) -> None:
        """`may`: what is asked further of those who describe a topic."""
        self._catalog = catalog
        self._selection = selection
        self._describes = describes
        self._may = may
        self._known: dict[int, Target | None] = {}
        self.refused: set[str] = set()
        """Topics that are meant, but not allowed."""

    def of(self, topic_number: int) -> Target | None:
        """None: its messages are not meant, or not to be seen or changed."""
        if topic_number not in self._known:
            self._known[topic_number] = self._find(topic_number)
        return self._known[topic_number]

    def refuses(self, topic_number: int) -> bool:
        """After `of`: its messages are meant, but not allowed."""
        return self._catalog.name_of(topic_number) in self.refused

    def _find(self, topic_number: int) -> Target | None:
        name = self._catalog.name_of(topic_number)
        group = retrying_group(name)
        kind: Kind = "delay" if group is None else "redelivery"
        if not _is_meant(self._selection, name, group, kind) or not self._describes(name, group):
            return None
        if self._may is not None and not self._may(name, group):
            self.refused.add(name)
            return None
        return Target(name, kind, group)


def _is_meant(selection: Selection, name: str, group: str | None, kind: Kind) -> bool:
    if selection.kind is not None and kind != selection.kind:
        return False
    if selection.topic is not None and not fnmatchcase(name, selection.topic):
        return False
    return selection.group is None or (group is not None and fnmatchcase(group, selection.group))


def window(selection: Selection, now_ms: int) -> Window:
    """Raises BrokerError(INVALID_REQUEST)."""
    from_ms = _one(selection.due_after_ms, selection.due_after_in_ms, now_ms, 0)
    to_ms = _one(selection.due_before_ms, selection.due_before_in_ms, now_ms, LAST_MS)
    return Window(from_ms, to_ms)


def _one(at_ms: int | None, in_ms: int | None, now_ms: int, default: int) -> int:
    if at_ms is not None and in_ms is not None:
        raise BrokerError(Fault.INVALID_REQUEST, "a time was given twice")
    return now_ms + in_ms if in_ms is not None else default if at_ms is None else at_ms
