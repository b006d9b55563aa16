"""A broker in this process, with no loop and no socket: the caller turns it."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path

from halfmoon.config.settings import load_settings
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.server.clock import SystemClock
from halfmoon.testing.node import BareNode


def start(partitions: int = 1) -> tuple[BareNode, Topic]:
    """A broker in a temporary directory, removed when Python ends, and a topic in it."""
    folder = tempfile.TemporaryDirectory(prefix="halfmoon-micro-", dir=Path("out") if Path("out").is_dir() else None)
    given = {"log.flush": "interval", "log.segment_bytes": "256MiB", "node.data_dir": folder.name}
    broker = BareNode(OsFileSystem(folder.name), load_settings(None, {}, given), SystemClock(), os.urandom)
    broker.open()
    atexit.register(folder.cleanup)
    atexit.register(broker.close)
    topic, _ = broker.create_topic("micro", partitions)
    turn(broker)
    return broker, topic


def turn(broker: BareNode) -> None:
    """What the loop does after it has read all ready sockets."""
    broker.write()
    broker.settle()
