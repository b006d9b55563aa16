"""The storage engine of a shard: a ShardLog, and the local disk's reader over its cache."""

from __future__ import annotations

from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.cached_files import CachedFiles
from halfmoon.cluster.engine.log import ShardLog
from halfmoon.config.settings import Settings
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.reading import ColdBlocks, Reader


class ShardStorage:
    """See core/storage/storage.Storage."""

    def __init__(self, fs: FileSystem, settings: Settings, backing: Backing) -> None:
        """`fs`: the shard's folder in the cache."""
        log = settings.log
        self.log = ShardLog(CachedFiles(fs, backing), backing, log.segment_bytes, log.low_disk_bytes)
        buffers = FetchBuffers(settings.limits.fetch_buffer_bytes)
        self.reader = Reader(self.log, log.hot_bytes, ColdBlocks(log.cold_bytes), buffers)
