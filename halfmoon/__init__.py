"""Halfmoon: a message broker for the Kafka clients you already have.

ARCHITECTURE.md shows the package's parts and who may import whom.
"""

__version__ = "0.3.0.dev0"
