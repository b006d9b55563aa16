"""Halfmoon: a message broker for the Kafka clients you already have.

The package's parts and who may import whom are drawn in ARCHITECTURE.md.
"""

__version__ = "0.1.0"
