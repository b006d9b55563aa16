"""Configurations of groups by which a group states its retry policy (retry/policy.py), beside Kafka's own.

What a group does not state is what broker.yaml says for it, or the default. Lists are separated by commas, as Kafka
writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from halfmoon.plugin import GroupConfig, TopicConfigKind, dead_letter_topic, format_duration, parse_duration
from halfmoon.plugins.store.retry.policy import (
    FACTOR,
    MAX_ATTEMPTS,
    MAX_DELAY_MS,
    MAX_FACTOR,
    MAX_STEPS,
    RetryPolicy,
    Rules,
    check_dead_letter_topic,
    check_patterns,
)

PREFIX = "halfmoon.retry."
STEPS, DELAY, FACTOR_OF, JITTER = (f"{PREFIX}{name}" for name in ("steps", "delay.ms", "factor", "jitter"))
MAX_DELAY, MAX_ATTEMPTS_OF = f"{PREFIX}max.delay.ms", f"{PREFIX}max.attempts"
DEAD_LETTER_TOPIC, RETENTION = f"{PREFIX}dead.letter.topic", f"{PREFIX}dead.letter.retention.ms"
NOT_RETRYABLE = f"{PREFIX}not.retryable"
LONGEST_MS = 2**53
NOTHING = "-1"
"""Where a number is shown that nobody has stated."""
AS_OTHERS, FOR_EVER_MS = "-2", -1
"""Of a retention: as other topics (as `local.retention.ms` says it in Kafka), and for ever."""


def stated(configs: Mapping[str, str]) -> RetryPolicy:
    """The layer that a group's own configurations are. They have passed the checks; names of others are ignored. Steps
    count before a delay, as there is no order in which a group's configurations are set."""
    found: dict[str, Any] = {}
    for name, (field, parse) in _FIELDS.items():
        value = configs.get(name)
        if value is not None:
            found[field] = parse(value.strip())
    if found.get("steps"):
        found.pop("delay_ms", None)
    return RetryPolicy(**found)


def group_configs(rules: Callable[[str], Rules]) -> list[GroupConfig]:
    """The rows, sorted by name. `rules`: what holds for a group that states nothing."""

    def row(
        name: str,
        kind: TopicConfigKind,
        show: Callable[[Rules], object],
        built_in: str | Callable[[str], str],
        documentation: str,
        *,
        takes_records: bool = False,
    ) -> GroupConfig:
        def default(_settings: object, group: str) -> str:
            return str(show(rules(group)))

        def built_in_of(group: str) -> str:
            return built_in if isinstance(built_in, str) else built_in(group)

        check = _FIELDS[name][1]
        return GroupConfig(
            name, kind, default, check, documentation, built_in=built_in_of, takes_records=takes_records
        )  # fmt: skip

    kind = TopicConfigKind
    return [
        row(
            RETENTION, kind.LONG, lambda held: held.dead_letter_retention_ms or AS_OTHERS, AS_OTHERS,
            "`retention.ms` of the group's dead-letter topic, set when the broker creates the topic. -1: unlimited; "
            "-2: as other topics.",
        ),
        row(
            DEAD_LETTER_TOPIC, kind.STRING, lambda held: held.dead_letter_topic, dead_letter_topic,
            "Dead-letter topic, `dlq.…`, for records that the group negatively acknowledges for the last time.",
            takes_records=True,
        ),
        row(
            DELAY, kind.LONG, lambda held: held.delay_ms or NOTHING, NOTHING,
            "Delay of the first redelivery, in ms; each further one is multiplied by halfmoon.retry.factor. -1, and no "
            "steps: by delay levels.",
        ),
        row(
            FACTOR_OF, kind.DOUBLE, lambda held: _number(held.factor), _number(FACTOR),
            "Factor by which halfmoon.retry.delay.ms grows with each redelivery.",
        ),
        row(
            JITTER, kind.DOUBLE, lambda held: _number(held.jitter), "0",
            "Random part of a delay: 0.2 is ±20 %. For steps and exponential delays.",
        ),
        row(
            MAX_ATTEMPTS_OF, kind.INT, lambda held: held.max_attempts, "16",
            "Maximum redeliveries; then the broker dead-letters the record. Default: one for each step, else "
            "plugins.retry.max_reconsume_times.",
        ),
        row(
            MAX_DELAY, kind.LONG,
            lambda held: held.max_delay_ms or (MAX_DELAY_MS if held.delay_ms else NOTHING), NOTHING,
            "Maximum delay, in ms. Default of exponential delays: 2 h; of steps: none (-1).",
        ),
        row(
            NOT_RETRYABLE, kind.LIST, lambda held: ",".join(held.not_retryable), "",
            "Patterns of error classes, such as `ValueError` or `com.acme.*`: the broker dead-letters a record at once "
            "that is negatively acknowledged with one of them in the header RETRY_ERROR_CLASS.",
        ),
        row(
            STEPS, kind.LIST, lambda held: ",".join(format_duration(step) for step in held.steps), "",
            "Delays of the redeliveries, such as `10s,1m,5m`; the last one is repeated. They count before "
            "halfmoon.retry.delay.ms.",
        ),
    ]  # fmt: skip


def _number(value: float) -> str:
    return f"{value:g}"


def _steps(value: str) -> list[int]:
    found = []
    for word in _words(value):
        try:
            found.append(parse_duration(word))
        except ValueError:
            found.append(0)
        if found[-1] < 1:
            raise ValueError(f"{word!r} is no delay; expected durations such as 10s,1m,5m, or nothing")
    if len(found) > MAX_STEPS:
        raise ValueError(f"{len(found)} steps; there may be {MAX_STEPS}")
    return found


def _patterns(value: str) -> Sequence[str]:
    found = _words(value)
    check_patterns(found)
    return found


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",")] if value else []


def _topic(value: str) -> str:
    if value:
        check_dead_letter_topic(value)
    return value


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            found = int(value) if len(value) < 20 else most + 1
        except ValueError:
            found = least - 1
        if not least <= found <= most:
            raise ValueError(f"expected an integer from {least} to {most}")
        return found

    return parse


def _time(value: str) -> int | None:
    """None: −1, so the layers below count."""
    return None if value == NOTHING else _whole(1, LONGEST_MS)(value)


def _retention(value: str) -> int | None:
    if value in (AS_OTHERS, str(FOR_EVER_MS)):
        return None if value == AS_OTHERS else FOR_EVER_MS
    return _whole(1, LONGEST_MS)(value)


def _fraction(value: str, least: float, most: float) -> float:
    try:
        found = float(value)
    except ValueError:
        found = least - 1
    if not least <= found <= most:  # a NaN is in no range
        raise ValueError(f"expected a number from {least:g} to {most:g}")
    return found


_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    STEPS: ("steps", _steps),
    DELAY: ("delay_ms", _time),
    FACTOR_OF: ("factor", partial(_fraction, least=1, most=MAX_FACTOR)),
    JITTER: ("jitter", partial(_fraction, least=0, most=1)),
    MAX_DELAY: ("max_delay_ms", _time),
    MAX_ATTEMPTS_OF: ("max_attempts", _whole(0, MAX_ATTEMPTS)),
    DEAD_LETTER_TOPIC: ("dead_letter_topic", _topic),
    RETENTION: ("dead_letter_retention_ms", _retention),
    NOT_RETRYABLE: ("not_retryable", _patterns),
}
"""Configuration → the field of RetryPolicy, and how it is read; that raises ValueError."""
