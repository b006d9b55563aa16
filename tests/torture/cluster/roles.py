"""The clients of a cluster: those of workers, and some that write seldom, to each shard.

A shard that is idle is where a node that has lost it finds the end of the log as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial

from tests.torture import worker
from tests.torture.worker import History
from tests.torture.workers import roles

FAST_SHARDS, OBJECT_SHARDS = 12, 6
SELDOM, SELDOM_OBJECT = "seldom", "seldom-object"
SENDERS = {"seldom": SELDOM, "seldom_object": SELDOM_OBJECT}
"""Role → topic; one partition on each shard of a durability."""
TOPICS = {SELDOM: FAST_SHARDS, SELDOM_OBJECT: OBJECT_SHARDS}

ROLES: Mapping[str, Callable[[str, str, History], None]] = {
    **roles.ROLES,
    "seldom": partial(worker.feed, topic=SELDOM, partitions=FAST_SHARDS, pause_s=0.3),
    "seldom_object": partial(worker.feed, topic=SELDOM_OBJECT, partitions=OBJECT_SHARDS, pause_s=0.6),
}


if __name__ == "__main__":
    worker.main(ROLES, sys.argv[1:])
