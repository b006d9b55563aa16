"""Following the log for a dispatcher of a plugin: every batch once, when it is durable.

A follower is a relay task (core/relay.py) that walks the log behind the fdatasync, frame by frame:

    saved position ≤ position ≤ flushed ≤ written

With `flush: interval` more than that is visible; a power cut may take it back, so it is not shown. The same walk serves
a dispatcher that is behind after a start: what is far behind is read ahead in a thread.

Transactions: a batch is shown when it is known whether it was aborted. So behind the first batch of an open transaction
its partition is *held*: what follows there waits for the marker, and the other partitions go on. Everything that a
held partition needs is found again by walking the log from its first batch that was not shown.

A dispatcher that raises is halted until the next start, at its last checkpoint.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Generator, Sequence
from typing import Any

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batch_header import CONTROL, TRANSACTIONAL, parse_header
from halfmoon.core.relay import Load
from halfmoon.core.steps import finish
from halfmoon.core.storage.ahead import Ahead
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.core.storage.frame_reading import WholeFrame
from halfmoon.core.storage.scan import Scan
from halfmoon.core.storage.storage import Frames, ReadSide, WriteSide
from halfmoon.core.transactions import marker
from halfmoon.core.transactions.aborted import Aborted, AbortedBatches
from halfmoon.core.turn import Turn
from halfmoon.errors import BrokerError
from halfmoon.services.following import saved as files
from halfmoon.services.following.saved import Mark, Saved
from halfmoon.services.following.types import Batch, Dispatcher

AT_ONCE = 200
"""Frames that are looked at, and batches that are shown, between two pauses."""
AHEAD_BYTES = 4 << 20
"""Where it is further behind, so much is looked at before it lets go of a segment."""
ATTRIBUTES_AT = 22
"""The low byte of a batch's attributes."""

Steps = Generator["Load | None", Any, None]
_Key = tuple[int, int]
"""Topic number, partition."""


class _Held:
    """A partition whose batches wait for a transaction's end."""

    __slots__ = ("aborted", "ended", "open", "positions")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """Producer id → first offset of its transaction."""
        self.aborted: list[Aborted] = []
        self.positions: array[int] = array("Q")
        """Log positions of the frames that wait."""
        self.ended = False
        """A transaction has ended since it was looked at."""


