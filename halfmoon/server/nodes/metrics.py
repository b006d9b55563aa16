"""Metrics of a node of a cluster: what it has, what it commits, and what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.core.metrics import Family, Metrics, Put

if TYPE_CHECKING:
    from halfmoon.cluster.engine.placed import PlacedReads
    from halfmoon.server.nodes.database_clock import DatabaseClock
    from halfmoon.server.nodes.engine import Engine
    from halfmoon.server.nodes.holding import HeldShards

FAMILIES: Final = (
    Family("halfmoon_cluster_shards", "gauge", "Shards that are open at this node.", ("durability",)),
    Family("halfmoon_cluster_shards_lost_total", "counter", "Shards that another node has taken from this one."),
    Family("halfmoon_cluster_lease_age_seconds", "gauge", "Time since the database last said what is this node's."),
    Family("halfmoon_cluster_clock_offset_seconds", "gauge", "How far this machine's clock is behind the database's."),
    Family("halfmoon_cluster_commits_total", "counter", "Statements that committed something.", ("durability",)),
    Family("halfmoon_cluster_object_bytes_total", "counter", "Bytes of the objects that shards were committed in."),
    Family(
        "halfmoon_cluster_moved_bytes_total",
        "counter",
        "Bytes brought from the database, or small objects, into objects.",
    ),
    Family("halfmoon_cluster_row_bytes", "gauge", "Bytes in the database that are to go into objects."),
    Family("halfmoon_cluster_pieces", "gauge", "Pieces that the logs of this node's shards consist of."),
    Family("halfmoon_cluster_store_reached", "gauge", "1, or 0 where nothing could be stored for a while."),
    Family(
        "halfmoon_cluster_cache_bytes", "gauge", "Bytes of logs and compacted segments that are on this node's disk."
    ),
    Family("halfmoon_cluster_cache_forgotten_bytes_total", "counter", "Bytes that went for want of room in the cache."),
    Family(
        "halfmoon_replica_requests_total",
        "counter",
        "Requests for what other nodes lead, for consumers of this node's rack.",
        ("source",),
    ),
    Family("halfmoon_replica_read_bytes_total", "counter", "Bytes that these requests have brought.", ("source",)),
)


def of_node(engine: Engine, held: HeldShards, clock: DatabaseClock, placed: PlacedReads) -> Metrics:
    def read(put: Put) -> None:
        fast, objects = engine.commits()
        for durability, commits in ((Durability.FAST, fast), (Durability.OBJECT, objects)):
            put("halfmoon_cluster_shards", held.count(durability), durability)
            put("halfmoon_cluster_commits_total", commits, durability)
        put("halfmoon_cluster_shards_lost_total", held.losses)
        put("halfmoon_cluster_lease_age_seconds", held.member.confirmed_ago_s())
        put("halfmoon_cluster_clock_offset_seconds", clock.offset_ms / 1000)
        put("halfmoon_cluster_object_bytes_total", engine.object_bytes)
        put("halfmoon_cluster_moved_bytes_total", engine.moved_bytes)
        put("halfmoon_cluster_row_bytes", engine.row_bytes)
        put("halfmoon_cluster_pieces", sum(len(log.pieces) for log in engine.logs()))
        put("halfmoon_cluster_store_reached", engine.store.is_reached)
        put("halfmoon_cluster_cache_bytes", sum(log.cached_bytes for log in engine.logs()))
        put("halfmoon_cluster_cache_forgotten_bytes_total", engine.forgotten_bytes)
        put("halfmoon_replica_requests_total", placed.gets, "store")
        put("halfmoon_replica_requests_total", placed.queries, "database")
        put("halfmoon_replica_read_bytes_total", placed.get_bytes, "store")
        put("halfmoon_replica_read_bytes_total", placed.row_bytes, "database")

    return Metrics(FAMILIES, read)
