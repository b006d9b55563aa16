"""What views add to the table of topic configurations: names that begin alike, whose rest is a filter language."""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.plugin import TopicConfig, TopicConfigKind, TopicConfigPrefix, one_of, read_only
from halfmoon.plugins.store.view.definition import (
    EARLIEST,
    LATEST,
    VIEW_FROM,
    VIEW_POSITION,
    VIEW_PREFIX,
    VIEW_SOURCE,
    VIEW_STATE,
)


def _not_empty(value: str) -> str:
    if not value:
        raise ValueError("expected the name of a topic")
    return value


def _row(name: str) -> TopicConfig:
    check: Callable[[str], object]
    if name == VIEW_STATE:
        check, documentation = read_only, "State of the view: filled, or the reason why not."
    elif name == VIEW_POSITION:
        check, documentation = read_only, "By partition, S:V: the source up to offset S is in the view up to offset V."
    elif name == VIEW_SOURCE:
        check, documentation = _not_empty, "Source topic of the view."
    elif name == VIEW_FROM:
        check, documentation = (
            one_of(EARLIEST, LATEST),
            "Start of the view: the source's first record, or its creation.",
        )
    else:
        language = name.removeprefix(VIEW_PREFIX)
        check, documentation = str, f"Filter of the view, in the language {language}."
    return TopicConfig(name, TopicConfigKind.STRING, lambda settings: "", check, documentation, "", read_only=True)


VIEW_CONFIGS = TopicConfigPrefix(VIEW_PREFIX, _row)
