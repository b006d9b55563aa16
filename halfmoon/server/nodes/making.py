"""A node of a cluster, as broker.yaml says it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from halfmoon.config.settings import Settings
from halfmoon.server.nodes.engines import ServiceEngines
from halfmoon.server.nodes.node import ClusterNode


def make_node(settings: Settings, unset_configs: Collection[str], lost: Callable[[Exception], None]) -> ClusterNode:
    """As of server/process.Make."""
    return ClusterNode(
        settings, ServiceEngines(settings), unset_configs=unset_configs, environment=os.environ, on_lost=lost
    )
