"""A change of the shared catalog, from the first record to the commit.

    begin ── what is new is read, under the store's lock, and applied
    append_control, …   the records of one administrative request: applied here, and remembered
    records ── encoded, for the store to commit: none is added from here on
    committed, or failed ── who waits is told

Whoever makes changes in one process today appends control records to its log and waits for a position. Here it is given
this in the log's place: positions are versions of the catalog. Where a topic is made or grows, it is said which shards
its partitions lie in.

A change that could not be committed is true in this process and nowhere else. Nothing here can take it back: the
process must stop, and read the catalog anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from halfmoon.cluster.placement import Layout, place_named
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, HalfmoonError
from halfmoon.schema import control
from halfmoon.schema.durability import DURABILITY, FAST

logger = logging.getLogger("halfmoon.server")

Told = Callable[[BrokerError | None], None]


class NoChangeError(HalfmoonError):
    """Somebody would change the shared catalog, and no change was begun: nothing has changed."""


class Changes:
    """Of one process; one change at a time."""

    def __init__(self, shared: SharedCatalog, layout: Layout) -> None:
        self._shared = shared
        self._layout = layout
        self._records: list[bytes] | None = None
        """Of the change that is being made, or committed."""
        self._is_open = False
        self._touched: set[int] = set()
        self._waiting: list[Told] = []
        self._failed: BrokerError | None = None

    @property
    def version(self) -> int:
        """Of what is true here: the change that is being made counts as soon as it has a record."""
        return self._shared.version + bool(self._records)

    @property
    def is_open(self) -> bool:
        """A change is being made. While it is committed, there is none: what came then would be true here alone."""
        return self._is_open

    def begin(self) -> None:
        """A change begins. The catalog is held, and what was new in it is applied."""
        assert self._records is None
        self._records, self._touched = [], set()
        self._is_open = True

    def append_control(self, record: control.Any) -> int:
        """As of core's ControlLog: the position is the version that the change is going to have. Raises
        NoChangeError."""
        if self._records is None or not self._is_open:
            raise NoChangeError("no change of the shared catalog was begun")
        self._append(self._records, record)
        for placed in self._placed(record):
            self._append(self._records, placed)
        return self.version

    def _append(self, records: list[bytes], record: control.Any) -> None:
        self._touched |= self._shared.apply(record)
        records.append(control.encode(record))

    def _placed(self, record: control.Any) -> Iterator[control.PartitionsPlaced]:
        catalog = self._shared.catalog
        if isinstance(record, control.TopicCreated):
            yield self._place(catalog.by_number[record.number], 0)
        elif isinstance(record, control.PartitionsAdded):
            topic = catalog.by_number[record.number]
            for each in (topic, *catalog.views_of(topic)):
                yield self._place(each, len(self._shared.placements[each.number]))

    def _place(self, topic: Topic, first: int) -> control.PartitionsPlaced:
        """A view lies where its source does: what is moved, and how far that has come, is one frame."""
        if topic.view is not None and topic.view.source_number in self._shared.placements:
            shards = self._shared.placements[topic.view.source_number][first : len(topic.partitions)]
        else:
            fast = topic.configs.get(DURABILITY, FAST) == FAST
            count = len(topic.partitions) - first
            shards = place_named(topic.name, topic.id, first, count, self._layout, fast=fast)
        return control.PartitionsPlaced(topic.number, first, shards)

    def when_durable(self, position: int, callback: Told) -> None:
        """Call back once this version of the catalog is committed, or with an error where it will not be."""
        if position <= self._shared.version:
            callback(None)
        elif self._failed is not None:
            callback(self._failed)
        else:
            self._waiting.append(callback)

    def records(self) -> list[bytes]:
        """Of the change, which is whole now; none where there is nothing to commit."""
        assert self._records is not None
        self._is_open = False
        return self._records

    def committed(self, version: int) -> set[int]:
        """The change is in the catalog; the numbers of the topics that it concerns."""
        assert self._records is not None and version == self._shared.version + 1
        self._shared.version = version
        self._records = None
        self._tell(None)
        return self._touched

    def abandoned(self) -> None:
        """There was nothing to commit."""
        assert not self._records
        self._records = None
        self._tell(None)

    def failed(self, error: BrokerError) -> None:
        """It is not known that the change was committed. There will be no other."""
        self._failed = error
        self._tell(error)

    def _tell(self, error: BrokerError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            try:
                callback(error)
            except Exception:
                logger.exception("event=callback_failed")