class Follower:
    """Of one dispatcher."""

    def __init__(
        self, plugin: str, dispatcher: Dispatcher, log: WriteSide, reader: ReadSide, catalog: Catalog, turn: Turn,
        cluster_id: str, logger: logging.Logger,
    ) -> None:  # fmt: skip
        self._plugin = plugin
        self._dispatcher = dispatcher
        self._log = log
        self._reader = reader
        self._catalog = catalog
        self._turn = turn
        self._cluster_id = cluster_id
        self._logger = logger
        self._path = files.path_of(plugin, dispatcher.name)
        self._one_save = threading.Lock()
        self.position = 0
        """All frames below it are dealt with, but for held partitions."""
        self._last: Mark | None = None
        self._held: dict[_Key, _Held] = {}
        self._resumed_at = 0
        """What is below it was dealt with before the start, …"""
        self._again: dict[_Key, int] = {}
        """… but in these partitions what is behind these positions."""
        self._save_due = False
        self._saved_at = -1
        self.problem = ""
        """Why it is halted."""
        self.missed = ""
        """What it was not shown, because it was deleted before."""

    def __str__(self) -> str:
        return f"dispatcher {self._dispatcher.name} of plugin {self._plugin}"

    # -- beginning and ending --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Find out where to go on. Raises OSError."""
        log, fs = self._log, self._log.fs
        fs.make_directory(files.FOLDER)
        fs.make_directory(files.folder_of(self._plugin))
        fs.sync_directory("")
        fs.sync_directory(files.FOLDER)
        found: Saved | None = None
        try:
            found = files.load(fs, self._path)
            if found is not None:
                files.check(found, log, self._cluster_id)
        except ValueError as error:
            self._logger.warning("event=position_rejected what=%r file=%s reason=%s", str(self), self._path, error)
            self.missed = f"{self} starts from the beginning: {self._path}: {error}"
            found = None
        self.position = self._resumed_at = log.start
        if found is not None:
            self._resumed_at, self._last = found.position, found.last
            self._again = {(number, index): first for number, index, first in found.held}
            self.position = min((found.position, *self._again.values()))
        self._restore(None if found is None else found.state)

    def _restore(self, state: bytes | None) -> None:
        if self._dispatcher.restore is not None:
            try:
                self._dispatcher.restore(state)
            except Exception as error:
                self._halt(error)

    def save_soon(self) -> None:
        self._save_due = True

    def close(self) -> None:
        """Show what is durable and near, and save, waiting for it. Raises OSError."""
        if self._upto() - self.position <= AHEAD_BYTES:
            self._save_due = True
            finish(self.run())

    # -- following -------------------------------------------------------------------------------------------------

    def run(self) -> Steps:
        while not self.problem:
            if self.position < self._log.start:
                self._skip_to(self._log.start)
            upto = self._upto()
            if self.position < upto:
                yield from self._walk(upto)
            yield from self._release()
            if self._save_due and not self.problem:
                yield from self._save()
            if self.position >= self._upto():
                return
            yield None

    def _upto(self) -> int:
        """How far the log is durable and visible."""
        return min(self._log.flushed, self._turn.dispatch.position)

    def _skip_to(self, start: int) -> None:
        """The log begins there now."""
        dealt_with = max(self.position, self._resumed_at)
        if dealt_with < start:
            self.missed = f"{self} has missed log positions {dealt_with} to {start}, which were deleted before"
            self._logger.warning("event=follower_missed what=%r from=%d to=%d", str(self), dealt_with, start)
        self.position = start

    def _walk(self, upto: int) -> Steps:
        """Some frames further, within a segment."""
        log, begin = self._log, self.position
        segment = log.segment_at(begin)
        ahead = Ahead(self._reader.bring, segment, begin, upto)
        while (load := ahead.needs(begin)) is not None:
            yield load
        end = min(upto, segment.end)
        if upto - begin > AHEAD_BYTES:
            end = min(end, begin + AHEAD_BYTES)
        scan = Scan([segment], begin, 0, min(upto, segment.end))
        frames = scan.frames()
        shown: list[Batch] = []
        in_group = False  # the frames of a group come when all of it has been read
        count = 0
        while in_group or (scan.position < end and count < AT_ONCE):
            if not in_group and ahead.needs(scan.position) is not None:
                break  # what has been looked at is shown first: if the load fails, it is not looked at again
            entry = next(frames, None)
            if entry is None:
                scan.position = max(scan.position, end)
                break
            seen, payload = entry
            in_group = seen.part < seen.parts - 1
            count += 1
            if seen.kind == Kind.BATCH and payload is not None:
                self._frame(seen, payload, shown)
            self._last = Mark(seen.position, seen.end, seen.generation, seen.payload_crc)
        if self._show(shown):
            self.position = min(scan.position, upto, segment.end)
            if self._last is not None and self._last.end != self.position:
                self._last = None  # something is lost to corruption before it
        ahead.close()

    def _frame(self, seen: Frame, payload: memoryview, shown: list[Batch]) -> None:
        """Show it, or hold it."""
        key = seen.topic_number, seen.partition
        if seen.position < self._resumed_at and seen.position < self._again.get(key, self._resumed_at):
            return
        partition = self._catalog.partition(*key)
        if partition is None:
            self._held.pop(key, None)
            return
        bits = payload[ATTRIBUTES_AT] & (TRANSACTIONAL | CONTROL)
        held = self._held.get(key)
        if held is None:
            if not bits or bits & CONTROL:
                self._add(shown, partition, seen, payload, bits)
                return
            held = self._held[key] = _Held()
        held.positions.append(seen.position)
        if bits & CONTROL:
            producer_id = parse_header(payload).producer_id
            first = held.open.pop(producer_id, None)
            if first is not None:
                held.ended = True
                if not _is_commit(payload):
                    held.aborted.append(Aborted(producer_id, first, seen.base_offset))
        elif bits:
            held.open.setdefault(parse_header(payload).producer_id, seen.base_offset)

    def _add(
        self, shown: list[Batch], partition: Partition, seen: Frame, payload: memoryview, bits: int,
        *, aborted: bool = False,
    ) -> None:  # fmt: skip
        end_offset = seen.base_offset + seen.span
        if end_offset > partition.start_offset:  # else it is deleted
            topic = partition.topic
            shown.append(Batch(
                topic.name, partition.index, seen.base_offset, end_offset, seen.record_count, seen.position,
                seen.store_ms, payload, seen.provenance_length > 0, topic.internal, bool(bits & TRANSACTIONAL),
                bool(bits & CONTROL), aborted,
            ))  # fmt: skip

    def _release(self) -> Steps:
        """Show what waited for transactions that have ended."""
        for key in [key for key, held in self._held.items() if held.ended]:
            held = self._held[key]
            stable = min(held.open.values(), default=None)
            aborted = AbortedBatches(held.aborted)
            while held.positions and not self.problem:
                positions = held.positions[:AT_ONCE]
                reader = self._reader.frames()
                wholes = yield _reading_frames(reader, positions)
                partition = self._catalog.partition(*key)
                if partition is None:
                    del self._held[key]
                    break
                shown: list[Batch] = []
                count = 0
                for whole in wholes:
                    if whole is not None:
                        if stable is not None and whole.frame.base_offset >= stable:
                            break
                        bits = whole.payload[ATTRIBUTES_AT] & (TRANSACTIONAL | CONTROL)
                        hidden = aborted.hold(parse_header(whole.payload))
                        self._add(shown, partition, whole.frame, whole.payload, bits, aborted=hidden)
                    count += 1
                if self._show(shown):
                    del held.positions[:count]
                if count < len(wholes):
                    break
            held.ended = False  # not before: a read that fails ends the run, and the next one does this again
            if not held.positions:
                self._held.pop(key, None)

    def _show(self, batches: Sequence[Batch]) -> bool:
        if batches:
            try:
                self._dispatcher.on_batches(batches)
            except Exception as error:
                self._halt(error)
        return not self.problem

    def _halt(self, error: Exception) -> None:
        self._logger.error(
            "event=dispatcher_halted plugin=%s dispatcher=%s position=%d",
            self._plugin, self._dispatcher.name, self.position, exc_info=error,
        )  # fmt: skip
        self.problem = f"{self} is halted: {type(error).__name__}: {error}"

    # -- saving ----------------------------------------------------------------------------------------------------

    def _save(self) -> Steps:
        """Raises OSError."""
        self._save_due = False
        if self.position < self._resumed_at or self.position == self._saved_at:
            return
        try:
            state = self._dispatcher.checkpoint()
            if not isinstance(state, bytes):
                raise TypeError(f"checkpoint gave {state!r}, expected bytes")
        except Exception as error:
            self._halt(error)
            return
        held = tuple((*key, each.positions[0]) for key, each in self._held.items())
        position = self.position
        found = Saved(self._cluster_id, position, held, self._last, state)

        def save() -> None:
            with self._one_save:
                files.save(self._log.fs, self._path, found)

        yield save
        self._saved_at = position


def _is_commit(payload: memoryview) -> bool:
    try:
        return marker.is_commit(payload)
    except BrokerError:
        return False


def _reading_frames(reader: Frames, positions: Sequence[int]) -> Load:
    """Reads the first of them, as many as can be read now. Raises OSError where the first cannot."""

    def load() -> list[WholeFrame | None]:
        found: list[WholeFrame | None] = []
        for position in positions:
            try:
                found.append(reader.read(position))
            except OSError:
                if not found:
                    raise
                break
        return found

    return load
