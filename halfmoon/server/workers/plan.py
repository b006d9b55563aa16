"""What a worker process is told when it starts: who it is, and where everybody is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from halfmoon.cluster.placement import owner_of
from halfmoon.schema.shards import SHARED_CATALOG
from halfmoon.server import admin_socket

CATALOG = SHARED_CATALOG
FIRST_NODE = 1
"""The node id of the first worker; the others follow."""


class Plan(msgspec.Struct, frozen=True):
    folder: str
    """The data directory."""
    worker: int
    """Which one this is, from 0 on."""
    workers: int
    shards: int
    kafka: dict[str, list[int]]
    """Listener → the port of each worker that is its own."""
    bootstrap: dict[str, int]
    """Listener → the port that all workers share."""
    rocketmq: list[int] = []
    """The port of each shard; none where RocketMQ is off."""
    namesrv: int = 0
    http: int = 0
    """Of /healthz and /metrics, which all workers share; 0: off."""

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def node_id(self, worker: int) -> int:
        return FIRST_NODE + worker

    def owned(self) -> list[int]:
        """The shards of this worker."""
        return [shard for shard in range(self.shards) if owner_of(shard, self.workers) == self.worker]

    def owners(self) -> list[int]:
        """By shard, which worker has it."""
        return [owner_of(shard, self.workers) for shard in range(self.shards)]

    def link(self, worker: int) -> Path:
        """The socket on which other workers ask this one. Raises StartError."""
        return admin_socket.path_of(self.path, f"link-{worker}.sock")

    def socket(self, worker: int) -> Path:
        """The administrator's socket of this worker. Raises StartError."""
        return admin_socket.path_of(self.path, f"worker-{worker}.sock")

    def sockets(self) -> list[Path]:
        """Both of all workers. Raises StartError."""
        return [of(worker) for worker in range(self.workers) for of in (self.link, self.socket)]

    def shard_folder(self, shard: int) -> Path:
        return shard_folder(self.path, shard)


def shard_folder(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:02}"
