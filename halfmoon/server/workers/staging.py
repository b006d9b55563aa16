"""Makes shards of the data directory of one process, in a folder in it: for several workers, or for a cluster.

No record is copied. Each shard gets the sealed files of the log, and what is derived of them, as hard links, and is
then told in a log of its own what is other shards' (`dividing`). A sealed file is never written to again, and whoever
does not need it any more removes his name of it. The segment that was written last is copied once, as far as it is
written.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import msgspec

from halfmoon.cluster.backup.parallel import Progress
from halfmoon.cluster.placement import Layout
from halfmoon.config.settings import load_settings
from halfmoon.core import clean_files, clean_mark, identity
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.identity import Identity
from halfmoon.core.kernel import Kernel
from halfmoon.core.relay import Loading
from halfmoon.core.storage import index
from halfmoon.core.storage.files import OsFileSystem, read_file, write_all, write_file
from halfmoon.core.storage.local import shard_storage
from halfmoon.core.storage.log_files import FOLDER, list_segments, segment_path
from halfmoon.errors import HalfmoonError, StartError
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.schema import control
from halfmoon.server.assembly import Node, Sections
from halfmoon.server.workers.dividing import Division, chooses
from halfmoon.server.workers.plan import shard_folder
from halfmoon.services.following import saved as following
from halfmoon.services.keyindex import key_file
from halfmoon.services.topic_configs import topic_configs

SEGMENT = "4MiB"
"""Of a shard's first segment, which holds what it is told here; it is larger where that is more."""
_COPY_BYTES = 16 << 20
_FLUSHED = 10_000
"""Control records between two flushes."""
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)

_quiet = logging.getLogger("halfmoon.import")


class Prepared(NamedTuple):
    """A log of one process that can be divided: it is as after a clean stop."""

    division: Division
    end: int
    """Of the log."""
    segments: list[int]
    """Where each begins."""
    transactions: int
    """That were not ended, and are aborted."""
    transactional_ids: int
    """That are forgotten."""


class Staging:
    def __init__(
        self,
        fs: OsFileSystem,
        made: str,
        layout: Layout,
        progress: Progress,
        clock: Clock,
        on_objects: Sequence[str] = (),
    ) -> None:
        """`made`: the folder of what is made. `progress`: counts shards. `on_objects`: patterns of names of topics
        whose messages are to lie in shards of objects from now on. Raises StartError where there is no data
        directory."""
        self._fs = fs
        self._root = fs.root
        self._name = made
        self._made = fs.root / made
        self._layout = layout
        self._shards = layout.shards
        self._progress = progress
        self._clock = clock
        self._on_objects = on_objects
        self.meta = _identity(fs)
        self._settings = load_settings(
            {
                "node": {"id": self.meta.node_id, "data_dir": str(fs.root)},
                "log": {"segment_bytes": SEGMENT, "low_disk_bytes": 0},
            }, {}, {},
        )  # fmt: skip
        self._table = topic_configs((), load_plugins(self._settings, BUILT_IN).topic_configs)

    def check_links(self) -> None:
        """Raises StartError where files cannot be linked."""
        device = self._root.stat().st_dev
        for name in (FOLDER, index.FOLDER, key_file.FOLDER, clean_files.FOLDER):
            folder = self._root / name
            if folder.exists() and folder.stat().st_dev != device:
                raise StartError(f"{name} is on another file system: an import links files, and cannot do so there")

    def prepare(self) -> Prepared:
        """Bring the log to a clean end, without transactions, and find out what becomes of it. What can be refused is
        refused before the first of them is ended. Raises StartError, OSError."""
        with self._source() as node:
            kernel = node.kernel
            self._check_patterns(kernel.catalog)
            self._check_room(kernel.log.end - self._segments(kernel.log.end)[-1], kernel.catalog)
            transactions, ids = _forget_transactions(node)
            division = Division(kernel, self._settings, self._table, self._layout, self._is_on_objects)
        end = kernel.log.end
        if clean_mark.read(self._fs) != end:
            raise StartError(
                "the log could not be brought to a clean end; its transactions may have been ended. See the log lines "
                "above"
            )
        return Prepared(division, end, self._segments(end), transactions, ids)

    def _segments(self, end: int) -> list[int]:
        return [start for start, _ in list_segments(self._fs) if start < end]

    def _is_on_objects(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._on_objects)

    def _check_patterns(self, catalog: Catalog) -> None:
        """Raises StartError."""
        names = [topic.name for topic in catalog.by_number.values() if chooses(topic)]
        for pattern in self._on_objects:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise StartError(f"{pattern!r} matches no topic that can have halfmoon.durability=object")

    def make(self, prepared: Prepared) -> int:
        """All shards; how many files each has. Raises StartError, OSError."""
        last, end = prepared.segments[-1], prepared.end
        self._fs.make_directory(self._name)
        self._fs.sync_directory("")
        links = [self._last(last, end), *self._linked(last)]
        for number in range(self._shards):
            self._make(number, links, end, prepared.division)
            self._progress(number + 1, self._shards)
        return len(links)

    @contextlib.contextmanager
    def _source(self) -> Iterator[Node]:
        """The log of one process, open; then stopped as by a clean stop. Raises StartError where it is not whole."""
        configs = load_plugins(self._settings, BUILT_IN).topic_configs
        node = Node(
            self._fs, self._settings, self._clock, os.urandom, logger=_quiet, more_topic_configs=configs,
        )  # fmt: skip
        kernel = node.kernel
        try:
            with translated():
                node.open()
        except BaseException:
            kernel.log.close()
            raise
        try:
            report = kernel.report
            if report.damaged or report.missing or kernel.clean_files.lost:
                raise StartError(
                    "the log is damaged: see `halfmoon log verify`, and bring it in order with `halfmoon log repair`"
                )
            with translated():
                yield node
        finally:
            node.close()

    def _check_room(self, copied: int, catalog: Catalog) -> None:
        """Raises StartError."""
        head = len(snapshot.take(catalog, 0, 0))
        first = max(self._settings.log.segment_bytes, 4 * head)  # which the head is a quarter of
        needed = copied + self._shards * (first + 2 * head)
        free = self._fs.free_bytes()
        if free < needed:
            raise StartError(f"an import takes {needed >> 20} MiB of disk, and {free >> 20} MiB are free")

    def _last(self, start: int, end: int) -> tuple[Path, str]:
        """The segment that was written last, copied as far as it is written: each shard goes on in one of its own.
        Source, and path in each shard."""
        path = segment_path(start)
        source, target = self._fs.open(path), self._fs.open(f"{self._name}/last", create=True)
        try:
            left, at = end - start, 0
            while left:
                data = source.pread(min(_COPY_BYTES, left), at)
                at = write_all(target, [data], at)
                left -= len(data)
            target.sync()
        finally:
            source.close()
            target.close()
        return self._made / "last", path

    def _linked(self, last: int) -> Iterator[tuple[Path, str]]:
        """The same of all other files that shards share. `last`: where the last segment begins."""
        fs = self._fs
        paths = [path for start, path in list_segments(fs) if start < last]
        paths += [path for _, _, path in index.listed(fs)]
        paths += [path for _, _, path in key_file.listed(fs)]
        for start in clean_files.listed(fs):
            paths += [path for path in (clean_files.data_path(start), clean_files.index_path(start)) if self._is(path)]
        for path in (*paths, "checkpoint", clean_mark.CLEAN_MARK):
            yield self._root / path, path

    def _is(self, path: str) -> bool:
        return (self._root / path).exists()

    def _make(self, number: int, links: list[tuple[Path, str]], end: int, division: Division) -> None:
        folder = self._made / shard_folder(Path(), number)
        fs = OsFileSystem(folder)
        folders = (FOLDER, index.FOLDER, key_file.FOLDER, clean_files.FOLDER)
        for name in folders:
            fs.make_directory(name)
        for source, path in links:
            try:
                os.link(source, folder / path)
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise StartError(f"{source} cannot be linked: {error.strerror}") from error
                raise
        for name in folders:
            fs.sync_directory(name)
        _copy_positions(self._root, fs)
        meta = Identity(identity.FORMAT, self.meta.cluster_id, number)
        write_file(fs, identity.PATH, [msgspec.json.encode(meta)])
        settings = msgspec.structs.replace(self._settings, node=msgspec.structs.replace(self._settings.node, id=number))
        with translated():
            self._divide(Kernel(
                fs, settings, self._clock, os.urandom, logger=_quiet, topic_configs=self._table,
                storage=shard_storage(settings, self._shards),
            ), number, end, division)  # fmt: skip
        fs.sync_directory("")
        self._fs.sync_directory(self._name)

    def _divide(self, kernel: Kernel, number: int, end: int, division: Division) -> None:
        state = Sections(kernel.catalog, division.common)
        try:
            kernel.open()
        except BaseException:
            kernel.log.close()
            raise
        try:
            assert kernel.report.clean and kernel.log.end == end
            kernel.begin()
            for nth, record in enumerate(division.records(number, end, kernel.catalog, state), 1):
                kernel.appender.append_control(record)
                if nth % _FLUSHED == 0:
                    kernel.turn.flush()
            kernel.turn.flush()
        finally:
            kernel.close()
        if clean_mark.read(kernel.fs) != kernel.log.end:
            raise StartError(f"shard {number} could not be written")


