"""The log on a disk of this machine: the first storage engine."""

from __future__ import annotations

from halfmoon.config.settings import Settings
from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.reading import Reader


class LocalStorage:
    """See core/storage/storage.Storage."""

    def __init__(self, fs: FileSystem, settings: Settings, *, one_of_many: bool = False) -> None:
        """`one_of_many`: as of CommitLog."""
        log = settings.log
        self.log = CommitLog(fs, log.segment_bytes, log.low_disk_bytes, one_of_many=one_of_many)
        buffers = FetchBuffers(settings.limits.fetch_buffer_bytes)
        self.reader = Reader(self.log, log.hot_bytes, log.cold_bytes, buffers)


def shard_storage(fs: FileSystem, settings: Settings) -> LocalStorage:
    """The same for one of the shards of a data directory."""
    return LocalStorage(fs, settings, one_of_many=True)
