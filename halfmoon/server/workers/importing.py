"""`halfmoon cluster import`: makes a data directory of shards from one of one process, in place and offline.

No record is copied. Each shard gets the sealed files of the log, and what is derived of them, as hard links, and is
then told in a log of its own what is other shards' (`dividing`). A sealed file is never written to again, and whoever
does not need it any more removes his name of it. The segment that was written last is copied once, as far as it is
written.

    DIR/import.new/     all of it is made here: shard-00 …, catalog.sqlite
    DIR/shard-00 …      moved to their places
    DIR/catalog.sqlite  moved last: from here on the directory is one of shards
    DIR/before-import/  where the files of the one process go then

Until the catalog is in its place the directory is that of one process, whatever else is in it; afterwards it is one of
shards, and only files may still have to be moved. Where import.new is, an import has begun and not ended, and all
shards beside it are its own: the next one begins anew, or goes on with moving.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from halfmoon.cluster.placement import MOST_SHARDS
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import Cluster
from halfmoon.config.settings import load_settings
from halfmoon.core import clean_files, clean_mark, identity
from halfmoon.core.catalog import snapshot
from halfmoon.core.clock import Clock
from halfmoon.core.identity import Identity
from halfmoon.core.kernel import Kernel
from halfmoon.core.relay import Loading
from halfmoon.core.storage import bounds, index
from halfmoon.core.storage.files import OsFileSystem, read_file, write_all, write_file
from halfmoon.core.storage.local import shard_storage
from halfmoon.core.storage.log_files import FOLDER, list_segments, segment_path
from halfmoon.errors import HalfmoonError, StartError
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.schema import control
from halfmoon.server.assembly import Node, Sections
from halfmoon.server.clock import SystemClock
from halfmoon.server.workers.dividing import Division
from halfmoon.server.workers.plan import CATALOG, shard_folder
from halfmoon.services.credentials.node_key import NodeKey
from halfmoon.services.following import saved as following
from halfmoon.services.keyindex import key_file
from halfmoon.services.scrubber import saved as scrubber
from halfmoon.services.topic_configs import topic_configs

MADE = "import.new"
BEFORE = "before-import"
SEGMENT = "4MiB"
"""Of a shard's first segment, which holds what it is told here; it is larger where that is more."""
_MOVED = (
    identity.PATH, "checkpoint", clean_mark.CLEAN_MARK, bounds.PATH, scrubber.PATH, FOLDER, index.FOLDER,
    key_file.FOLDER, clean_files.FOLDER,
)  # fmt: skip
"""The files of one process. The first one first: without it no program takes the rest for a data directory."""
MOST_MAPPED = 50_000
"""Files of one process; Linux allows 65,530 unless told otherwise (vm.max_map_count)."""
_COPY_BYTES = 16 << 20
_FLUSHED = 10_000
"""Control records between two flushes."""
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)

Progress = Callable[[int, int], None]
"""Called now and then with shards that are made, and how many there will be."""

_quiet = logging.getLogger("halfmoon.import")


class Imported(Struct):
    cluster_id: str
    shards: int
    topics: int
    """That the shards share."""
    segments: int
    """Of the log, each of which has a name in every shard."""
    transactions: int
    """That were not ended, and are aborted."""
    transactional_ids: int
    """That are forgotten: their producers get new ids."""
    least_workers: int
    """With fewer, one process would have more files mapped than systems let it."""


def import_directory(
    directory: Path, shards: int, progress: Progress | None = None, clock: Clock | None = None
) -> Imported | None:
    """None where the directory is one of shards, and an import of it has now been brought to its end. Raises
    StartError, OSError."""
    if not 1 <= shards <= MOST_SHARDS:
        raise StartError(f"{shards} shards; from 1 to {MOST_SHARDS} are possible")
    if not directory.is_dir():
        raise StartError("there is no such directory")
    fs = OsFileSystem(directory)
    fs.lock()
    try:
        if (directory / CATALOG).exists():
            if not any((directory / name).exists() for name in (MADE, *_MOVED)):
                raise StartError("this is the data directory of several workers already")
            _put_aside(fs)
            return None
        return _Import(fs, shards, progress or (lambda _done, _all: None), clock or SystemClock()).run()
    finally:
        fs.unlock()


