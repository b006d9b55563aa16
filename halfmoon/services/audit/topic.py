"""Audit's topic, `halfmoon.audit`: a record a line, without a key.

It is internal, so only the broker writes there, and nobody deletes it. Unlike other internal topics it can be read: by
super users and by whom a rule with exactly this name allows it (docs/decisions/0152-own-topics-follow.md). It is made
at the start, so that readers may come before the first line.

A relay task (core/relay.py) appends the lines, behind the answers to clients, and late by `LINGER_MS`: a reader's own
requests may be recorded here, and he would hear of them at once and ask again, as fast as he can.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator

from halfmoon.core.append import Appender
from halfmoon.core.append_types import Piece
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature, TopicPolicy
from halfmoon.core.records.batches import build_batch, parse_header
from halfmoon.core.relay import Load, Relays
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.errors import BrokerError, HalfmoonError
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from halfmoon.services.common.reserved_names import make_way

CONFIGS = {"cleanup.policy": "delete", "retention.ms": str(7 * 86_400_000), "retention.bytes": str(1 << 30)}
"""Strangers who are refused 200 times a second would fill 40 GB in a week."""
LINGER_MS = 500
AT_ONCE_BYTES = 128 << 10
"""Of lines in a batch, about. So many do not wait for the time."""
MOST_BYTES = 4 << 20
"""Of lines that wait; others are dropped."""


class AuditTopic:
    def __init__(
        self,
        catalog: Catalog,
        appender: Appender,
        topics: TopicAdministration,
        relays: Relays,
        clock: Clock,
        logger: logging.Logger,
        *,
        is_written: bool,
    ) -> None:
        """`is_written`: audit writes there; else its name is kept free for it."""
        self._is_written = is_written
        self._catalog = catalog
        self._appender = appender
        self._topics = topics
        self._relays = relays
        self._clock = clock
        self._logger = logger
        self._lines: deque[tuple[int, bytes]] = deque()
        """With their times, Unix ms."""
        self._bytes = 0
        self.dropped = 0
        """Lines, since the start."""

    def __str__(self) -> str:
        return "writer of the audit topic"

    def feature(self) -> Feature:
        policy = TopicPolicy(reserves=AUDIT_TOPIC.__eq__)
        return Feature("audit", restore=self._restore, start=self._start, stop=self._stop, topics=policy)

    def _restore(self) -> None:
        make_way((AUDIT_TOPIC,), self._catalog, self._appender, self._logger)

    def _start(self) -> None:
        self._relays.add(self, self)
        if self._is_written:
            try:
                self._partition()
            except BrokerError as error:  # it is tried again for the first line
                self._logger.warning("event=audit_topic_not_made reason=%s", error)

    def _stop(self) -> None:
        try:
            for _ in self.run():
                pass
        except HalfmoonError as error:
            self._logger.error("event=audit_dropped count=%d reason=%s", len(self._lines), error)
            self.dropped += len(self._lines)

    def put(self, line: bytes, *, echo: bool) -> None:
        """As of service.Sink."""
        if echo:
            return
        if self._bytes + len(line) > MOST_BYTES:
            self.dropped += 1
            return
        if not self._lines:
            self._relays.wake_at(self, self._clock.mono_ms() + LINGER_MS)
        before, self._bytes = self._bytes, self._bytes + len(line)
        self._lines.append((self._clock.wall_ms(), line))
        if before < AT_ONCE_BYTES <= self._bytes:
            self._relays.wake(self)

    def run(self) -> Generator[Load | None, object, None]:
        while self._lines:
            rows: list[tuple[None, bytes, int, tuple[()]]] = []
            size = 0
            for at_ms, line in self._lines:
                if rows and size + len(line) > AT_ONCE_BYTES:
                    break
                rows.append((None, line, at_ms, ()))
                size += len(line)
            batch = memoryview(bytearray(build_batch(rows)))
            self._appender.append_group([Piece(self._partition(), batch, parse_header(batch))], self._clock.wall_ms())
            for _ in rows:
                self._lines.popleft()
            self._bytes -= size
            yield None

    def _partition(self) -> Partition:
        """Raises BrokerError."""
        topic = self._catalog.topic(AUDIT_TOPIC)
        if topic is None:
            topic, _ = self._topics.create_topic(AUDIT_TOPIC, 1, CONFIGS, internal=True)
        return topic.here()[0]
