"""The storage engine of a shard: a ShardLog, and the local disk's reader over its cache."""

from __future__ import annotations

from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.cached_files import CachedFiles
from halfmoon.cluster.engine.log import ShardLog
from halfmoon.config.settings import Settings
from halfmoon.core.storage.local import ReadMemory
from halfmoon.core.storage.reading import Reader


class ShardStorage:
    """See core/storage/storage.Storage."""

    def __init__(self, files: CachedFiles, settings: Settings, backing: Backing, memory: ReadMemory) -> None:
        """`memory`: of all shards of the node."""
        log = settings.log
        self.log = ShardLog(files, backing, log.segment_bytes, log.low_disk_bytes)
        self.reader = Reader(self.log, memory.hot_bytes, memory.cold_blocks, memory.buffers)