def _identity(fs: OsFileSystem) -> Identity:
    """Of the directory of one process. Raises StartError."""
    if read_file(fs, identity.PATH) is None:
        if list_segments(fs):
            raise StartError(f"{identity.PATH} is missing, but there is a log: `halfmoon log repair` makes a new one")
        raise StartError(f"no data directory: there is no {identity.PATH} in it")
    return Identity.load_or_make(fs, None, os.urandom)


def _copy_positions(root: Path, fs: OsFileSystem) -> None:
    """How far plugins have followed the log: each shard goes on there, with what is its own."""
    for path in sorted((root / following.FOLDER).glob("*/*.position")):
        name = str(path.relative_to(root))
        for folder in (following.FOLDER, str(Path(name).parent)):
            fs.make_directory(folder)
        write_file(fs, name, [path.read_bytes()])
        fs.sync_directory(following.FOLDER)


def _forget_transactions(node: Node) -> tuple[int, int]:
    """Abort what is ongoing, carry out what is decided, and forget all transactional ids: how many transactions were
    aborted, and ids forgotten."""
    kernel, transactions = node.kernel, node.transactions
    aborted = 0
    for entry in list(transactions.by_name.values()):
        if entry.is_ongoing:
            transactions.end(entry.name, entry.producer_id, entry.epoch, commit=False, bumps=False)
            aborted += 1
    for feature in kernel.features.all:
        if feature.name == "transactions" and feature.start is not None:
            feature.start()  # which carries out what is prepared, those just now aborted included
    relays = kernel.relays
    while relays.has_work:
        loading = relays.step()
        assert not isinstance(loading, Loading), "markers are appended, and nothing is read"
        kernel.turn.flush()
    if problems := relays.problems():
        raise StartError(f"transactions could not be ended: {problems[0]}")
    names = list(transactions.by_name)
    for at in range(0, len(names), _FLUSHED):
        kernel.appender.append_control(control.TransactionalIdsExpired(names[at : at + _FLUSHED]))
    kernel.turn.flush()
    return aborted, len(names)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except StartError:
        raise
    except HalfmoonError as error:
        raise StartError(str(error)) from error
