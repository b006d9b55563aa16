"""File descriptors: a connection that takes the last one must not be what stops the log."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

HELD_BACK = 16
"""For a new segment (two: the file and its mapping), the spare, an index file and its merger, a checkpoint, folders."""
FILES_SHARE = 8
"""One descriptor in so many is left to files that come: segments and index files, one or two each."""

logger = logging.getLogger("halfmoon.server")


def raise_limit() -> int:
    """As high as this process may; how many descriptors it may have then. The JVM does the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def connections_that_fit(limit: int, max_connections: int) -> int:
    """How many connections may be open together; warns where `max_connections` are more."""
    opened = Path("/proc/self/fd")
    used = len(list(opened.iterdir())) if opened.is_dir() else 0
    fit = max(1, limit - used - max(HELD_BACK, limit // FILES_SHARE))
    if fit < max_connections:
        logger.warning(
            "event=few_descriptors max_connections=%d descriptors=%d accepted_connections=%d reason=%s",
            max_connections, limit, fit,
            "the limit of file descriptors is lower than limits.max_connections needs: raise it (ulimit -n)",
        )  # fmt: skip
        return fit
    return max_connections
