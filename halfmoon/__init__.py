"""Halfmoon: a message broker for the Kafka clients you already have.

ARCHITECTURE.md shows the package's parts and who may import whom.
"""

from __future__ import annotations

import os

__version__ = "0.4.0.dev0"

if os.environ.get("HALFMOON_PURE", "") not in ("", "0"):
    from halfmoon import _pure

    _pure.prefer_source()
