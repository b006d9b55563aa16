"""Filters pushed down to the broker: Spark reads a view, which holds what matches, instead of the whole topic.

A view (docs/views.md) is a topic that the broker fills from another one. One that is defined like this already is used,
whatever its name; else one is made, and stays: the next read finds it filled. Its name says what it holds,
`orders.sql.amount-over-5.1c9f0a77`, so that Spark's `explain()` shows that the filter was pushed down, and which.

A read waits until the view holds all that the source held when it was asked for, so that nothing is missing. For the
same reason a view keeps its records as long as its source does, at least; what has expired there may still be in it.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from typing import Literal

from halfmoon.pipeline.admin import POLL_S, Admin, PartitionOffsets, RefusedConfigError, TopicExistsError
from halfmoon.pipeline.errors import PipelineError

SOURCE, FROM, STATE, POSITION = (f"halfmoon.view.{word}" for word in ("source", "from", "state", "position"))
FILTERS = {"tag": ("halfmoon.view.tag",), "sql": ("halfmoon.view.sql", "halfmoon.view.sql92")}
"""Language → the configurations that a filter in it may stand in; a view of ours has the first."""
FILLED = "filled"
"""What the broker says of a view that is in order."""
RETENTION = ("retention.ms", "retention.bytes")
STALLED_AFTER_S = 60
"""A view that has not moved for so long is given up."""
_SOURCE_CHARACTERS, _SAID_CHARACTERS = 150, 60
"""Of a view's name; a topic's has 249 at most."""
_SIGNS = (("||", " or "), (">=", " from "), ("<=", " up to "), ("<>", " not "), ("!=", " not "), (">", " over "),
          ("<", " under "), ("=", " "))  # fmt: skip
"""How what a topic's name cannot hold is put in words there."""


@dataclass(slots=True, frozen=True)
class Filter:
    """What a read wants of a topic: tags (`paid || refunded`) or an SQL92 expression over headers (docs/filters.md)."""

    language: Literal["tag", "sql"]
    expression: str

    def view_name(self, topic: str, *of_the_topic: str) -> str:
        """What a view with this filter is called if it has to be made. What else it depends on is in its last part."""
        words = self.expression
        for sign, word in _SIGNS:
            words = words.replace(sign, word)
        said = re.sub(r"[^a-zA-Z0-9]+", "-", words).strip("-")[:_SAID_CHARACTERS].rstrip("-")
        marked = "\0".join((topic, self.language, self.expression, *of_the_topic))
        mark = hashlib.sha256(marked.encode()).hexdigest()[:8]
        return f"{topic[:_SOURCE_CHARACTERS]}.{self.language}.{said}.{mark}"


def chosen(tag: str | None, sql: str | None) -> Filter | None:
    """The filter that was asked for; None where everything passes. Raises PipelineError for two."""
    if tag is not None and sql is not None:
        raise PipelineError("give one of tag= and sql=; SQL92 can say both: \"TAGS = 'paid' AND amount > 5\"")
    if tag is not None:
        return None if tag.strip() in ("", "*") else Filter("tag", tag)
    if sql is not None and not sql.strip():
        raise PipelineError("sql= is empty: leave it out, or say what is wanted")
    return None if sql is None else Filter("sql", sql)


def filled_view(admin: Admin, topic: str, wanted: Filter, name: str | None = None) -> tuple[str, PartitionOffsets]:
    """A view of `topic` with this filter, found or made: its name, and by partition the offset up to which it is to be
    read to have all that the topic holds now. Waits until that is there.

    `name` is what the view is to be called; one of that name must be defined like this. Raises PipelineError.
    """
    ends = admin.ends(topic)
    view = _find_or_make(admin, topic, wanted, name)
    return view, _wait(admin, view, ends)


def wanted_view(admin: Admin, topic: str, wanted: Filter) -> str | None:
    """A view of `topic` with this filter that is filled, and keeps its records as long; None if there is none."""
    source = _source(admin, topic)
    others = admin.configs(each for each in admin.topics() if each != topic)
    # That of our own name first.
    names = sorted(others, key=lambda each: (each != source.view_name(wanted), each))
    serving = (each for each in names if _is_view(others[each], topic, wanted) and others[each].get(STATE) == FILLED)
    return next((each for each in serving if _keeps_as_long(others[each], source.settings)), None)