class _Import:
    def __init__(self, fs: OsFileSystem, shards: int, progress: Progress, clock: Clock) -> None:
        self._fs = fs
        self._root = fs.root
        self._made = fs.root / MADE
        self._shards = shards
        self._progress = progress
        self._clock = clock
        self._meta = _identity(fs)
        self._settings = load_settings(
            {
                "node": {"id": self._meta.node_id, "data_dir": str(fs.root)},
                "log": {"segment_bytes": SEGMENT, "low_disk_bytes": 0},
            }, {}, {},
        )  # fmt: skip
        self._table = topic_configs((), load_plugins(self._settings, BUILT_IN).topic_configs)

    def run(self) -> Imported:
        self._check()
        self._clear()
        with self._source() as node:
            kernel = node.kernel
            transactions, ids = _forget_transactions(node)
            division = Division(kernel, self._settings, self._table, self._shards)
            head = len(snapshot.take(kernel.catalog, 0, 0))
        end = kernel.log.end
        if clean_mark.read(self._fs) != end:
            raise StartError(
                "the log could not be brought to a clean end; nothing has changed. See the log lines above"
            )
        segments = [start for start, _ in list_segments(self._fs) if start < end]
        self._check_room(end - segments[-1], head)
        try:
            links = self._make_all(segments[-1], end, division)
        except (OSError, HalfmoonError):
            with contextlib.suppress(OSError):
                self._clear()  # its links would keep what expires
            raise
        self._fs.rename(f"{MADE}/{CATALOG}", CATALOG)
        self._fs.sync_directory("")
        _put_aside(self._fs)
        topics = len(division.shared.catalog.by_number)
        least = -(-self._shards * links // MOST_MAPPED)
        return Imported(self._meta.cluster_id, self._shards, topics, len(segments), transactions, ids, least)

    def _make_all(self, last: int, end: int, division: Division) -> int:
        """Everything, but that it is not true yet; how many files each shard has. `last`: where the last segment
        begins."""
        self._fs.make_directory(MADE)
        self._fs.sync_directory("")
        links = [self._last(last, end), *self._linked(last)]
        for number in range(self._shards):
            self._make(number, links, end, division)
            self._progress(number + 1, self._shards)
        NodeKey(self._fs, os.urandom).make()  # else each worker makes one
        self._make_catalog(division)
        for number in range(self._shards):
            self._fs.rename(f"{MADE}/{shard_folder(Path(), number)}", str(shard_folder(Path(), number)))
        self._fs.sync_directory("")
        return len(links)

    # -- before --------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raises StartError."""
        if (self._root / BEFORE).exists():
            raise StartError(f"there is {BEFORE} in it, of an earlier import: remove it, or move it away")
        if not self._made.exists() and _shards_in(self._root):
            raise StartError(
                f"there are shards in it, and no {CATALOG}: is it the rest of a directory of several workers?"
            )
        device = self._root.stat().st_dev
        for name in (FOLDER, index.FOLDER, key_file.FOLDER, clean_files.FOLDER):
            folder = self._root / name
            if folder.exists() and folder.stat().st_dev != device:
                raise StartError(f"{name} is on another file system: an import links files, and cannot do so there")

    def _clear(self) -> None:
        """Remove what an import has left that did not come to its end. What says that it did not, last."""
        if self._made.exists():
            for folder in _shards_in(self._root):
                shutil.rmtree(folder)
            self._fs.sync_directory("")
            shutil.rmtree(self._made)
            self._fs.sync_directory("")

    @contextlib.contextmanager
    def _source(self) -> Iterator[Node]:
        """The log of one process, open; then stopped as by a clean stop. Raises StartError where it is not whole."""
        configs = load_plugins(self._settings, BUILT_IN).topic_configs
        node = Node(
            self._fs, self._settings, self._clock, os.urandom, logger=_quiet, more_topic_configs=configs,
        )  # fmt: skip
        kernel = node.kernel
        try:
            with _translated():
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
            with _translated():
                yield node
        finally:
            node.close()

    def _check_room(self, copied: int, head: int) -> None:
        """`head`: how many bytes a snapshot has. Raises StartError."""
        first = max(self._settings.log.segment_bytes, 4 * head)  # which the head is a quarter of
        needed = copied + self._shards * (first + 2 * head)
        free = self._fs.free_bytes()
        if free < needed:
            raise StartError(f"an import takes {needed >> 20} MiB of disk, and {free >> 20} MiB are free")

    # -- the files -----------------------------------------------------------------------------------------------------

    def _last(self, start: int, end: int) -> tuple[Path, str]:
        """The segment that was written last, copied as far as it is written: each shard goes on in one of its own.
        Source, and path in each shard."""
        path = segment_path(start)
        source, target = self._fs.open(path), self._fs.open(f"{MADE}/last", create=True)
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
        meta = Identity(identity.FORMAT, self._meta.cluster_id, number)
        write_file(fs, identity.PATH, [msgspec.json.encode(meta)])
        settings = msgspec.structs.replace(self._settings, node=msgspec.structs.replace(self._settings.node, id=number))
        with _translated():
            self._divide(Kernel(
                fs, settings, self._clock, os.urandom, logger=_quiet, topic_configs=self._table,
                storage=shard_storage(settings, self._shards),
            ), number, end, division)  # fmt: skip
        fs.sync_directory("")
        self._fs.sync_directory(MADE)

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

    def _make_catalog(self, division: Division) -> None:
        path = self._made / CATALOG
        SqliteStore.create(path, Cluster(self._meta.cluster_id, self._shards))
        store = SqliteStore(path)
        try:
            store.keep(division.shared.version, division.shared.save())
        finally:
            store.close()
        with contextlib.suppress(FileNotFoundError):
            if path.with_name(f"{CATALOG}-wal").stat().st_size:
                raise StartError(f"{CATALOG} could not be written as one file")


def _identity(fs: OsFileSystem) -> Identity:
    """Of the directory of one process. Raises StartError."""
    if read_file(fs, identity.PATH) is None:
        if list_segments(fs):
            raise StartError(f"{identity.PATH} is missing, but there is a log: `halfmoon log repair` makes a new one")
        raise StartError(f"no data directory: there is no {identity.PATH} in it")
    return Identity.load_or_make(fs, None, os.urandom)


def _shards_in(root: Path) -> list[Path]:
    return sorted(each for each in root.glob("shard-*") if each.is_dir())


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


def _put_aside(fs: OsFileSystem) -> None:
    """The directory is one of shards: move the files of one process away. What says that this is not done, last."""
    fs.make_directory(BEFORE)
    for name in _MOVED:
        if (fs.root / name).exists():
            fs.rename(name, f"{BEFORE}/{name}")
            fs.sync_directory("")
    fs.sync_directory(BEFORE)
    shutil.rmtree(fs.root / MADE, ignore_errors=True)
    fs.sync_directory("")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except StartError:
        raise
    except HalfmoonError as error:
        raise StartError(str(error)) from error
