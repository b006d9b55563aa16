"""Holding index files against the log they were made from, for `inspect`."""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.core.storage.frame import Frame
from halfmoon.core.storage.index import IndexFile, Key


class IndexCheck:
    """Is shown every whole batch frame of the log, in order; `finish` says what is wrong with the files."""

    def __init__(self, files: Sequence[IndexFile], catalog: dict[Key, int]) -> None:
        """`files` in order, none overlapping another. `catalog`: the partitions that exist and where each starts.

        A file may leave out the others.
        """
        self._files = list(reversed(files))
        self._catalog = catalog
        self._rows: dict[Key, int] = {}
        """Next row of each partition in the current file."""
        self._wrong: dict[str, str] = {}
        """The first thing wrong with a file, by its path."""

    def batch(self, frame: Frame) -> None:
        self._advance(frame.position)
        file = self._files[-1] if self._files else None
        if file is None or frame.position < file.start:
            return
        key = Key(frame.topic_number, frame.partition)
        run = file.runs.get(key)
        if run is None:
            if key in self._catalog and frame.base_offset >= self._catalog[key]:
                self._complain(file, f"lacks partition {key.partition} of topic number {key.topic_number}")
            return
        columns = file.columns
        row = self._rows.get(key, run.low)
        # Rows whose frames are damaged are passed over.
        while row < run.high and columns.position[row] < frame.payload_position:
            row += 1
        self._rows[key] = row + 1
        if row >= run.high or (columns.position[row], columns.base[row], columns.span[row]) != (
            frame.payload_position, frame.base_offset, frame.span,
        ):  # fmt: skip
            self._complain(file, f"does not have the batch at {frame.position}")

    def finish(self, end: int) -> dict[str, str]:
        """A sentence for each wrong file, by its path."""
        self._advance(end + 1)
        return {path: f"index file {path} {what}; it can be rebuilt from the log" for path, what in self._wrong.items()}

    def _advance(self, position: int) -> None:
        while self._files and self._files[-1].end <= position:
            self._files.pop()
            self._rows.clear()

    def _complain(self, file: IndexFile, what: str) -> None:
        self._wrong.setdefault(file.path, what)
