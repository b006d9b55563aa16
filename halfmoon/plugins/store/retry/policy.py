"""The retry policy of a group: how long until a redelivery, how many there are, what is not redelivered, and where dead
letters go.

Three layers state one, each in the same words; each field is taken from the first layer that states it:

    1. the header RETRY_POLICY of the message, a JSON object
    2. the group's configurations (retry/configs.py)
    3. broker.yaml, `$.plugins.retry.policies`: the group's name, else the first pattern that matches it

`steps` and `delay` are one choice: the first layer that states either of them decides how delays are worked out. Where
no layer does, the delay is the delay level 3 + attempts, as in RocketMQ.

    steps        the n-th redelivery waits as long as the n-th step; after the last one, as long as the last one
    exponential  delay · factorⁿ, n = attempts so far, at most max_delay (Kafka: ExponentialBackoff)
    jitter       both are multiplied by a number from [1 − jitter, 1 + jitter], still at most max_delay

This knows neither records nor the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final

from msgspec import Meta, Struct

from halfmoon.plugin import BrokerError, PositiveDuration, Section, SettingError, check_topic_name, dead_letter_topic
from halfmoon.schema.group_topics import DEAD_LETTER_PREFIX

MAX_ATTEMPTS: Final = 1_000
MAX_STEPS: Final = 100
MAX_FACTOR: Final = 100.0
MAX_PATTERNS: Final = 100
FACTOR: Final = 2.0
MAX_DELAY_MS: Final = 7_200_000
"""Of an exponential delay where no layer states one: as the last delay level."""


class RetryPolicy(Section, frozen=True, kw_only=True):
    """One layer. What is None is left to the layers below."""

    steps: list[PositiveDuration] | None = None
    """Milliseconds. An empty list says: by delay levels, whatever layers below say."""
    delay_ms: PositiveDuration | None = None
    factor: Annotated[float, Meta(ge=1, le=MAX_FACTOR)] | None = None
    jitter: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_delay_ms: PositiveDuration | None = None
    max_attempts: Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS)] | None = None
    dead_letter_topic: str | None = None
    dead_letter_retention_ms: PositiveDuration | None = None
    """`retention.ms` of the dead-letter topic, when the broker creates it; −1, which only a group's configurations can
    say: unlimited."""
    not_retryable: list[str] | None = None
    """Patterns of error classes."""

    def __post_init__(self) -> None:
        if self.steps and self.delay_ms is not None:
            raise SettingError("steps", "there is a delay too; state one of them")
        if self.steps and len(self.steps) > MAX_STEPS:
            raise SettingError("steps", f"{len(self.steps)} steps; there may be {MAX_STEPS}")
        if self.dead_letter_topic:
            try:
                check_dead_letter_topic(self.dead_letter_topic)
            except ValueError as error:
                raise SettingError("dead_letter_topic", f"got {self.dead_letter_topic!r}: {error}") from None
        if self.not_retryable:
            try:
                check_patterns(self.not_retryable)
            except ValueError as error:
                raise SettingError("not_retryable", str(error)) from None


def check_dead_letter_topic(name: str) -> None:
    """Raises ValueError. The prefix decides who may read the topic, and where its partitions lie."""
    if not name.startswith(DEAD_LETTER_PREFIX) or name == DEAD_LETTER_PREFIX:
        raise ValueError(f"expected the name of a topic that begins with {DEAD_LETTER_PREFIX}")
    try:
        check_topic_name(name)
    except BrokerError as error:
        raise ValueError(error.message) from None


def check_patterns(patterns: Sequence[str]) -> None:
    """Raises ValueError."""
    if not all(patterns):
        raise ValueError("an error class is empty")
    if len(patterns) > MAX_PATTERNS:
        raise ValueError(f"{len(patterns)} error classes; there may be {MAX_PATTERNS}")


class Rules(Struct, frozen=True):
    """What holds for a message of a group: all layers together. Times are in ms."""

    max_attempts: int
    """Redeliveries, before the message is dead-lettered."""
    dead_letter_topic: str
    steps: tuple[int, ...] = ()
    delay_ms: int = 0
    """The first exponential delay; 0: there is none."""
    factor: float = FACTOR
    jitter: float = 0.0
    max_delay_ms: int | None = None
    dead_letter_retention_ms: int | None = None
    not_retryable: tuple[str, ...] = ()

    def delay_after(self, attempts: int, draw: float) -> int | None:
        """Milliseconds until the next redelivery, at least 1; None: as delay levels say. `attempts`: so far. `draw`:
        from [0, 1), for the jitter."""
        most: float
        if self.steps:
            delay_ms: float = self.steps[min(attempts, len(self.steps) - 1)]
            most = float("inf") if self.max_delay_ms is None else self.max_delay_ms
        elif self.delay_ms:
            most = MAX_DELAY_MS if self.max_delay_ms is None else self.max_delay_ms
            try:
                delay_ms = self.delay_ms * self.factor**attempts
            except OverflowError:
                delay_ms = most
        else:
            return None
        delay_ms = min(delay_ms, most) * (1 - self.jitter + 2 * self.jitter * draw)
        return max(1, round(min(delay_ms, most)))

    def refuses(self, error_classes: Sequence[str]) -> str | None:
        """The first pattern of `not_retryable` that one of these names matches; None: the error is retryable.

        A pattern without a dot also matches the last word of a name: `ValueError` matches `builtins.ValueError`.
        """
        for pattern in self.not_retryable:
            for name in error_classes:
                if fnmatchcase(name, pattern):
                    return pattern
                if "." not in pattern and fnmatchcase(name.rpartition(".")[2], pattern):
                    return pattern
        return None


def resolve(group: str, layers: Iterable[RetryPolicy], max_attempts: int) -> Rules:
    """`layers`: the first one counts most. `max_attempts`: where no layer states it and there are no steps."""
    stated: dict[str, object] = {}
    steps: tuple[int, ...] | None = None
    delay_ms = 0
    for layer in layers:
        if steps is None and (layer.steps is not None or layer.delay_ms is not None):
            steps, delay_ms = tuple(layer.steps or ()), layer.delay_ms or 0
        for name in _PLAIN:
            value = getattr(layer, name)
            if value is not None:
                stated.setdefault(name, value)
    refused = stated.pop("not_retryable", ())
    assert isinstance(refused, list | tuple)
    stated["dead_letter_topic"] = stated.get("dead_letter_topic") or dead_letter_topic(group)
    stated.setdefault("max_attempts", len(steps) if steps else max_attempts)
    return Rules(steps=steps or (), delay_ms=delay_ms, not_retryable=tuple(refused), **stated)  # type: ignore[arg-type]


_PLAIN: Final = (
    "factor", "jitter", "max_delay_ms", "max_attempts", "dead_letter_topic", "dead_letter_retention_ms",
    "not_retryable",
)  # fmt: skip