def _find_or_make(admin: Admin, topic: str, wanted: Filter, name: str | None) -> str:
    source = _source(admin, topic)
    own = name or source.view_name(wanted)
    there = admin.configs([own]).get(own)
    if there is None and name is None:
        found = wanted_view(admin, topic, wanted)
        if found is not None:
            return found
    if there is None:
        _make(admin, topic, wanted, own, source.settings)
        there = admin.configs([own]).get(own, {})
    if not _is_view(there, topic, wanted):
        raise PipelineError(f"{own} is no view of {topic} with {wanted.language} {wanted.expression!r} from earliest")
    if not _keeps_as_long(there, source.settings):
        raise PipelineError(
            f"view {own} keeps its records for a shorter time than {topic} ({', '.join(RETENTION)}), so some would be"
            " missing: set them alike, or read the view itself"
        )
    return own


@dataclass(slots=True, frozen=True)
class _Source:
    """The topic that a view is of."""

    topic: str
    topic_id: str
    settings: dict[str, str]

    def view_name(self, wanted: Filter) -> str:
        # A topic that was made anew, or that keeps its records longer now, needs another view.
        return wanted.view_name(self.topic, self.topic_id, *(self.settings.get(key, "") for key in RETENTION))


def _source(admin: Admin, topic: str) -> _Source:
    return _Source(topic, admin.topic_id(topic), admin.configs([topic]).get(topic, {}))


def _make(admin: Admin, topic: str, wanted: Filter, name: str, source: dict[str, str]) -> None:
    kept = {key: source[key] for key in RETENTION if key in source}
    try:
        admin.create_topic(name, -1, {SOURCE: topic, FILTERS[wanted.language][0]: wanted.expression} | kept)
    except TopicExistsError:
        pass  # Somebody else was quicker; whether it is what is wanted is looked at next.
    except RefusedConfigError as refused:
        if "Unknown topic config" not in str(refused):
            raise
        raise PipelineError(
            f"the broker at {admin.bootstrap} has no views, so it is no Halfmoon: leave out tag= and sql=, and filter"
            " in Spark"
        ) from None


def _keeps_as_long(view: dict[str, str], source: dict[str, str]) -> bool:
    def limit(settings: dict[str, str], key: str) -> float:
        value = int(settings.get(key, -1))
        return float("inf") if value < 0 else value

    return all(limit(view, key) >= limit(source, key) for key in RETENTION)


def _is_view(settings: dict[str, str], topic: str, wanted: Filter) -> bool:
    return (
        settings.get(SOURCE, "").strip() == topic
        and settings.get(FROM, "earliest").strip() == "earliest"
        and any(settings.get(name, "").strip() == wanted.expression.strip() for name in FILTERS[wanted.language])
    )


def _wait(admin: Admin, view: str, source_ends: PartitionOffsets) -> PartitionOffsets:
    """Until the view stands for its source up to `source_ends`, and that is visible; where that is in the view."""
    pause, position, moved = POLL_S / 5, "", time.monotonic()
    while True:
        settings = admin.configs([view]).get(view, {})
        if settings.get(STATE) != FILLED:
            why = settings.get(STATE, "it was deleted")
            raise PipelineError(f"view {view} is not filled: {why} (halfmoon view delete {view} ends it)")
        pairs = [pair.split(":") for pair in settings.get(POSITION, "").split(",") if pair]
        passed = {number: int(source) for number, (source, _) in enumerate(pairs)}
        if all(passed.get(number, 0) >= end for number, end in source_ends.items()):
            upto = {number: int(own) for number, (_, own) in enumerate(pairs)}
            visible = admin.ends(view)
            if all(visible.get(number, 0) >= end for number, end in upto.items()):
                return upto
        if settings[POSITION] != position:
            position, moved = settings[POSITION], time.monotonic()
        elif time.monotonic() - moved > STALLED_AFTER_S:
            raise PipelineError(f"view {view} has not come further for {STALLED_AFTER_S} s (position {position})")
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
