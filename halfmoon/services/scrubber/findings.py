"""What was found corrupt: told, kept from readers, and forgotten when its file is gone, or whole again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from halfmoon.core import clean_files
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.storage.frame import Frame
from halfmoon.core.storage.log_files import segment_path
from halfmoon.core.storage.segment import Segment
from halfmoon.core.storage.storage import WriteSide
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.services.scrubber.checking import Corrupt
from halfmoon.services.scrubber.losses import Losses, is_indexed
from halfmoon.services.scrubber.saved import Lost, Stretch

MOST_NAMED = 20
"""Partitions of a stretch that get a line in the log, and stretches that /healthz names; the rest is counted."""


class Findings:
    def __init__(
        self,
        log: WriteSide,
        catalog: Catalog,
        losses: Losses,
        known_damage: Callable[[], Sequence[tuple[int, int]]],
        logger: logging.Logger,
    ) -> None:
        """`known_damage`: log positions that a start has found corrupt already."""
        self._log = log
        self._catalog = catalog
        self._losses = losses
        self._known_damage = known_damage
        self._logger = logger
        self.stretches: list[Stretch] = []

    def restore(self, stretches: Sequence[Stretch]) -> None:
        """They were found before the start."""
        self.stretches = list(stretches)
        for stretch in stretches:
            self._lose(stretch)

    def judged(self, corrupt: Corrupt, segment: Segment) -> Stretch | None:
        """What is to be kept of a discovery, with the records that it costs; None where a start has told of it."""
        if any(low < corrupt.high and corrupt.low < high for low, high in self._known_damage()):
            return None
        return Stretch(corrupt.low, corrupt.high, self._losses.of(corrupt, segment))

    def add(self, stretch: Stretch, segment: Segment) -> bool:
        """Tell of it, once; whether it is new."""
        if any(each.low < stretch.high and stretch.low < each.high for each in self.stretches):
            return False
        self.stretches.append(stretch)
        self._lose(stretch)
        self._tell(stretch, segment)
        return True

    def replace(self, stretch: Stretch, left: Sequence[Stretch]) -> None:
        """It was looked at anew, and this much of it is corrupt still."""
        self.stretches = [each for each in self.stretches if each is not stretch]
        self.stretches += left

    def regain(self, stretch: Stretch, batches: Sequence[Frame]) -> None:
        """These stand where a stretch was corrupt before the start: they can be read again."""
        for frame in batches:
            partition = self._catalog.partition(frame.topic_number, frame.partition)
            inside = stretch.low <= frame.position < stretch.high
            if inside and partition is not None and is_indexed(partition, frame):
                end = frame.base_offset + frame.span
                partition.regain(frame.base_offset, end)
                self._logger.info(
                    "event=records_regained topic=%s partition=%d offsets=%s",
                    partition.topic.name, partition.index, f"{frame.base_offset}-{end - 1}",
                )  # fmt: skip

    def forget_expired(self) -> bool:
        """Whether anything has."""
        before = len(self.stretches)
        self.stretches = [each for each in self.stretches if self._is_there(each)]
        return len(self.stretches) < before

    def problems(self) -> list[str]:
        """A sentence each."""
        found = []
        for stretch in self.stretches[:MOST_NAMED]:
            lost = [f"{partition!r} offsets {each.low} to {each.high - 1}" for partition, each in self._parts(stretch)]
            costs = f"{', '.join(lost[:MOST_NAMED])}{' and more' if len(lost) > MOST_NAMED else ''}"
            where = f"{self._file_of(stretch)} is corrupt, log positions {stretch.low} to {stretch.high}"
            found.append(f"{where}: {costs or 'no record is lost'}")
        if len(self.stretches) > MOST_NAMED:
            found.append(f"the log is corrupt in {len(self.stretches) - MOST_NAMED} more places")
        return found

    def _lose(self, stretch: Stretch) -> None:
        for partition, lost in self._parts(stretch):
            partition.lose(max(lost.low, partition.start_offset), lost.high)

    def _parts(self, stretch: Stretch) -> list[tuple[Partition, Lost]]:
        """Of partitions that are there still."""
        found = [(self._catalog.partition(lost.topic_number, lost.partition), lost) for lost in stretch.lost]
        return [(partition, lost) for partition, lost in found if partition is not None]

    def _tell(self, stretch: Stretch, segment: Segment) -> None:
        path, parts = _path(segment.start), self._parts(stretch)
        for partition, lost in parts[:MOST_NAMED]:
            self._logger.error(
                "event=corruption_found file=%s from=%d to=%d topic=%s partition=%d offsets=%s",
                path, stretch.low, stretch.high, partition.topic.name, partition.index, f"{lost.low}-{lost.high - 1}",
            )  # fmt: skip
        if not parts or len(parts) > MOST_NAMED:
            self._logger.error(
                "event=corruption_found file=%s from=%d to=%d more_partitions=%d",
                path, stretch.low, stretch.high, max(0, len(parts) - MOST_NAMED),
            )  # fmt: skip

    def _is_there(self, stretch: Stretch) -> bool:
        if stretch.low < CLEAN_BASE:
            return stretch.high > self._log.start
        return any(each.start <= stretch.low < each.end for each in self._log.cleaned)

    def _file_of(self, stretch: Stretch) -> str:
        segments = self._log.segments if stretch.low < CLEAN_BASE else self._log.cleaned
        return _path(max((each.start for each in segments if each.start <= stretch.low), default=stretch.low))


def _path(start: int) -> str:
    return clean_files.data_path(start) if start >= CLEAN_BASE else segment_path(start)
