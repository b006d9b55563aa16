"""The log on a disk of this machine: the first storage engine."""

from __future__ import annotations

from typing import NamedTuple

from halfmoon.config.settings import Settings
from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.reading import ColdBlocks, Reader
from halfmoon.core.storage.storage import MakeStorage


class ReadMemory(NamedTuple):
    """What the reads of a process may take."""

    hot_bytes: int
    """Of each log."""
    cold_blocks: ColdBlocks
    buffers: FetchBuffers


class LocalStorage:
    """See core/storage/storage.Storage."""

    def __init__(self, fs: FileSystem, settings: Settings, memory: ReadMemory | None = None) -> None:
        """`memory`: of many logs; None where there is one."""
        log, one_of_many = settings.log, memory is not None
        memory = memory or read_memory(settings, 1, 1)
        self.log = CommitLog(fs, log.segment_bytes, log.low_disk_bytes, one_of_many=one_of_many)
        self.reader = Reader(self.log, memory.hot_bytes, memory.cold_blocks, memory.buffers)


def shard_storage(settings: Settings, shards: int, processes: int = 1) -> MakeStorage:
    """Makes the engines of one process's shards, which share its memory. `shards`: so many there are, in all of the
    `processes`."""
    memory = read_memory(settings, shards, processes)

    def make(fs: FileSystem, settings: Settings) -> LocalStorage:
        return LocalStorage(fs, settings, memory)

    return make


def read_memory(settings: Settings, logs: int, processes: int) -> ReadMemory:
    """Of one of the `processes` of a machine, which has one or more of so many logs."""
    log = settings.log
    buffers = FetchBuffers(settings.limits.fetch_buffer_bytes)
    return ReadMemory(log.hot_bytes // logs, ColdBlocks(log.cold_bytes, processes), buffers)
